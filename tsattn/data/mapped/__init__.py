"""Tables larger than memory: converted once to arrays in files, which are opened as a `Panel`.

`source.py` reads rows of CSV, Parquet and Arrow files a batch at a time, `time_column.py` their time stamps;
`counting.py` checks every cell and counts what each series has, `layout.py` finds ids, frequency and grids from that,
`scatter.py` writes each row to its place, `convert.py` goes the whole way. `panel_folder.py` is the folder,
`opening.py` gives its panel, `mapped_series.py` cuts and scales windows out of one, `mapped_data.py` is the DataModule.
"""
