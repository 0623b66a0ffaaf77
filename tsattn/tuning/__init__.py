"""Tuning: search spaces, trials and their results. A trial is a run without its test, trained as `fit` does it."""

from tsattn.tuning.search import Parameter, Search, read_search
from tsattn.tuning.study import best_trial, counted, error_word, open_storage, open_study, run_study, storage_errors
from tsattn.tuning.trial import Fold, HeldData, check_one_trial, check_search, comparable, run_trial

__all__ = ["Fold", "HeldData", "Parameter", "Search", "best_trial", "check_one_trial", "check_search", "comparable"]
__all__ += ["counted", "error_word", "open_storage", "open_study", "read_search", "run_study", "run_trial"]
__all__ += ["storage_errors"]
