"""The public data sets: their cards, and the DataModules that read them.

To add one that is a CSV file, write its card in `cards.toml`. Importing this package imports nothing else.
"""
