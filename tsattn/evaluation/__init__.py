"""Measuring forecasts."""

from tsattn.evaluation.baselines import Score, baseline_scores, score_table
from tsattn.evaluation.error_table import ErrorTable
from tsattn.evaluation.errors import ForecastErrors
from tsattn.evaluation.horizon import error_by_horizon
from tsattn.evaluation.measure import measure
from tsattn.evaluation.selection import selection_metric
from tsattn.evaluation.totals import ErrorTotals

__all__ = [
    "ErrorTable",
    "ErrorTotals",
    "ForecastErrors",
    "Score",
    "baseline_scores",
    "error_by_horizon",
    "measure",
    "score_table",
    "selection_metric",
]
