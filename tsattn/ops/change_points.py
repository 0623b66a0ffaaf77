"""Blocks of tokens found from their values: cut where the level of the series changes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["change_point_block_ids"]

# Values are rounded to this part of the range of their row and channel. Whole numbers of it, and their squares, have
# exact sums over a million steps: the same in any order, so on any device and in any batch.
PARTS = 2**21


@torch.no_grad()
def change_point_block_ids(values: Tensor, numbers: Sequence[int], counts: Tensor | None = None) -> Tensor:
    """The block of every token at every level, cut where the mean of the values changes most.

    Each row is cut by binary segmentation (Scott and Knott, *A Cluster Analysis Method for Grouping Means in the
    Analysis of Variance*, Biometrics 1974): of all places where one more cut could be made, the one is taken that
    lowers the sum of squared distances of the values to the means of their blocks most. A level of n blocks has the
    first n - 1 cuts: levels nest, each cut is the best one after those before it, and blocks have any length; another
    set of n - 1 cuts may be better as a whole. This is a partition as Kuang et al. (ICML 2025, section 4) leave to
    others. Time and memory of a cut are linear in the tokens; gradients do not pass.

    The squared distances of a channel count as a share of those of the undivided row, summed over channels: its level
    and scale decide nothing. A block begins with an observed token: tokens of which nothing is observed lie in the
    block of the token before, and those in front of the first observed one in the first block. Of cuts that are equal
    in float32 the earliest is made, and none that lowers nothing: a constant row is one block.

    Args:
        values: `(B, S, C)`: of each token and channel the mean of its observed steps.
        numbers: of blocks at each level, coarse to fine, none below the one before. Rows may have fewer.
        counts: `(B, S, C)` int: of how many steps each is the mean, 0 where none is observed; 1 by default.

    Returns:
        `(L, B, S)` int64; ids rise with time, from 0 in each row.
    """
    if not values.shape[1]:
        return torch.zeros(len(numbers), *values.shape[:2], dtype=torch.int64, device=values.device)
    real = torch.float32 if values.device.type == "mps" else torch.float64  # which has no wider type
    weights = values.isfinite().long()
    weights = weights if counts is None else weights * counts
    parts = _parts(values.to(real), weights)
    sums, counted = _sums_before(weights * parts), _sums_before(weights)
    squares = (weights * parts.square()).sum(1, keepdim=True).to(real)
    whole = squares - sums[:, -1:].to(real).square() / counted[:, -1:].clamp(min=1)
    place = torch.arange(values.shape[1], device=values.device).expand(values.shape[:2])  # of a cut before each token
    cuttable = (weights > 0).any(-1)
    first, end = torch.zeros_like(place), torch.full_like(place, values.shape[1])  # of the block of each token
    cuts = [torch.zeros_like(place)]
    for _ in range(1, max(numbers)):
        left, right = (
            (_at(sums, last) - _at(sums, begin), _at(counted, last) - _at(counted, begin))
            for begin, last in ((first, place), (place, end))
        )
        difference = _mean(*left, real) - _mean(*right, real)
        # 0 where one side has nothing
        shared = left[1].to(real) * right[1].to(real) / (left[1] + right[1]).clamp(min=1)
        gains = (difference.square() * shared / whole.clamp(min=1)).sum(-1).float()
        gains = torch.where(cuttable & (place > first), gains, 0.0)
        cut = gains.argmax(-1, keepdim=True)  # the first of the largest
        inside = (gains.gather(1, cut) > 0) & (place >= first.gather(1, cut)) & (place < end.gather(1, cut))
        later = inside & (place >= cut)
        first, end = torch.where(later, cut, first), torch.where(inside & ~later, cut, end)
        cuts.append(cuts[-1] + ((gains.gather(1, cut) > 0) & (place >= cut)))
    return torch.stack([cuts[number - 1] for number in numbers])


def _parts(values: Tensor, weights: Tensor) -> Tensor:
    """The values of each row and channel in `PARTS` of their range, `(B, S, C)` int64; 0 where nothing is observed."""
    observed = weights > 0
    low, high = (values.masked_fill(~observed, bound) for bound in (torch.inf, -torch.inf))
    low, high = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
    share = torch.where(observed & (high > low), (values - low) / (high - low), 0.0)
    return (share * PARTS).round().long()


def _sums_before(numbers: Tensor) -> Tensor:
    """`(B, S + 1, C)`: the sums of `(B, S, C)` up to before each token, and of all."""
    return F.pad(numbers.cumsum(1), (0, 0, 1, 0))


def _at(sums: Tensor, place: Tensor) -> Tensor:
    """The sums `(B, S + 1, C)` before each token of `place (B, S)`."""
    return sums.gather(1, place[..., None].expand(-1, -1, sums.shape[2]))


def _mean(sums: Tensor, counted: Tensor, dtype: torch.dtype) -> Tensor:
    return sums.to(dtype) / counted.clamp(min=1)
