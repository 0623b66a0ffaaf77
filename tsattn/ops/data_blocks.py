"""Blocks of tokens from the data: by the calendar, from time stamps; by change points, from values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.masks import floor_divide

HOUR, DAY = 3600, 86_400
MONDAY = 3  # days from a Monday to 1970-01-01, a Thursday


def calendar_block_ids(time: Tensor, units: Sequence[str]) -> Tensor:
    """Find the block of every token at every level, with one calendar unit per level.

    This is the partition that Kuang et al. (ICML 2025, section 4) leave open. Weeks, which begin on Monday, do not nest
    in months, quarters or years: tokens of one week may lie in two months.

    Args:
        time: `(B, S)` int64 time stamps, seconds since 1970-01-01 on the clock of the data.
        units: one of `CALENDAR_UNITS` per level.

    Returns:
        `(L, B, S)` int64; ids rise with time, from 0 in each row.

    Raises:
        UserError: for an unknown unit.
    """
    unknown = [unit for unit in units if unit not in CALENDAR_UNITS]
    if unknown:
        raise UserError(f"unknown calendar unit {unknown[0]!r}; valid: {one_of(CALENDAR_UNITS)}")
    ids = torch.stack([CALENDAR_UNITS[unit](time) for unit in units])
    return ids - ids.amin(-1, keepdim=True) if ids.numel() else ids


def _month(time: Tensor) -> Tensor:
    """Months since the year 0 of the Gregorian calendar, counted by the lengths of its cycles."""
    # days since 0000-03-01, so that a leap day ends a year; 400 years have 146,097 days
    days = floor_divide(time, DAY) + 719_468
    era = floor_divide(days, 146_097)
    day = days - era * 146_097
    year = floor_divide(day - floor_divide(day, 1460) + floor_divide(day, 36_524) - floor_divide(day, 146_096), 365)
    day_of_year = day - (365 * year + floor_divide(year, 4) - floor_divide(year, 100))
    # five months from March, or from August, have 153 days
    months = floor_divide(5 * day_of_year + 2, 153)
    return 12 * (400 * era + year) + months + 2


CALENDAR_UNITS: dict[str, Callable[[Tensor], Tensor]] = {
    "all": torch.zeros_like,
    "year": lambda time: floor_divide(_month(time), 12),
    "quarter": lambda time: floor_divide(_month(time), 3),
    "month": _month,
    "week": lambda time: floor_divide(floor_divide(time, DAY) + MONDAY, 7),
    "day": lambda time: floor_divide(time, DAY),
    "hour": lambda time: floor_divide(time, HOUR),
}
"""Calendar units of a level of blocks: each maps seconds to the number of a block."""

# Values are rounded to this fraction of the range of their row and channel. Integers of this size, and their squares,
# have exact sums over a million steps in any order: equal on any device and in any batch.
PARTS = 2**21


@torch.no_grad()
def change_point_block_ids(values: Tensor, numbers: Sequence[int], counts: Tensor | None = None) -> Tensor:
    """Find the block of every token at every level, cut where the mean of the values changes most.

    Each row is cut by binary segmentation (Scott and Knott, *A Cluster Analysis Method for Grouping Means in the
    Analysis of Variance*, Biometrics 1974). Each step adds the cut that most lowers the sum of squared distances of the
    values to their block's mean. A level of n blocks has the first n - 1 cuts, so levels nest and blocks have any
    length. Each cut is the best after the earlier cuts; another set of n - 1 cuts may be better as a whole. Kuang et
    al. (ICML 2025, section 4) leave partitions by values to others. Time and memory of a cut are linear in the tokens;
    gradients do not pass.

    A channel's squared distances are divided by its squared distances in the undivided row, then summed over channels.
    So level and scale of a channel have no influence. A block begins with an observed token. Tokens without
    observations belong to the block of the token before, or to the first block. Among cuts that are equal in float32,
    the earliest is made. A cut that lowers nothing is not made: a constant row is one block. An outlier that outweighs
    the changes of the level becomes a block.

    Args:
        values: `(B, S, C)`: mean of the observed steps of each token and channel.
        numbers: number of blocks at each level, coarse to fine, never decreasing. Rows may have fewer.
        counts: `(B, S, C)` int: number of observed steps in each mean, 0 if none is observed; 1 by default.

    Returns:
        `(L, B, S)` int64; ids rise with time, from 0 in each row.
    """
    if not values.shape[1]:
        return torch.zeros(len(numbers), *values.shape[:2], dtype=torch.int64, device=values.device)
    real = torch.float32 if values.device.type == "mps" else torch.float64  # MPS has no wider type
    weights = values.isfinite().long()
    weights = weights if counts is None else weights * counts
    parts = _parts(values.to(real), weights)
    sums, counted = _running(weights * parts, real), _running(weights, real)
    squares = (weights * parts.square()).sum(1, keepdim=True).to(real)
    share = 1 / (squares - sums[:, -1:].square() / counted[:, -1:].clamp(min=1)).clamp(min=1)
    place = torch.arange(values.shape[1], device=values.device).expand(values.shape[:2])  # of a cut before each token
    cuttable = (weights > 0).any(-1)
    # of each token's block: its first token, the token after its last, and the sums before these
    first, end = torch.zeros_like(place), torch.full_like(place, values.shape[1])
    sums_first, counted_first = torch.zeros_like(sums[:, :-1]), torch.zeros_like(sums[:, :-1])
    sums_end, counted_end = (t[:, -1:].expand_as(sums_first) for t in (sums, counted))
    sums, counted = sums[:, :-1], counted[:, :-1]
    ids = [torch.zeros_like(place)]
    for _ in range(1, max(numbers)):
        left, right = counted - counted_first, counted_end - counted
        gains = (sums - sums_first) / left.clamp(min=1) - (sums_end - sums) / right.clamp(min=1)
        # 0 where one side is empty
        gains = gains.square() * (left * right / (counted_end - counted_first).clamp(min=1) * share)
        gains = torch.where(cuttable & (place > first), gains.sum(-1).float(), 0.0)
        gain, cut = gains.max(-1, keepdim=True)  # the first maximum
        is_later = (gain > 0) & (place >= cut)
        ids.append(ids[-1] + is_later)
        later = is_later & (place < end.gather(1, cut))
        earlier = (gain > 0) & (place < cut) & (place >= first.gather(1, cut))
        first, end = torch.where(later, cut, first), torch.where(earlier, cut, end)
        at_cut = cut[..., None].expand(-1, 1, sums.shape[2])
        sums_cut, counted_cut = sums.gather(1, at_cut), counted.gather(1, at_cut)
        later, earlier = later[..., None], earlier[..., None]
        sums_first, sums_end = torch.where(later, sums_cut, sums_first), torch.where(earlier, sums_cut, sums_end)
        counted_first = torch.where(later, counted_cut, counted_first)
        counted_end = torch.where(earlier, counted_cut, counted_end)
    return torch.stack([ids[number - 1] for number in numbers])


def _parts(values: Tensor, weights: Tensor) -> Tensor:
    """Values in steps of the range of their row and channel over `PARTS`, `(B, S, C)` int64; 0 if not observed."""
    observed = weights > 0
    low, high = (values.masked_fill(~observed, bound) for bound in (torch.inf, -torch.inf))
    low, high = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
    share = torch.where(observed & (high > low), (values - low) / (high - low), 0.0)
    return (share * PARTS).round().long()


def _running(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """`(B, S + 1, C)`: sums of `(B, S, C)` int64 before each token, and the total."""
    return F.pad(numbers.cumsum(1), (0, 0, 1, 0)).to(dtype)
