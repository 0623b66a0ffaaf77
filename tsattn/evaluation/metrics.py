"""Forecast metrics as sums over all observed targets: any cut into batches gives the same number.

Every metric here is found for each channel and then averaged over the channels, as fev does, so that a channel of large
numbers does not hide the others. Nothing undefined is averaged away in silence: a channel without an observed target,
or with a denominator of zero, makes the metric NaN; the single targets that fev leaves out of MASE and sMAPE, because
their own denominator is zero or unknown, are left out here too and counted in `left_out`.

Source: Hyndman & Koehler, *Another look at measures of forecast accuracy* (2006); Gneiting & Raftery, *Strictly Proper
Scoring Rules* (2007); the definitions of fev 0.10 (Shchur et al., 2025), with which the tests compare.

Shape letters: B windows, T horizon, L context, C channels, Q quantiles.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from tsattn.constants import EXACT
from tsattn.errors import UserError
from tsattn.evaluation.pinball import quantile_loss
from tsattn.task import check_quantiles

__all__ = [
    "CRPS",
    "MAE",
    "MASE",
    "MSE",
    "RMSE",
    "SMAPE",
    "WAPE",
    "WQL",
    "Coverage",
    "SummedMetric",
    "central_intervals",
    "seasonal_error",
]


class SummedMetric(Metric):
    """A metric made of sums, which keep their precision when the model around them is cast to another."""

    full_state_update = False

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)

    def add_sum(self, name: str, *shape: int, count: bool = False) -> None:
        """Add a state that starts at zero: float64, or int64 for a count."""
        zeros = torch.zeros(shape, dtype=torch.long if count else EXACT)
        self.add_state(name, zeros, dist_reduce_fx="sum")


class _PerChannel(SummedMetric):
    """The ratio of two sums of each channel, averaged over the channels."""

    higher_is_better = False

    numerator: Tensor
    denominator: Tensor

    def __init__(self, num_channels: int = 1) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.add_sum("numerator", num_channels)
        self.add_sum("denominator", num_channels)

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            forecast: `(B, T, C)`.
            target: `(B, T, C)`, anything (NaN too) where it is not observed.
            observed: `(B, T, C)` bool; None if all is observed.
        """
        forecast, target = _exact(forecast, target, self.num_channels)
        self._add(self._error(forecast, target), self._weight(target), observed)

    def compute(self) -> Tensor:
        """The metric, a float64 scalar."""
        # NaN, not infinity, where the denominator is zero
        ratio = self.numerator / self.denominator.where(self.denominator != 0, torch.nan)
        return self._of(ratio).mean()

    @abstractmethod
    def _error(self, forecast: Tensor, target: Tensor) -> Tensor:
        """What the numerator sums, `(B, T, C)`."""

    def _weight(self, target: Tensor) -> Tensor:
        """What the denominator sums, `(B, T, C)`."""
        return torch.ones_like(target)

    def _of(self, ratio: Tensor) -> Tensor:
        """The metric of each channel, `(C,)`, from the ratio of its sums."""
        return ratio

    def _add(self, error: Tensor, weight: Tensor, observed: Tensor | None) -> None:
        if observed is not None:
            error, weight = (x.where(observed, 0.0) for x in (error, weight))
        self.numerator += error.sum((0, 1))
        self.denominator += weight.sum((0, 1))


class MSE(_PerChannel):
    """Mean squared error.

    Args:
        num_channels: C.
    """

    def _error(self, forecast: Tensor, target: Tensor) -> Tensor:
        return (forecast - target).square()


class RMSE(MSE):
    """Root of the mean squared error of each channel.

    Args:
        num_channels: C.
    """

    def _of(self, ratio: Tensor) -> Tensor:
        return ratio.sqrt()


class MAE(_PerChannel):
    """Mean absolute error.

    Args:
        num_channels: C.
    """

    def _error(self, forecast: Tensor, target: Tensor) -> Tensor:
        return (forecast - target).abs()


class WAPE(MAE):
    """Weighted absolute percentage error: the sum of absolute errors over the sum of absolute targets.

    NaN if the targets of a channel are all zero.

    Args:
        num_channels: C.
    """

    def _weight(self, target: Tensor) -> Tensor:
        return target.abs()


