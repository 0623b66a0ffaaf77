"""Tables larger than memory: read in batches, written once as memory maps, windows cut out of these.

`source.py` reads batches of rows, `keys.py` checks ids and time stamps, `build.py` scales and writes, `store.py` keeps
the folder of maps, `datamodule.py` is the DataModule.
"""
