"""Tables larger than memory: read in batches, written once as memory maps, windows cut out of these.

`source.py` reads batches of rows, `series_keys.py` checks ids and time stamps, `moments.py` takes means and deviations,
`build.py` scales and writes, `store.py` keeps the folder of maps, `opening.py` decides whether it can be used again,
`mapped_data.py` is the DataModule.
"""
