"""Predictors of external libraries, which run in an environment of their own: the core never imports them.

`make peers` makes that environment beside the project, ``.venv-peers``; ``TSATTN_PEERS`` names the python of another
one. A worker process (`tsattn.peers.peer_worker`, a script that imports nothing of this package) runs in it, takes
tables of windows and gives back tables of forecasts, both Parquet, whose columns `tsattn.peers.exchange` describes.
"""
