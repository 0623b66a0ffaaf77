"""What validation and test say of a model."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tsattn.constants import EXACT
from tsattn.evaluation.metrics import CRPS, WQL, Coverage, SummedMetric
from tsattn.task import MEDIAN, check_quantiles

__all__ = ["ForecastErrors"]


class ForecastErrors(SummedMetric):
    """MSE and MAE, on the train-standardised scale and in original units, and what quantiles are measured by.

    `compute` returns ``mse``, ``mae``, ``mse_original``, ``mae_original``, sums over all channels divided by the count
    of observed targets, and ``windows``, the number of windows seen. With quantiles these are of the median, and there
    are ``wql`` and ``crps_original`` in original units, ``crps`` on the scale, and ``coverage_80`` and so on, the share
    inside each central interval; see `tsattn.evaluation.metrics`.

    Args:
        num_channels: C.
        quantiles: Q levels that are forecast, none for a point forecast.

    Raises:
        UserError: for invalid quantiles.
    """

    squared: Tensor
    absolute: Tensor
    squared_original: Tensor
    absolute_original: Tensor
    count: Tensor
    windows: Tensor

    def __init__(self, num_channels: int, quantiles: Sequence[float] = ()) -> None:
        super().__init__()
        self.quantiles = check_quantiles(quantiles)
        for name in ("squared", "absolute", "squared_original", "absolute_original"):
            self.add_sum(name)
        for name in ("count", "windows"):
            self.add_sum(name, count=True)
        if self.quantiles:
            self.crps = CRPS(self.quantiles, num_channels)
            self.crps_original = CRPS(self.quantiles, num_channels)
            self.wql = WQL(self.quantiles, num_channels)
            self.coverage = Coverage(self.quantiles, num_channels)

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor | None, units: tuple[Tensor, Tensor]) -> None:
        """Add a batch.

        Args:
            forecast: `(B, T, C)` on the scaled axis; with quantiles `(B, T, C, Q)`.
            target: `(B, T, C)` on the scaled axis.
            observed: `(B, T, C)` bool; None if all is observed.
            units: mean and scale of the windows, see `Units.of`.
        """
        mean, scale = units
        forecast, target = forecast.to(EXACT), target.to(EXACT)
        if self.quantiles:
            original = forecast * scale[..., None] + mean[..., None]
            self._update_quantiles(forecast, target, observed, original, target * scale + mean)
            forecast = forecast[..., self.quantiles.index(MEDIAN)]
        error = forecast - target
        if observed is not None:
            error = error.where(observed, 0.0)
            self.count += observed.sum()
        else:
            self.count += error.numel()
        self.windows += len(forecast)
        original = error * scale
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

    def _update_quantiles(
        self, forecast: Tensor, target: Tensor, observed: Tensor | None, original: Tensor, truth: Tensor
    ) -> None:
        self.crps.update(forecast, target, observed)
        self.coverage.update(forecast, target, observed)
        self.crps_original.update(original, truth, observed)
        self.wql.update(original, truth, observed)
