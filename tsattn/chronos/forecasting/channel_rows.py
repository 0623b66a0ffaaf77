"""Batches of windows as the models of chronos-forecasting take series: one a row, what is missing as NaN.

Channels are given in original units, as the pipelines have them: Chronos-T5 looks at the level of a series, and for the
others forecasts are those of the pipeline to the last digits.

Shape letters: B windows, C channels, L context, T horizon, P past-only and F known-future covariates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from tsattn.batch import Batch, WindowUnits

__all__ = ["ChannelRows", "first_seen", "is_constant"]


@dataclass(frozen=True)
class ChannelRows:
    """The series of windows, in float32, NaN where nothing was observed.

    A context without any observed value says nothing of its level, which a model then takes to be 0, and the spread 1:
    such a channel stays on the scale of the batch, where they are.

    Attributes:
        past: `(B, C, L)`.
        units: of the channels, which lead back to the scale of the batch; None where that is theirs.
        target: `(B, C, T)`, or None beyond the end of the data.
        past_covariates: `(B, P, L)` or None.
        future_covariates: `(B, F, L + T)` or None.
    """

    past: Tensor
    units: WindowUnits | None
    target: Tensor | None = None
    past_covariates: Tensor | None = None
    future_covariates: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, most: int, *, covariates: bool) -> ChannelRows:
        """Those of a batch.

        Args:
            batch: its steps at the front in which nothing was observed, no covariate either, are left out, but for one.
            most: the longest context that is of use.
            covariates: whether they are taken, too.
        """
        L = batch.past.shape[1]
        start = max(0, L - most)
        units = batch.units
        if units is not None and batch.past_observed is not None:
            seen = batch.past_observed[:, start:].any(1)
            units = WindowUnits(units.mean.where(seen, 0.0), units.scale.where(seen, 1.0))
        past = _channels(batch.past, batch.past_observed, units)
        target = None if batch.target is None else _channels(batch.target, batch.target_observed, units)
        known, ahead = None, None
        if covariates and batch.past_covariates is not None:
            known = _channels(batch.past_covariates, batch.past_covariates_observed)
        if covariates and batch.future_covariates is not None:
            ahead = _channels(batch.future_covariates, batch.future_covariates_observed)
        contexts = [part[..., start:L] for part in (past, known, ahead) if part is not None]
        start += first_seen(torch.cat(contexts, 1).isfinite().flatten(0, 1))
        known, ahead = (
            None if part is None else _from_constant(part[..., start:], L - start) for part in (known, ahead)
        )
        return cls(past[..., start:], units, target, known, ahead)

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
    low = context.nan_to_num(nan=torch.inf).amin(-1, keepdim=True)
    return low == context.nan_to_num(nan=-torch.inf).amax(-1, keepdim=True)


def first_seen(observed: Tensor) -> int:
    """The first step at which a series of `observed (R, L)` was observed; the last step if none ever was."""
    seen = observed.any(0)
    return int(seen.int().argmax()) if bool(seen.any()) else len(seen) - 1


def _from_constant(covariates: Tensor, length: int) -> Tensor:
    """Covariates `(B, P, L)` counted from what each is throughout the first `length` steps, where it is one number.

    A model takes the mean away and divides by the deviation. Of a flag that is 0 throughout these are 0 and 0; of the
    same flag as it is scaled, what rounding makes of them.
    """
    context = covariates[..., :length]
    low = context.nan_to_num(nan=torch.inf).amin(-1, keepdim=True)
    return torch.where(is_constant(context), covariates - low, covariates)


def _channels(values: Tensor, observed: Tensor | None, units: WindowUnits | None = None) -> Tensor:
    """Values `(B, L, C)` in units as `(B, C, L)`."""
    values = (values if units is None else units.restore(values)).float()
    if observed is not None:
        values = torch.where(observed, values, torch.nan)
    return rearrange(values, "B L C -> B C L")
