"""The page of runs: what their folders hold, and forecasts by their checkpoints, as a report in the form of a board's.

`reported_run.py` reads a folder; `run_scores.py`, `run_curves.py`, `run_settings.py` and `run_forecasts.py` make the
sections of it, which `tsattn.leaderboard.report.page` writes.
"""
