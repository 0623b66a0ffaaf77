"""Measure forecasts: a table of errors, and all scores computed from it."""

from tsattn.evaluation.error_table import ErrorTable, scores_by
from tsattn.evaluation.measure import measure
from tsattn.evaluation.reductions import ErrorTotals
from tsattn.evaluation.selection import selection_metric

__all__ = ["ErrorTable", "ErrorTotals", "measure", "scores_by", "selection_metric"]
