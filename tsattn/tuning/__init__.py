"""Tuning: a search space over a configuration, trials that are trained and validated, and what they found.

Nothing here reads the test part. What makes model, data and Trainer of a configuration is handed in, so that a trial is
trained as `fit` would train it.
"""

from tsattn.tuning.check import check_search
from tsattn.tuning.rolling import Fold, hold_out
from tsattn.tuning.search import Parameter, Search, read_search
from tsattn.tuning.storage import open_storage, open_study
from tsattn.tuning.study import Budget, best_trial, counted, run_study
from tsattn.tuning.trial import Build, Built, run_trial

__all__ = [
    "Budget",
    "Build",
    "Built",
    "Fold",
    "Parameter",
    "Search",
    "best_trial",
    "check_search",
    "counted",
    "hold_out",
    "open_storage",
    "open_study",
    "read_search",
    "run_study",
    "run_trial",
]
