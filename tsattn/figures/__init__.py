"""Draw forecasts, residuals and attention."""

from tsattn.figures.forecasts import plot_forecast, plot_test_forecasts
from tsattn.figures.layer_maps import plot_layers
from tsattn.figures.residual_plots import plot_residuals
from tsattn.figures.style import use_house_style

__all__ = ["plot_forecast", "plot_layers", "plot_residuals", "plot_test_forecasts", "use_house_style"]
