"""Training networks: everything that touches Lightning's insides."""

from tsattn.training.module import ForecastingModule

__all__ = ["ForecastingModule"]
