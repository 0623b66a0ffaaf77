"""Training, measuring and using a forecaster."""

from tsattn.forecasting.attention_figures import plot_attention, plot_attention_maps
from tsattn.forecasting.errors import ForecastErrors
from tsattn.forecasting.evaluation import Score, baseline_scores, score_table
from tsattn.forecasting.forecaster import Forecaster, load
from tsattn.forecasting.future import future_frame
from tsattn.forecasting.horizon import error_by_horizon, plot_error_by_horizon
from tsattn.forecasting.module import ForecastingModule
from tsattn.forecasting.plots import plot_forecast, plot_test_forecasts

__all__ = [
    "ForecastErrors",
    "Forecaster",
    "ForecastingModule",
    "Score",
    "baseline_scores",
    "error_by_horizon",
    "future_frame",
    "load",
    "plot_attention",
    "plot_attention_maps",
    "plot_error_by_horizon",
    "plot_forecast",
    "plot_test_forecasts",
    "score_table",
]
