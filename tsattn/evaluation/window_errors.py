"""Errors of a forecast in each window and channel, as sums over the horizon; every score is a ratio of sums.

With sums instead of means, scores do not depend on the batches or the order of the windows, see
`tsattn.evaluation.reductions`.

Source: Hyndman & Koehler, *Another look at measures of forecast accuracy* (2006); Gneiting & Raftery, *Strictly Proper
Scoring Rules* (2007).

Shape letters: B windows, T horizon, C channels, Q quantile levels, K sums of a window, M sums of a total.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce

import torch
from torch import Tensor

from tsattn.batch import EXACT
from tsattn.errors import UserError
from tsattn.task import MEDIAN

SUMS = {
    "count": "observed targets",
    "squared_scaled": "squared errors of the point forecast, on the scale that is trained on",
    "absolute_scaled": "absolute errors on that scale",
    "squared_original": "squared errors in original units",
    "absolute_original": "absolute errors in original units",
    "absolute_target_original": "absolute observed targets in original units",
    "smape_sum": "2 |y - f| / (|y| + |f|) in original units; a target of zero that is forecast as zero has none",
    "smape_count": "observed targets that have such a term",
}
"""Sums of each window and channel, by name; with quantile levels `sum_names` adds others."""

_AT_ONCE = 1 << 18  # values of a forecast to measure at a time


def central_intervals(levels: Sequence[float]) -> list[tuple[float, int, int]]:
    """Pair the levels of central intervals, which leave out equal shares below and above, widest first.

    A pair is the nominal coverage in percent and the numbers of two levels: ``[(80.0, 0, 2)]`` for ``[.1, .5, .9]``.
    """
    pairs = [(low, high) for low in range(len(levels)) for high in range(low + 1, len(levels))]
    return [
        (round(100 * (levels[high] - levels[low]), 6), low, high)
        for low, high in pairs
        if abs(levels[low] + levels[high] - 1) < 1e-9
    ]


def sum_names(levels: Sequence[float]) -> tuple[str, ...]:
    """Name the K sums: the names in `SUMS`, and for quantile levels such as 0.1 and 0.9,

    - ``pinball_scaled_0.1``, ``pinball_original_0.1``: twice the pinball loss of the level, see `quantile_loss`;
    - ``below_0.1``: observed targets at or below the forecast of the level;
    - ``inside_80``: observed targets inside the central interval of 80 %, its bounds included.
    """
    return (
        *SUMS,
        *(f"pinball_scaled_{level}" for level in levels),
        *(f"pinball_original_{level}" for level in levels),
        *(f"below_{level}" for level in levels),
        *(f"inside_{percent:g}" for percent, _, _ in central_intervals(levels)),
    )


def total_names(levels: Sequence[float]) -> tuple[str, ...]:
    """Name the M sums of a total: ``windows``, the K names of `sum_names`, ``mase_sum`` and ``mase_count``.

    ``mase_sum`` adds up absolute errors divided by the seasonal error of the rows before the part. ``mase_count``
    counts the observed targets whose seasonal error is known and above 0.
    """
    return ("windows", *sum_names(levels), "mase_sum", "mase_count")


def completed(sums: Tensor, seasonal_errors: Tensor | None) -> Tensor:
    """Make the M sums of a total from the sums `(..., K)` of single windows and channels."""
    names = sum_names(())  # sums of quantile levels come after these
    count, absolute = (sums[..., names.index(name)] for name in ("count", "absolute_original"))
    divisor = torch.full_like(count, torch.nan) if seasonal_errors is None else seasonal_errors.to(EXACT)
    is_known = divisor > 0
    relative = (absolute / divisor).where(is_known, 0.0)
    parts = [torch.ones_like(count), *sums.unbind(-1), relative, count.where(is_known, 0.0)]
    return torch.stack(parts, -1)


def point_forecast(forecast: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the point forecast `(B, T, C)`: the forecast itself, or the median of quantiles `(B, T, C, Q)`.

    Other shapes, which might broadcast to a wrong result, raise UserError.
    """
    if levels and forecast.shape == (*target.shape, len(levels)):
        return forecast[..., list(levels).index(MEDIAN)]
    if forecast.shape != target.shape:
        raise UserError(
            f"a forecast of shape {tuple(forecast.shape)} does not fit targets of shape {tuple(target.shape)} "
            f"and {len(levels)} quantiles"
        )
    return forecast


