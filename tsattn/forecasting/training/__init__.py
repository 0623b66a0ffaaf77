"""What surrounds the module in a training.

`fitting.py` trains on the series of a panel, and lets a Trainer count all its epochs as one; `callbacks.py`, with
`checkpoint_io.py`, keeps work from being lost; `precision.py` finds the precision of a training that names none;
`progress.py` and `throughput.py` are what is shown and measured on the way.
"""
