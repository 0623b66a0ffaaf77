"""Forecast data frames."""

from tsattn.forecaster.forecaster import Forecaster
from tsattn.forecaster.frames import future_frame
from tsattn.forecaster.load_folder import forecaster_of, load

__all__ = ["Forecaster", "forecaster_of", "future_frame", "load"]
