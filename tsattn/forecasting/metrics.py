"""Forecast errors over all windows: sums of errors over the count of observed targets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

__all__ = ["ForecastErrors"]


class ForecastErrors(Metric):
    """MSE and MAE, on the train-standardised scale and in original units.

    `compute` returns ``mse``, ``mae``, ``mse_original``, ``mae_original`` and ``windows``, the number of windows seen.

    Args:
        scale: standard deviation of each channel, C numbers: an error in original units is the scaled one times it.
    """

    full_state_update = False
    higher_is_better = False

    scale: Tensor
    squared: Tensor
    absolute: Tensor
    squared_original: Tensor
    absolute_original: Tensor
    count: Tensor
    windows: Tensor

    def __init__(self, scale: Sequence[float]) -> None:
        super().__init__()
        # long sums of small numbers need float64, which Apple's GPUs lack
        exact = torch.float32 if torch.backends.mps.is_available() else torch.float64
        self.register_buffer("scale", torch.tensor(scale, dtype=exact), persistent=False)
        for name in ("squared", "absolute", "squared_original", "absolute_original"):
            self.add_state(name, torch.zeros((), dtype=exact), dist_reduce_fx="sum")
        for name in ("count", "windows"):
            self.add_state(name, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> None:
        """Add a batch: forecast and target `(B, T, C)` on the scaled axis, observed `(B, T, C)` bool."""
        error = forecast.to(self.scale.dtype) - target.to(self.scale.dtype)
        if observed is not None:
            error = error * observed
            self.count += observed.sum()
        else:
            self.count += error.numel()
        self.windows += len(forecast)
        original = error * self.scale
        self.squared += error.square().sum()
        self.absolute += error.abs().sum()
        self.squared_original += original.square().sum()
        self.absolute_original += original.abs().sum()

    def compute(self) -> dict[str, Tensor]:
        """See the class."""
        return {
            "mse": self.squared / self.count,
            "mae": self.absolute / self.count,
            "mse_original": self.squared_original / self.count,
            "mae_original": self.absolute_original / self.count,
            "windows": self.windows,
        }
