"""Convert the batches of tsattn to series for models of chronos-forecasting.

The models take one series per row, with NaN for missing values. Chronos-T5 reads the level, so it gets original units.
The others standardise each context. They get the scale of the batch, because single precision would lose the changes
of a series far from 0. They divide a constant context by a constant in original units, so constant contexts are
passed in original units, minus their value.

Shape letters: B windows, C channels, L context, T horizon, P past-only and F known-future covariates, Q levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from tsattn.batch import EXACT, Batch, WindowUnits


@dataclass(frozen=True)
class ChannelRows:
    """The series of windows, in float32, with NaN for missing values.

    A channel without values stays on the scale of the batch. There its level is 0 and its spread 1, as a model assumes
    for an empty context.

    Attributes:
        past: `(B, C, L)`.
        spread: `(B, C)` the range of a context, before it is rounded to float32; below 0 without values.
        units: ``row = scaled * scale + mean``, with ``scaled`` on the scale of the batch; None if the two are equal.
        target: `(B, C, T)`; T is 0 beyond the end of the data.
        past_covariates: `(B, P, L)` or None.
        future_covariates: `(B, F, L + T)` or None.
    """

    past: Tensor
    spread: Tensor
    units: WindowUnits | None
    target: Tensor
    past_covariates: Tensor | None = None
    future_covariates: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, most: int, *, covariates: bool, level: bool) -> ChannelRows:
        """Take the last `most` steps of a batch's series, without leading steps at which no series was observed.

        `level` is for models whose forecasts depend on the level: their channels are in original units.
        """
        L = batch.past.shape[1]
        start = max(0, L - most)
        units = batch.units
        if units is not None and batch.past_observed is not None:
            seen = batch.past_observed[:, start:].any(1)
            units = WindowUnits(units.mean.where(seen, 0.0), units.scale.where(seen, 1.0))
        context = _by_channel(batch.past, batch.past_observed)[..., start:]
        if not level:
            # the scale of the batch; but a constant channel in original units, minus its value
            is_flat = is_constant(context)[..., 0]
            sizes = torch.where(
                is_flat, 1.0 if units is None else units.scale, torch.ones_like(context[..., 0], dtype=EXACT)
            )
            units = WindowUnits(torch.where(is_flat, -_least(context)[..., 0] * sizes, 0.0), sizes)
        spread = (_most(context) - _least(context))[..., 0]
        spread = spread if units is None else spread * units.scale
        values = batch.past, batch.past[:, :0] if batch.target is None else batch.target
        past, target = (part if units is None else units.restore(part) for part in values)
        past = _by_channel(past, batch.past_observed).float()
        target = _by_channel(target, None if batch.target is None else batch.target_observed).float()
        known, ahead = (
            None if part is None or not covariates else _by_channel(part, observed).float()
            for part, observed in (
                (batch.past_covariates, batch.past_covariates_observed),
                (batch.future_covariates, batch.future_covariates_observed),
            )
        )
        contexts = [part[..., start:L] for part in (past, known, ahead) if part is not None]
        seen = torch.cat(contexts, 1).isfinite().flatten(0, 1).any(0)  # (L,), True where any series was observed
        start += int(seen.int().argmax()) if bool(seen.any()) else len(seen) - 1
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
        """Map a forecast `(B, C, T, Q)` of these rows to `(B, T, C, Q)` on the scale of their batch."""
        forecast = rearrange(forecast.to(batch.past.device), "B C T Q -> B T C Q")
        if self.units is not None:
            forecast = self.units.normalise(forecast)
        return forecast.to(batch.past.dtype)


def is_constant(context: Tensor) -> Tensor:
    """`(..., 1)`: whether the values `(..., L)` are all equal where not missing, and not all are missing."""
    return _least(context) == _most(context)


def _least(context: Tensor) -> Tensor:
    return context.nan_to_num(nan=torch.inf).amin(-1, keepdim=True)


def _most(context: Tensor) -> Tensor:
    return -_least(-context)


def _from_constant(covariates: Tensor, length: int, scale: Tensor | None) -> Tensor:
    """Convert covariates `(B, P, L)` that are constant over `length` steps to original units, minus the constant.

    Other covariates stay on the scale of the batch. `scale (B, P)` converts to original units; None if unknown.
    """
    context = covariates[..., :length]
    counted = covariates - _least(context)
    if scale is not None:
        counted = (counted.to(EXACT) * scale[..., None]).to(covariates.dtype)
    return torch.where(is_constant(context), counted, covariates)


def _by_channel(values: Tensor, observed: Tensor | None) -> Tensor:
    """Convert values `(B, L, C)` to `(B, C, L)`, with NaN for missing values."""
    if observed is not None:
        values = torch.where(observed, values, torch.nan)
    return rearrange(values, "B L C -> B C L")
