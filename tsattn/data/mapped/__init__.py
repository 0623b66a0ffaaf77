"""Tables larger than memory: converted once to arrays in files, which are opened as a `Panel`.

`convert.py` goes the way of the reader in memory part by part, into the folder of `panel_folder.py`.
"""
