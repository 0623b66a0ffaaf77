"""Tuning: search spaces, trials and their results.

Nothing here reads the test part. A trial is a run without its test, so that it is trained as `fit` would train it.
"""

from tsattn.tuning.check import check_one_trial, check_search, comparable
from tsattn.tuning.search import Parameter, Search, read_search
from tsattn.tuning.study import best_trial, counted, error_word, open_storage, open_study, run_study, storage_errors
from tsattn.tuning.trial import Fold, HeldData, run_trial

__all__ = ["Fold", "HeldData", "Parameter", "Search", "best_trial", "check_one_trial", "check_search", "comparable"]
__all__ += ["counted", "error_word", "open_storage", "open_study", "read_search", "run_study", "run_trial"]
__all__ += ["storage_errors"]
