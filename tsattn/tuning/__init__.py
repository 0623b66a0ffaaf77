"""Tuning: search spaces, trials and their results.

Nothing here reads the test part. A trial is a run without its test, so that it is trained as `fit` would train it.
"""

from tsattn.tuning.check import check_search, comparable
from tsattn.tuning.held_data import HeldData, check_one_trial
from tsattn.tuning.rolling import Fold, hold_out
from tsattn.tuning.search import Parameter, Search
from tsattn.tuning.search_file import read_search
from tsattn.tuning.storage import open_storage, open_study
from tsattn.tuning.study import Budget, best_trial, counted, error_word, run_study
from tsattn.tuning.trial import run_trial

__all__ = [
    "Budget",
    "Fold",
    "HeldData",
    "Parameter",
    "Search",
    "best_trial",
    "check_one_trial",
    "check_search",
    "comparable",
    "counted",
    "error_word",
    "hold_out",
    "open_storage",
    "open_study",
    "read_search",
    "run_study",
    "run_trial",
]