class SMAPE(MAE):
    """Symmetric mean absolute percentage error, ``2 |y - f| / (|y| + |f|)``, from 0 to 2.

    A target that is zero and forecast as zero has none; it is left out and counted.

    Args:
        num_channels: C.

    Attributes:
        left_out: how many observed targets were left out.
    """

    left_out: Tensor

    def __init__(self, num_channels: int = 1) -> None:
        super().__init__(num_channels)
        self.add_sum("left_out", count=True)

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> None:
        """See `MSE`."""
        forecast, target = _exact(forecast, target, self.num_channels)
        size = (forecast.abs() + target.abs()) / 2
        self.left_out += _add_relative(self, self._error(forecast, target), size, size != 0, observed)


class MASE(MAE):
    """Mean absolute scaled error: absolute errors over the `seasonal_error` of the history that they follow.

    The targets of a window and channel whose seasonal error is unknown or zero are left out and counted.

    Args:
        num_channels: C.

    Attributes:
        left_out: how many observed targets were left out.
    """

    left_out: Tensor

    def __init__(self, num_channels: int = 1) -> None:
        super().__init__(num_channels)
        self.add_sum("left_out", count=True)

    def update(  # type: ignore[override]  # the scale is no other metric's
        self, forecast: Tensor, target: Tensor, scale: Tensor, observed: Tensor | None = None
    ) -> None:
        """Add a batch.

        Args:
            forecast: `(B, T, C)`.
            target: `(B, T, C)`, anything (NaN too) where it is not observed.
            scale: `(B, C)` or `(C,)`, the seasonal error of each history, NaN where there is none.
            observed: `(B, T, C)` bool; None if all is observed.
        """
        forecast, target = _exact(forecast, target, self.num_channels)
        size = scale.to(EXACT).unsqueeze(-2).expand_as(target)
        self.left_out += _add_relative(self, self._error(forecast, target), size, size > 0, observed)


def seasonal_error(past: Tensor, season_length: int, observed: Tensor | None = None) -> Tensor:
    """The mean absolute difference of values one season apart: the error of the seasonal naive forecast.

    Args:
        past: `(B, L, C)`, anything (NaN too) where it is not observed.
        season_length: steps in a season; 1 for none.
        observed: `(B, L, C)` bool; None if all is observed. Only pairs with both values observed count.

    Returns:
        `(B, C)` float64; NaN where no pair is observed.

    Raises:
        UserError: for a season below 1.
    """
    if season_length < 1:
        raise UserError(f"season_length must be at least 1, not {season_length}")
    past = past.to(EXACT)
    difference = (past[:, season_length:] - past[:, :-season_length]).abs()
    if observed is None:
        return difference.mean(1)
    pairs = observed[:, season_length:] & observed[:, :-season_length]
    return difference.where(pairs, 0.0).sum(1) / pairs.sum(1)


class CRPS(_PerChannel):
    """Continuous ranked probability score, approximated by the mean quantile loss over the levels.

    The CRPS is the integral of twice the pinball loss over all levels (Gneiting & Ranjan 2011); the mean
    over evenly spaced levels approaches it as they grow many. It has the units of the target. fev calls this MQL.

    Args:
        levels: Q quantile levels, the median among them.
        num_channels: C.
    """

    def __init__(self, levels: Sequence[float], num_channels: int = 1) -> None:
        super().__init__(num_channels)
        self.levels = _some_quantiles(levels)

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> None:
        """Add a batch of quantile forecasts `(B, T, C, Q)`; the rest as for `MSE`."""
        forecast, target = _exact(forecast, target, self.num_channels, len(self.levels))
        self._add(self._error(forecast, target), self._weight(target), observed)

    def _error(self, forecast: Tensor, target: Tensor) -> Tensor:
        return quantile_loss(forecast, target, self.levels).mean(-1)


class WQL(CRPS):
    """Weighted quantile loss: the mean quantile loss over the mean absolute target.

    NaN if the targets of a channel are all zero.

    Args:
        levels: Q quantile levels, the median among them.
        num_channels: C.
    """

    def _weight(self, target: Tensor) -> Tensor:
        return target.abs()


