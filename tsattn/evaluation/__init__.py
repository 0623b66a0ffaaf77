"""Measuring forecasts."""

from tsattn.evaluation.baselines import Score, baseline_scores, score_table
from tsattn.evaluation.errors import ForecastErrors
from tsattn.evaluation.horizon import error_by_horizon

__all__ = ["ForecastErrors", "Score", "baseline_scores", "error_by_horizon", "score_table"]
