"""Blocks of tokens of one length, taken out of a tensor and put back, without a copy where they are evenly spaced."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["add", "even_step", "put", "take"]


def take(t: Tensor, starts: Sequence[int], length: int) -> Tensor:
    """The blocks of `t (Z, T, W)` that begin at `starts`, `(Z, n, length, W)`: a view where they are evenly spaced."""
    step = even_step(starts)
    if step is None:
        rows = torch.tensor(starts, device=t.device)[:, None] + torch.arange(length, device=t.device)
        return t[:, rows]
    z, s, w = t.stride()
    return t.as_strided(
        (t.shape[0], len(starts), length, t.shape[2]), (z, step * s, s, w), t.storage_offset() + starts[0] * s
    )


def put(t: Tensor, starts: Sequence[int], length: int, values: Tensor) -> None:
    """Write `values (Z, n, length, W)` into the blocks of `t (Z, T, W)` that begin at `starts`."""
    if even_step(starts) is not None:
        take(t, starts, length).copy_(values)
    else:
        for i, start in enumerate(starts):
            t[:, start : start + length] = values[:, i]


def add(t: Tensor, starts: Sequence[int], values: Tensor) -> None:
    """Add `values (Z, n, length, W)` to the blocks of `t (Z, T, W)` that begin at `starts`."""
    length = values.shape[2]
    if even_step(starts) is not None:
        take(t, starts, length).add_(values)
    else:
        for i, start in enumerate(starts):
            t[:, start : start + length] += values[:, i]


def even_step(starts: Sequence[int]) -> int | None:
    """The distance of evenly spaced starts; None if they are not."""
    if len(starts) == 1:
        return 1
    step = starts[1] - starts[0]
    return step if all(b - a == step for a, b in pairwise(starts)) else None
