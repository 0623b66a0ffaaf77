"""Measuring forecasts: one table of errors, and every score as a reduction of it."""

from tsattn.evaluation.error_table import ErrorTable
from tsattn.evaluation.horizon import error_by_horizon
from tsattn.evaluation.measure import measure
from tsattn.evaluation.selection import selection_metric
from tsattn.evaluation.totals import ErrorTotals

__all__ = ["ErrorTable", "ErrorTotals", "error_by_horizon", "measure", "selection_metric"]
