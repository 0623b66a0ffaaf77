"""Blocks of tokens by the calendar: which day, week or month each lies in, from time stamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.masks import floor_divide

__all__ = ["CALENDAR_UNITS", "calendar_block_ids"]

HOUR, DAY = 3600, 86_400
MONDAY = 3  # days from a Monday to 1970-01-01, a Thursday


def calendar_block_ids(time: Tensor, units: Sequence[str]) -> Tensor:
    """The block of every token at every level, one calendar unit a level.

    This is the partition that Kuang et al. (ICML 2025, section 4) leave open. Weeks, which begin on Monday, do not nest
    in months, quarters or years: tokens of one week may lie in two months.

    Args:
        time: `(B, S)` int64 time stamps, seconds since 1970-01-01 on the clock of the data.
        units: of `CALENDAR_UNITS`, one a level.

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
"""What a level of blocks may be by the calendar: from seconds to the number of a block."""
