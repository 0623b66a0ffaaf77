"""Measures of forecasts: a table of errors, and all scores computed from it."""

from tsattn.evaluation.error_table import ErrorTable
from tsattn.evaluation.horizon import error_by_horizon
from tsattn.evaluation.measure import measure
from tsattn.evaluation.scores_by import scores_by
from tsattn.evaluation.selection import selection_metric
from tsattn.evaluation.totals import ErrorTotals

__all__ = ["ErrorTable", "ErrorTotals", "error_by_horizon", "measure", "scores_by", "selection_metric"]