@torch.no_grad()
def window_errors(
    forecast: Tensor,
    target: Tensor,
    observed: Tensor | None,
    units: tuple[Tensor, Tensor],
    levels: Sequence[float] = (),
    originals: Sequence[Tensor | None] = (None, None),
    *,
    by_step: bool = False,
) -> Tensor:
    """Sum the errors of each window of a batch, `(B, C, K)` float64, see `sum_names`; all tensors are on one device.

    Point and target are compared in original units, where zeros are exact. In scaled units and single precision, equal
    numbers may differ by rounding.

    NaN in a forecast or an observed target makes its sums NaN. With quantile levels, a point forecast is measured as a
    forecast whose quantiles all equal the point; its coverage is NaN.

    Args:
        forecast: `(B, T, C)` in scaled units, or quantiles `(B, T, C, Q)`.
        target: `(B, T, C)` in scaled units, with any value (also NaN) where it is not observed.
        observed: `(B, T, C)` bool; None if all targets are observed.
        units: mean and scale (above 0) of the windows, each `(B, 1, C)` or `(1, 1, C)`, see `Units.of`.
        levels: the Q quantile levels, including the median; none for a point forecast.
        originals: point forecast and target `(B, T, C)` in original units, float64; None if unknown in these units.
        by_step: whether to keep the terms of each step, `(B, T, C, K)`; targets that are not observed add nothing.
    """
    mean, scale = units
    point = point_forecast(forecast, target, levels)
    is_point = forecast.dim() == target.dim()
    original, truth = (
        torch.addcmul(mean, scaled.to(EXACT), scale) if known is None else known
        for scaled, known in zip((point, target), originals, strict=True)
    )
    hidden = None if observed is None else ~observed

    def summed(values: Tensor, left_out: Tensor | None = hidden) -> Tensor:
        # in place, as a temporary of this size costs more than the computation
        values = values if left_out is None else values.masked_fill_(left_out, 0.0)
        return values if by_step else values.sum(1)

    def in_units(scaled: Tensor, factor: Tensor) -> Tensor:
        # a channel without observed values may have no scale
        return (scaled * factor).where(count > 0, 0.0)

    count = summed(torch.ones_like(target, dtype=torch.long) if observed is None else observed, None)
    unit = scale if by_step else scale[:, 0]
    distance = (original - truth).abs_()
    error = distance / scale
    absolute, squared = summed(error.clone() if by_step else error), summed(error.square_())
    sizes = truth.abs()
    both = original.abs().add_(sizes)
    has_no_term = both == 0 if hidden is None else (both == 0).logical_or_(hidden)
    sums = [count, squared, absolute, in_units(squared, unit.square()), in_units(absolute, unit), summed(sizes)]
    sums += [2 * summed(distance.div_(both), has_no_term), summed(~has_no_term, None)]

    if levels:
        point, target = (original / scale, truth / scale) if is_point else (point, target.to(EXACT))
    terms = [summed(term) for term in _level_terms(point if is_point else forecast, target, levels, is_point)]
    own = 2 * len(levels)
    pinball, below, inside = terms[:own:2], terms[1:own:2], terms[own:]
    sums += [*pinball, *(in_units(loss, unit) for loss in pinball), *below, *inside]
    return torch.stack([part.to(EXACT) for part in sums], -1)


def _level_terms(forecast: Tensor, target: Tensor, levels: Sequence[float], is_point: bool) -> Iterator[Tensor]:
    """Yield loss and coverage of each level, then coverage of each interval; one by one, to save memory."""
    for number, level in enumerate(levels):
        quantile = forecast if is_point else forecast[..., number].to(EXACT)
        yield quantile_loss(quantile[..., None], target, (level,))[..., 0]
        yield _share(target <= quantile, is_point, quantile, target)
    for _, low, high in central_intervals(levels):
        bounds = (forecast, forecast) if is_point else (forecast[..., low].to(EXACT), forecast[..., high].to(EXACT))
        yield _share((bounds[0] <= target) & (target <= bounds[1]), is_point, *bounds, target)


def _share(covered: Tensor, undefined: bool, *compared: Tensor) -> Tensor:
    """1 where covered, 0 where not, NaN where a compared value is NaN (which would count as not covered)."""
    if undefined:
        return torch.full_like(compared[0], torch.nan)
    unknown = reduce(torch.logical_or, (part.isnan() for part in compared))
    return covered.to(EXACT).masked_fill(unknown, torch.nan)


def step_totals(
    forecast: Tensor,
    target: Tensor,
    observed: Tensor | None,
    units: tuple[Tensor, Tensor],
    levels: Sequence[float],
    originals: Sequence[Tensor | None],
    seasonal_errors: Tensor,
) -> Tensor:
    """Total the errors of a batch at each step, `(T, C, M)` float64; each window counts at every step.

    The arguments are as in `window_errors`; `seasonal_errors (B, C)` are in original units, NaN if unknown.
    """
    B, T, C = target.shape
    some = max(1, _AT_ONCE // max(1, B * C))
    parts = []
    for first in range(0, T, some):
        steps = slice(first, first + some)
        seen, *known = (None if values is None else values[:, steps] for values in (observed, *originals))
        sums = window_errors(forecast[:, steps], target[:, steps], seen, units, levels, known, by_step=True)
        parts.append(completed(sums, seasonal_errors[:, None]).sum(0))
    return torch.cat(parts)


def quantile_loss(forecast: Tensor, target: Tensor, levels: Sequence[float]) -> Tensor:
    """Twice the pinball loss of every quantile, which is the absolute error at the median.

    The weighted quantile loss of GluonTS and fev uses this loss. For a level q, a target y `(...)` above the forecast f
    `(..., Q)` costs ``2 q (y - f)``; a target below costs ``2 (1 - q) (f - y)``.
    """
    # half precision would round 0.999 to 1
    level = _levels(tuple(levels), torch.promote_types(forecast.dtype, torch.float32), forecast.device)
    error = target[..., None] - forecast
    return 2 * torch.maximum(level * error, (level - 1) * error)


@lru_cache(maxsize=64)
def _levels(levels: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The levels on a device, copied only once: a copy in each step would delay the host."""
    with torch.inference_mode(False):  # a tensor that validation makes must also serve training
        return torch.tensor(levels, dtype=dtype).to(device)
