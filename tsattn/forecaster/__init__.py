"""Forecasting with frames."""

from tsattn.forecaster.forecaster import Forecaster, forecaster_of, load
from tsattn.forecaster.frames import future_frame

__all__ = ["Forecaster", "forecaster_of", "future_frame", "load"]
