"""The public data sets: their cards, the reading and checking of their files, and their DataModules.

To add one that is a CSV file, write its card in `cards.py`. Importing this package imports nothing else.
"""
