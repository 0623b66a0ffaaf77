"""Forecasting with frames."""

from tsattn.forecaster.forecaster import Forecaster, load
from tsattn.forecaster.frames import future_frame

__all__ = ["Forecaster", "future_frame", "load"]
