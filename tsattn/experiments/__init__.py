"""Runs: from an experiment, as plain data, to its result.

The names are imported when they are first asked for: finding a configuration, or the folder of a run, needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsattn.experiments.experiment import RESULTS_VERSION, Experiment
    from tsattn.experiments.recording import Result
    from tsattn.experiments.run_folder import LIMITS, RunFolder
    from tsattn.experiments.running import Hooks, resume, run

_HOMES = {
    "LIMITS": "run_folder",
    "RESULTS_VERSION": "experiment",
    "Experiment": "experiment",
    "Hooks": "running",
    "Result": "recording",
    "RunFolder": "run_folder",
    "resume": "running",
    "run": "running",
}

__all__ = ["LIMITS", "RESULTS_VERSION", "Experiment", "Hooks", "Result", "RunFolder", "resume", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.experiments' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tsattn.experiments.{_HOMES[name]}"), name)
