"""Training, measuring and using a forecaster."""

from tsattn.forecasting.errors import ForecastErrors
from tsattn.forecasting.evaluation import Score, baseline_scores, score_table
from tsattn.forecasting.future import future_frame
from tsattn.forecasting.module import ForecastingModule
from tsattn.forecasting.plots import plot_test_forecasts

__all__ = [
    "ForecastErrors",
    "ForecastingModule",
    "Score",
    "baseline_scores",
    "future_frame",
    "plot_test_forecasts",
    "score_table",
]
