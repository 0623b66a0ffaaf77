"""Pictures of forecasts, errors and attention."""

from tsattn.figures.attention_maps import plot_attention, plot_attention_maps
from tsattn.figures.forecasts import plot_forecast, plot_test_forecasts
from tsattn.figures.horizon_errors import plot_error_by_horizon
from tsattn.figures.layer_maps import plot_layers
from tsattn.figures.residual_plots import plot_residuals
from tsattn.figures.style import use_house_style

__all__ = [
    "plot_attention",
    "plot_attention_maps",
    "plot_error_by_horizon",
    "plot_forecast",
    "plot_layers",
    "plot_residuals",
    "plot_test_forecasts",
    "use_house_style",
]
