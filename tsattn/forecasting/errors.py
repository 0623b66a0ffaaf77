"""What validation and test say of a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tsattn.errors import UserError
from tsattn.forecasting.metrics import CRPS, EXACT, WQL, Coverage, SummedMetric
from tsattn.task import MEDIAN, check_quantiles

__all__ = ["ForecastErrors"]


class ForecastErrors(SummedMetric):
    """MSE and MAE, on the train-standardised scale and in original units, and what quantiles are measured by.

    `compute` returns ``mse``, ``mae``, ``mse_original``, ``mae_original``, sums over all channels divided by the count
    of observed targets, and ``windows``, the number of windows seen. With quantiles these are of the median, and there
    are ``wql`` and ``crps_original`` in original units, ``crps`` on the scale, and ``coverage_80`` and so on, the share
    inside each central interval; see `tsattn.forecasting.metrics`.

    Args:
        scale: standard deviation of each channel, C numbers: an error in original units is the scaled one times it.
        mean: mean of each channel, C numbers; quantiles need it.
        quantiles: Q levels that are forecast, none for a point forecast.

    Raises:
        UserError: for invalid quantiles, or quantiles without the means.
    """

    scale: Tensor
    mean: Tensor
    squared: Tensor
    absolute: Tensor
    squared_original: Tensor
    absolute_original: Tensor
    count: Tensor
    windows: Tensor

    def __init__(self, scale: Sequence[float], mean: Sequence[float] = (), quantiles: Sequence[float] = ()) -> None:
        super().__init__()
        self.quantiles = check_quantiles(quantiles)
        if self.quantiles and len(mean) != len(scale):
            raise UserError(f"errors of quantiles need the mean of all {len(scale)} channels, not {len(mean)}")
        self.register_buffer("scale", torch.tensor(scale, dtype=EXACT), persistent=False)
        self.register_buffer("mean", torch.tensor(mean, dtype=EXACT), persistent=False)
        for name in ("squared", "absolute", "squared_original", "absolute_original"):
            self.add_sum(name)
        for name in ("count", "windows"):
            self.add_sum(name, count=True)
        if self.quantiles:
            channels = len(scale)
            self.crps = CRPS(self.quantiles, channels)
            self.crps_original = CRPS(self.quantiles, channels)
            self.wql = WQL(self.quantiles, channels)
            self.coverage = Coverage(self.quantiles, channels)

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            forecast: `(B, T, C)` on the scaled axis; with quantiles `(B, T, C, Q)`.
            target: `(B, T, C)` on the scaled axis.
            observed: `(B, T, C)` bool; None if all is observed.
        """
        forecast, target = forecast.to(EXACT), target.to(EXACT)
        if self.quantiles:
            self._update_quantiles(forecast, target, observed)
            forecast = forecast[..., self.quantiles.index(MEDIAN)]
        error = forecast - target
        if observed is not None:
            error = error.where(observed, 0.0)
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
        point = {
            "mse": self.squared / self.count,
            "mae": self.absolute / self.count,
            "mse_original": self.squared_original / self.count,
            "mae_original": self.absolute_original / self.count,
            "windows": self.windows,
        }
        if not self.quantiles:
            return point
        ratios = {name: getattr(self, name).compute() for name in ("wql", "crps", "crps_original")}
        coverage = {name: share for name, share in self.coverage.compute().items() if name.startswith("coverage")}
        return {**point, **ratios, **coverage}

    def reset(self) -> None:
        """Start anew."""
        super().reset()
        for metric in self.children():
            assert isinstance(metric, SummedMetric)
            metric.reset()

    def _update_quantiles(self, forecast: Tensor, target: Tensor, observed: Tensor | None) -> None:
        original, truth = forecast * self.scale[:, None] + self.mean[:, None], target * self.scale + self.mean
        self.crps.update(forecast, target, observed)
        self.coverage.update(forecast, target, observed)
        self.crps_original.update(original, truth, observed)
        self.wql.update(original, truth, observed)
