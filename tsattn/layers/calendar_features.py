"""Where a time stamp lies in its day, its week and its year, as numbers that a model can read."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor

from tsattn.errors import UserError
from tsattn.ops.data_blocks import CALENDAR_UNITS, DAY, MONDAY
from tsattn.ops.masks import floor_divide

__all__ = ["CalendarFeatures"]


class CalendarFeatures:
    """Sine and cosine of the time of day, the day of the week and the time of year.

    A cycle is used only where it holds two steps or more, as it would not vary otherwise: all three for steps of hours
    and minutes, week and year for days and business days, the year for weeks, months and quarters.

    Args:
        frequency: pandas frequency of the time stamps.

    Attributes:
        names: of the features, such as ``sine of the year``.
        count: K, the number of features: two for each cycle.

    Raises:
        UserError: for a frequency of years, or of steps.
    """

    def __init__(self, frequency: str) -> None:
        if frequency.isdecimal():
            raise UserError("calendar features need time stamps, and the series count steps; leave calendar false")
        stamps = pd.date_range("2001-01-01", periods=3, freq=frequency)
        step = (stamps[1:] - stamps[:-1]).min()
        cycles = [cycle for cycle in _CYCLES if 2 * step <= pd.Timedelta(cycle[0], "D")]
        self.phases = [phase for _, _, phase in cycles]
        self.names = [f"{wave} of the {name}" for _, name, _ in cycles for wave in ("sine", "cosine")]
        self.count = len(self.names)
        if not self.phases:
            raise UserError(
                f"calendar features need two or more steps a year, and the frequency is {frequency!r}; leave calendar "
                "false"
            )

    def __call__(self, time: Tensor, dtype: torch.dtype) -> Tensor:
        """The features `(..., K)`, as `dtype`, of int64 time stamps `(...)` in seconds since 1970-01-01."""
        # half precision would not tell the hours of a year apart
        angles = [2 * math.pi * phase(time, torch.promote_types(dtype, torch.float32)) for phase in self.phases]
        return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], -1).to(dtype)


def _time_of_day(time: Tensor, dtype: torch.dtype) -> Tensor:
    return (time % DAY).to(dtype) / DAY


def _day_of_week(time: Tensor, dtype: torch.dtype) -> Tensor:
    """Sevenths, 0 all Monday: whole days, so that a linear map tells weekends from working days."""
    return ((CALENDAR_UNITS["day"](time) + MONDAY) % 7).to(dtype) / 7


def _time_of_year(time: Tensor, dtype: torch.dtype) -> Tensor:
    """The part of the calendar year that is over; leap years are longer."""
    year = CALENDAR_UNITS["year"](time)
    start = _new_year(year)
    return (time - start).to(dtype) / (_new_year(year + 1) - start).to(dtype)


def _new_year(year: Tensor) -> Tensor:
    """Seconds from 1970-01-01 to the first of January of a year."""
    before = year - 1
    leap_days, until_1970 = floor_divide(before, 4) - floor_divide(before, 100) + floor_divide(before, 400), 477
    return DAY * (365 * (year - 1970) + leap_days - until_1970)


_Phase = Callable[[Tensor, torch.dtype], Tensor]

# days in a cycle, its name, and how far a time stamp is in it, from 0 to 1
_CYCLES: tuple[tuple[int, str, _Phase], ...] = (
    (1, "day", _time_of_day),
    (7, "week", _day_of_week),
    (365, "year", _time_of_year),
)
