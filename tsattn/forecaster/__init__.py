"""Forecast data frames."""

from tsattn.data import DataOptions
from tsattn.forecaster.forecaster import Forecaster, load
from tsattn.forecaster.frames import future_frame
from tsattn.forecaster.options import TrainingOptions
from tsattn.forecaster.ray_dataset import predict_dataset

__all__ = ["DataOptions", "Forecaster", "TrainingOptions", "future_frame", "load", "predict_dataset"]