class Coverage(SummedMetric):
    """How often targets fall below each quantile, and inside each central interval; bounds count as inside.

    `compute` returns the shares by name: ``below_0.1`` for the level 0.1, which should be 0.1, and ``coverage_80`` for
    the interval from 0.1 to 0.9, which should be 0.8.

    Args:
        levels: Q quantile levels, the median among them.
        num_channels: C.
    """

    below: Tensor
    inside: Tensor
    count: Tensor

    def __init__(self, levels: Sequence[float], num_channels: int = 1) -> None:
        super().__init__()
        self.levels = _some_quantiles(levels)
        self.num_channels = num_channels
        self.intervals = central_intervals(self.levels)
        self.add_sum("below", num_channels, len(self.levels))
        self.add_sum("inside", num_channels, len(self.intervals))
        self.add_sum("count", num_channels, 1, count=True)

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor | None = None) -> None:
        """Add a batch of quantile forecasts `(B, T, C, Q)`; the rest as for `MSE`."""
        forecast, target = _exact(forecast, target, self.num_channels, len(self.levels))
        seen = (torch.ones_like(target, dtype=torch.bool) if observed is None else observed)[..., None]
        target = target[..., None]
        # no comparison is true of NaN, which would count as not covered
        unknown = (forecast.sum(-1, keepdim=True) + target).isnan()

        def shares(covered: Tensor) -> Tensor:
            return covered.to(EXACT).masked_fill(unknown, torch.nan).where(seen, 0.0).sum((0, 1))

        low = [low for _, low, _ in self.intervals]
        high = [high for _, _, high in self.intervals]
        self.below += shares(target <= forecast)
        self.inside += shares((forecast[..., low] <= target) & (target <= forecast[..., high]))
        self.count += seen.sum((0, 1))

    def compute(self) -> dict[str, Tensor]:
        """The shares by name, float64 scalars."""
        # 0 / 0 is NaN: a channel without an observed target
        below, inside = ((x / self.count).mean(0) for x in (self.below, self.inside))
        return {
            **{f"below_{level}": below[i] for i, level in enumerate(self.levels)},
            **{f"coverage_{percent:g}": inside[i] for i, (percent, _, _) in enumerate(self.intervals)},
        }


def central_intervals(levels: Sequence[float]) -> list[tuple[float, int, int]]:
    """The pairs of levels that leave out as much below as above, widest first.

    Returns:
        for each pair its nominal coverage in percent and the numbers of its levels; for 0.1, 0.5 and 0.9 it is
        ``[(80.0, 0, 2)]``.
    """
    pairs = [(low, high) for low in range(len(levels)) for high in range(low + 1, len(levels))]
    return [
        (round(100 * (levels[high] - levels[low]), 6), low, high)
        for low, high in pairs
        if abs(levels[low] + levels[high] - 1) < 1e-9
    ]


def _some_quantiles(levels: Sequence[float]) -> tuple[float, ...]:
    if not len(levels):
        raise UserError("a metric of quantiles needs their levels")
    return check_quantiles(levels)


def _add_relative(metric: _PerChannel, error: Tensor, size: Tensor, defined: Tensor, observed: Tensor | None) -> Tensor:
    """Add the errors relative to a size of their own where that is defined; the number of observed ones it is not."""
    seen = torch.ones_like(defined) if observed is None else observed
    metric._add(error / size, torch.ones_like(error), seen & defined)
    return (seen & ~defined).sum()


def _exact(forecast: Tensor, target: Tensor, *sizes: int) -> tuple[Tensor, Tensor]:
    """Forecast and target in float64; shapes that would broadcast into a wrong number are refused."""
    if target.dim() != 3 or target.shape[-1] != sizes[0] or forecast.shape != (*target.shape, *sizes[1:]):
        raise UserError(
            f"the forecast must be (B, T, {', '.join(map(str, sizes))}) and the target (B, T, {sizes[0]}), "
            f"not {tuple(forecast.shape)} and {tuple(target.shape)}"
        )
    return forecast.to(EXACT), target.to(EXACT)
