"""Linear maps of a context, one for each channel, that a closed form has solved for.

Shape letters: B windows, C channels, L context length, T prediction length, F columns of the season's waves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import UserError


class LinearMaps(nn.Module):
    """Maps of the context minus its last value, and of the season's waves at the origin.

    Buffers of a saved state may have other sizes than those it is loaded into.
    """

    weight: Tensor  # (C or 1, L, T), of windows minus their last values
    waves: Tensor  # (C or 1, F, T)
    period: Tensor  # of the season, in the unit of `Batch.time`

    def moves(self, batch: Batch) -> Tensor:
        """The forecast minus the last value, `(B, T, C)`, of windows of L steps; in the dtype of the maps."""
        past = batch.past.to(self.weight.dtype)
        level = past[:, -1:]
        if batch.past_observed is not None:
            counted = batch.past_observed.long().cumsum(1)  # steps before the first known value say nothing
            past = torch.where((counted > 0) | (counted[:, -1:] == 0), past, level)
        device = past.device.type
        with nullcontext() if device == "meta" else torch.autocast(device, enabled=False):  # maps are not to be rounded
            moves = ((past - level).permute(2, 0, 1) @ self.weight).permute(1, 2, 0)
            if not self.reads_time:
                return moves
            if batch.time is None:
                raise UserError("this ridge uses the calendar and needs time stamps: give batches with time")
            columns = wave_columns(batch.time[:, past.shape[1]], self.period, self.waves.shape[1])
            return moves + torch.einsum("bf,cft->btc", columns.to(past.dtype), self.waves)

    @property
    def reads_time(self) -> bool:
        """Whether forecasts depend on time stamps."""
        return self.waves.shape[1] > 0

    @override
    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *others: Any) -> None:
        for name, own in self.named_buffers(recurse=False):
            given = state_dict.get(prefix + name, own)
            if given.dim() == own.dim() and given.shape != own.shape:
                setattr(self, name, own.new_empty(given.shape))
        super()._load_from_state_dict(state_dict, prefix, *others)


def wave_columns(time: Tensor, period: Tensor, count: int) -> Tensor:
    """A constant, and sines and cosines of times `(n,)` in a season, `(n, F)`, float64 where the device has it."""
    period, exact = period.clamp(min=1), torch.float32 if time.device.type == "mps" else torch.float64
    turn = torch.remainder(time, period).to(exact) * (2 * math.pi) / period
    waves = [wave(number * turn) for number in range(1, count // 2 + 1) for wave in (torch.sin, torch.cos)]
    return torch.stack([torch.ones_like(turn), *waves], -1)[:, :count]
