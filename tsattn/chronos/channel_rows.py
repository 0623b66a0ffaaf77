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

from tsattn.batch import Batch

__all__ = ["ChannelRows", "to_batch_scale"]


@dataclass(frozen=True)
class ChannelRows:
    """The series of windows, in float32.

    Attributes:
        past: `(B, C, L)`.
        target: `(B, C, T)`, or None beyond the end of the data.
        past_covariates: `(B, P, L)` or None.
        future_covariates: `(B, F, L + T)` or None.
    """

    past: Tensor
    target: Tensor | None = None
    past_covariates: Tensor | None = None
    future_covariates: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, most: int, *, covariates: bool) -> ChannelRows:
        """Those of a batch.

        Args:
            batch: its steps at the front in which nothing was observed are left out, but for one.
            most: the longest context that is of use.
            covariates: whether they are taken, too.
        """
        past = _channels(batch.past, batch.past_observed, batch)
        target = None if batch.target is None else _channels(batch.target, batch.target_observed, batch)
        L = past.shape[-1]
        is_seen = past.isfinite().flatten(0, 1).any(0)
        unseen = int(is_seen.int().argmax()) if bool(is_seen.any()) else L - 1
        first = max(L - most, unseen)
        known, ahead = (batch.past_covariates, batch.future_covariates) if covariates else (None, None)
        return cls(
            past[..., first:],
            target,
            None if known is None else rearrange(known[:, first:].float(), "B L P -> B P L"),
            None if ahead is None else rearrange(ahead[:, first:].float(), "B L F -> B F L"),
        )

    @property
    def by_channel(self) -> Tensor:
        """`(B * C, L)` contexts."""
        return self.past.flatten(0, 1).contiguous()


def to_batch_scale(values: Tensor, batch: Batch) -> Tensor:
    """`(B, C, T, Q)` of `ChannelRows` as `(B, T, C, Q)` on the scale of a batch, in its precision."""
    values = rearrange(values.to(batch.past.device), "B C T Q -> B T C Q")
    if batch.units is not None:
        values = batch.units.normalise(values)
    return values.to(batch.past.dtype)


def _channels(values: Tensor, observed: Tensor | None, batch: Batch) -> Tensor:
    values = (values if batch.units is None else batch.units.restore(values)).float()
    if observed is not None:
        values = torch.where(observed, values, torch.nan)
    return rearrange(values, "B L C -> B C L")
