"""Batches of windows as the models of chronos-forecasting take series: one a row, what is missing as NaN.

Chronos-T5 divides a series by the mean of its absolute values, so that its forecasts depend on the level: it is given
original units. The others take mean and deviation away themselves: they are given the scale of the batch, since single
precision has no digits left for the changes of a series far from 0. Where the context of a channel or covariate is one
number they divide by a number of their own, which is meant in original units: there these are kept, counted from that
number.

Shape letters: B windows, C channels, L context, T horizon, P past-only and F known-future covariates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from tsattn.batch import EXACT, Batch, WindowUnits

__all__ = ["ChannelRows", "first_seen", "is_constant"]


@dataclass(frozen=True)
class ChannelRows:
    """The series of windows, in float32, NaN where nothing was observed.

    A context without any observed value says nothing of its level, which a model then takes to be 0, and the spread 1:
    such a channel stays on the scale of the batch, where they are.

    Attributes:
        past: `(B, C, L)`.
        spread: `(B, C)` how far apart the values of a context lie, before they are rounded at a high level; below 0
            without a value.
        units: ``row = scaled * scale + mean``, where ``scaled`` is on the scale of the batch; None where both are one.
        target: `(B, C, T)`, or None beyond the end of the data.
        past_covariates: `(B, P, L)` or None.
        future_covariates: `(B, F, L + T)` or None.
    """

    past: Tensor
    spread: Tensor
    units: WindowUnits | None
    target: Tensor | None = None
    past_covariates: Tensor | None = None
    future_covariates: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, most: int, *, covariates: bool, level: bool) -> ChannelRows:
        """Those of a batch.

        Args:
            batch: its steps at the front in which nothing was observed, no covariate either, are left out, but for one.
            most: the longest context that is of use.
            covariates: whether they are taken, too.
            level: whether forecasts depend on the level, so that channels are given in original units.
        """
        L = batch.past.shape[1]
        start = max(0, L - most)
        units = batch.units
        if units is not None and batch.past_observed is not None:
            seen = batch.past_observed[:, start:].any(1)
            units = WindowUnits(units.mean.where(seen, 0.0), units.scale.where(seen, 1.0))
        context = _by_channel(batch.past, batch.past_observed)[..., start:]
        if not level:
            units = _without_level(context, units)
        spread = (_most(context) - _least(context))[..., 0]
        spread = spread if units is None else spread * units.scale
        past = _channels(batch.past, batch.past_observed, units)
        target = None if batch.target is None else _channels(batch.target, batch.target_observed, units)
        known, ahead = None, None
        if covariates and batch.past_covariates is not None:
            known = _channels(batch.past_covariates, batch.past_covariates_observed)
        if covariates and batch.future_covariates is not None:
            ahead = _channels(batch.future_covariates, batch.future_covariates_observed)
        contexts = [part[..., start:L] for part in (past, known, ahead) if part is not None]
        start += first_seen(torch.cat(contexts, 1).isfinite().flatten(0, 1))
        if known is not None:
            scale = None if batch.units is None else batch.units.past_covariate_scale
            known = _from_constant(known[..., start:], L - start, scale)
        if ahead is not None:
            scale = None if batch.units is None else batch.units.future_covariate_scale
            ahead = _from_constant(ahead[..., start:], L - start, scale)
        return cls(past[..., start:], spread, units, target, known, ahead)

    @property
    def by_channel(self) -> Tensor:
        """`(B * C, L)` contexts."""
        return self.past.flatten(0, 1).contiguous()

    def on_batch_scale(self, forecast: Tensor, batch: Batch) -> Tensor:
        """A forecast `(B, C, T, Q)` of these rows as `(B, T, C, Q)` on the scale of their batch, in its precision."""
        forecast = rearrange(forecast.to(batch.past.device), "B C T Q -> B T C Q")
        if self.units is not None:
            forecast = self.units.normalise(forecast)
        return forecast.to(batch.past.dtype)


def is_constant(context: Tensor) -> Tensor:
    """`(..., 1)`: whether all values `(..., L)` that are not missing are one number, and there is one."""
    return _least(context) == _most(context)


def first_seen(observed: Tensor) -> int:
    """The first step at which a series of `observed (R, L)` was observed; the last step if none ever was."""
    seen = observed.any(0)
    return int(seen.int().argmax()) if bool(seen.any()) else len(seen) - 1


def _without_level(context: Tensor, units: WindowUnits | None) -> WindowUnits:
    """The `units` of rows for which only changes count, whose contexts `(B, C, L)` are on the scale of the batch."""
    is_flat = is_constant(context)[..., 0]
    scale = 1.0 if units is None else units.scale
    scale = torch.where(is_flat, scale, torch.ones_like(context[..., 0], dtype=EXACT))
    return WindowUnits(torch.where(is_flat, -_least(context)[..., 0] * scale, 0.0), scale)


def _least(context: Tensor) -> Tensor:
    """`(..., 1)` the least of the values `(..., L)` that are not missing."""
    return context.nan_to_num(nan=torch.inf).amin(-1, keepdim=True)


def _most(context: Tensor) -> Tensor:
    """`(..., 1)` the greatest of them."""
    return context.nan_to_num(nan=-torch.inf).amax(-1, keepdim=True)


def _from_constant(covariates: Tensor, length: int, scale: Tensor | None) -> Tensor:
    """Covariates `(B, P, L)` whose first `length` steps are one number, as channels are: in original units from it on.

    Args:
        covariates: on the scale of the batch, as the others are left.
        length: of the context.
        scale: `(B, P)` which leads to original units; None where it is not known.
    """
    context = covariates[..., :length]
    counted = covariates - _least(context)
    if scale is not None:
        counted = (counted.to(EXACT) * scale[..., None]).to(covariates.dtype)
    return torch.where(is_constant(context), counted, covariates)


def _channels(values: Tensor, observed: Tensor | None, units: WindowUnits | None = None) -> Tensor:
    """Values `(B, L, C)` in units as `(B, C, L)`."""
    return _by_channel(values if units is None else units.restore(values), observed).float()


def _by_channel(values: Tensor, observed: Tensor | None) -> Tensor:
    """Values `(B, L, C)` as `(B, C, L)`, NaN where they are missing."""
    if observed is not None:
        values = torch.where(observed, values, torch.nan)
    return rearrange(values, "B L C -> B C L")
