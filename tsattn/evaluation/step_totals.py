"""Totals of errors by step of the horizon, of the same windows as those of the whole horizon."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tsattn.evaluation.totals import completed
from tsattn.evaluation.window_errors import window_errors

__all__ = ["step_totals"]

_AT_ONCE = 1 << 18  # values of a forecast that are measured together


@torch.no_grad()
def step_totals(
    forecast: Tensor,
    target: Tensor,
    observed: Tensor | None,
    units: tuple[Tensor, Tensor],
    seasonal_errors: Tensor,
    levels: Sequence[float] = (),
    originals: tuple[Tensor | None, Tensor | None] = (None, None),
) -> Tensor:
    """The totals of a batch for each step: what `window_errors` says of windows that are a step long.

    Args:
        forecast: `(B, T, C)` on the scaled axis; with quantiles `(B, T, C, Q)`.
        target: `(B, T, C)` on the scaled axis.
        observed: `(B, T, C)` bool; None if all is observed.
        units: mean and scale of the windows, two `(B, 1, C)` or `(1, 1, C)`.
        seasonal_errors: `(B, C)` in original units, what MASE divides by, NaN where it is unknown.
        levels: the Q quantile levels; none for a point forecast.
        originals: as for `window_errors`.

    Returns:
        `(T, C, M)` float64, see `total_names`; each window counts at every step.
    """
    B, T, C = target.shape
    some = max(1, _AT_ONCE // max(1, B * C))
    parts = []
    for first in range(0, T, some):
        part = slice(first, min(T, first + some))
        t = part.stop - first

        def alone(values: Tensor, t: int = t) -> Tensor:
            """`(B, t, ...)` as windows of one step, `(B * t, 1, ...)`."""
            return values.expand(B, t, *values.shape[2:]).reshape(B * t, 1, *values.shape[2:])

        seen = None if observed is None else alone(observed[:, part])
        mean, scale = (alone(unit) for unit in units)
        point, truth = (None if one is None else alone(one[:, part]) for one in originals)
        scaled = alone(forecast[:, part]), alone(target[:, part])
        errors = window_errors(*scaled, seen, (mean, scale), levels, (point, truth))
        totals = completed(errors.sums, alone(seasonal_errors[:, None])[:, 0])
        parts.append(totals.view(B, t, C, -1).sum(0))
    return torch.cat(parts)
