"""Runs: from an experiment as plain data to its result. Names are imported late, as not all of them need torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsattn.descriptions import late

if TYPE_CHECKING:
    from tsattn.experiments.experiment import RESULTS_VERSION, Experiment
    from tsattn.experiments.result import Result
    from tsattn.experiments.run_folder import LIMITS, RunFolder
    from tsattn.experiments.running import Hooks, resume, run

__all__ = ["LIMITS", "RESULTS_VERSION", "Experiment", "Hooks", "Result", "RunFolder", "resume", "run"]

_HOMES = {"Hooks": "running", "Result": "result", "RESULTS_VERSION": "experiment", "Experiment": "experiment"}
_HOMES |= {"LIMITS": "run_folder", "RunFolder": "run_folder", "resume": "running", "run": "running"}
__getattr__ = late(__name__, (f"tsattn.experiments.{home}.{name}" for name, home in _HOMES.items()))
