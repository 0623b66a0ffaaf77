"""From an experiment, plain data, to its result: the engine below the command line, the Forecaster and tuning."""

from tsattn.experiments.experiment import RESULTS_VERSION, Experiment
from tsattn.experiments.result import Result
from tsattn.experiments.resuming import LIMITS, resume
from tsattn.experiments.run_folder import RunFolder
from tsattn.experiments.running import Hooks, run

__all__ = ["LIMITS", "RESULTS_VERSION", "Experiment", "Hooks", "Result", "RunFolder", "resume", "run"]
