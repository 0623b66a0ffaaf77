"""The grid of time stamps that a frequency allows: where a stamp lies on it, and which stamps are missing.

A stamp is split into a *coordinate*, its number on the grid, and a *phase*, which tells grids of the same frequency
apart: series on the hour and on the half hour are both hourly, the 1st and the 15th of each month both monthly. The
stamps of a regular series share one phase, and their coordinates rise by 1. Steps are stamps, too.
"""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from numbers import Integral

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from tsattn.data.frequency import PHASED, Times, one_time, try_infer_frequency
from tsattn.errors import UserError, shown

__all__ = ["OFF_GRID", "Grid", "counts", "normalise_frequency", "regularity", "usual_frequency", "wall_times"]

OFF_GRID = -1  # the phase of a stamp that is on no grid of the frequency

_DAY = 86_400_000_000_000  # nanoseconds
_UNITS = (
    (3_600_000_000_000, pd.offsets.Hour),
    (60_000_000_000, pd.offsets.Minute),
    (1_000_000_000, pd.offsets.Second),
    (1_000_000, pd.offsets.Milli),
    (1_000, pd.offsets.Micro),
)
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
# as pandas 1 wrote them; pandas 3 refuses them
_OLD_ALIASES = {
    "H": "h",
    "BH": "bh",
    "T": "min",
    "S": "s",
    "M": "ME",
    "BM": "BME",
    "SM": "SME",
    "L": "ms",
    "U": "us",
    "N": "ns",
    "Q": "QE",
    "BQ": "BQE",
    "A": "YE",
    "Y": "YE",
    "BA": "BYE",
    "BY": "BYE",
    "AS": "YS",
    "BAS": "BYS",
}


def normalise_frequency(frequency: str | int | timedelta | pd.offsets.BaseOffset) -> str:
    """A pandas frequency under one name in all versions; the aliases of older versions are understood.

    For example ``15min`` for ``15T``, ``ME`` for ``M``, ``W-SUN`` for ``W``, ``h`` for ``60min``, ``QS-JAN`` for
    ``QS-OCT``, which is the same; ``1`` for series whose time counts steps. Offsets and lengths of time have the name
    that pandas gives them, lengths of time also as text, such as ``1 days 12:00:00``.

    Raises:
        UserError: for anything that is no frequency, or an offset whose name does not say all of it.
    """
    if isinstance(frequency, pd.offsets.BaseOffset):
        frequency = _name_of(frequency)
    elif isinstance(frequency, timedelta):
        frequency = _name_of_length(pd.Timedelta(frequency))
    if isinstance(frequency, bool) or not isinstance(frequency, str | Integral):
        raise UserError(
            f"frequency must be a text such as h, D or MS, or for steps a whole number, not {shown(repr(frequency))}"
        )
    if isinstance(frequency, str) and re.search("day|:|^P", frequency):
        with contextlib.suppress(ValueError):
            frequency = _name_of_length(pd.Timedelta(frequency))
    if (steps := str(frequency)).isdecimal() and int(steps) > 0:
        return str(int(steps))
    frequency = steps
    match = re.fullmatch(r"(\d*)([A-Z]+)(-[A-Z]+)?", frequency)
    text = frequency
    if match and match[2] in _OLD_ALIASES:
        text = match[1] + _OLD_ALIASES[match[2]] + (match[3] or "")
    try:
        offset = to_offset(text)
        step = _fixed_step(offset)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise UserError(
            f"{frequency!r} is not a frequency; valid are those of pandas, such as 15min, h, D, B, W-SUN, MS, QE, YE, "
            "and 1 for whole numbers that count steps"
        ) from error
    if offset.n < 1:
        raise UserError(f"frequency {frequency!r} is not a positive number of units of time")
    if step is not None:
        return str(_widest_unit(step).freqstr)
    # quarters that begin in January also begin in October; pandas 2 and 3 prefer different names
    quarter = re.fullmatch(r"(\d*)(B?Q[SE])-([A-Z]{3})", offset.freqstr)
    if quarter is None:
        return str(offset.freqstr)
    first = "JAN" if quarter[2].endswith("S") else "OCT"
    month = _MONTHS[_MONTHS.index(first) + _MONTHS.index(quarter[3]) % 3]
    return f"{quarter[1]}{quarter[2]}-{month}"


def _name_of(offset: pd.offsets.BaseOffset) -> str:
    """The text of an offset, if it says all of it.

    Raises:
        UserError: for an offset with holidays, hours or parts that no text has.
    """
    name = str(offset.freqstr)
    with contextlib.suppress(ValueError):
        if to_offset(name) == offset:
            return name
    raise UserError(
        f"frequency {shown(repr(offset))} has no name that keeps its holidays, hours or parts; give a text such as B, "
        "bh or W-SUN"
    )


def _name_of_length(length: pd.Timedelta) -> str:
    """Whole days are days of the calendar, as clocks may change in between."""
    days, rest = divmod(length, pd.Timedelta(1, "D"))
    return f"{days}D" if not rest else str(to_offset(length).freqstr)


def usual_frequency(index: Times) -> str:
    """The frequency that stamps with gaps have as a rule; some of them may still be off its grid.

    Regular stamps have the frequency that pandas infers. Otherwise the most frequent step decides: where more than
    three in four stamps have the same time of day it is counted in days, business days, weeks, half months, months,
    quarters or years; else it is a fixed step of time.

    Args:
        index: at least 3 rising time stamps, or steps.
    """
    if not isinstance(index, pd.DatetimeIndex):
        return str(_mode(np.diff(index.to_numpy())))
    return normalise_frequency(_usual_frequency(index))


def _usual_frequency(index: pd.DatetimeIndex) -> str:
    inferred = try_infer_frequency(index)
    if inferred is not None:
        return inferred
    wall = _nanoseconds(index.tz_localize(None))
    at_usual_time = wall % _DAY == _mode(wall % _DAY)
    if 4 * at_usual_time.sum() <= 3 * len(wall):
        return str(_widest_unit(_mode(np.diff(_nanoseconds(index)))).freqstr)
    days = wall[at_usual_time] // _DAY
    usual = _mode(np.diff(days))
    weeks, weekdays = np.divmod(days + 3, 7)  # 1970-01-01 was a Thursday
    if 5 <= usual <= 25 and (half_months := _usual_half_months(days)) is not None:
        return half_months
    if usual >= 28:
        months = _usual_months(days)
        if months is not None:
            return months
    if usual == 1 and weekdays.max() < 5 and weeks[0] != weeks[-1]:
        return "B"
    if usual % 7 == 0:
        return str(to_offset(f"{usual // 7}W-{_WEEKDAYS[_mode(weekdays)]}").freqstr)
    return str(to_offset(f"{usual}D").freqstr)


def regularity(index: Times) -> str:
    """What is to be said of rising time stamps, or steps, that are on no grid: how they are to be.

    No grid lies on the 29th or 30th of months, which not all of them have.
    """
    advice = "time stamps must be regular, though some may be missing"
    if not isinstance(index, pd.DatetimeIndex) or len(index) < 3:
        return advice
    days = wall_times(index) // _DAY
    in_month, months = _days_of_month(days), days.view("M8[D]").astype("M8[M]")
    numbers: NDArray[np.int64] = months.astype(np.int64)
    usual, step = _mode(in_month), _mode(np.diff(numbers))
    lengths = ((months + 1).astype("M8[D]") - months.astype("M8[D]")).astype(np.int64)
    if usual not in (29, 30) or step < 1 or 3 * (in_month == np.minimum(usual, lengths)).sum() <= 2 * len(days):
        return advice
    rhythm = {1: "monthly", 3: "quarterly", 12: "yearly"}.get(step, f"{step} months apart")
    return (
        f"they look {rhythm} on day {usual}, which not every month has: date all of them on the first or on the last "
        "day of their months"
    )


class Grid:
    """Coordinates and phases of time stamps, or of steps.

    Calendar frequencies (days, business days, weeks, months, ...) count on the wall clock of the time zone; fixed
    steps, such as hours, count time itself.

    Args:
        span: stamps whose extent the grid must cover.
        frequency: a pandas frequency, or that of steps.
    """

    def __init__(self, span: Times, frequency: str) -> None:
        self.tz = span.tz if isinstance(span, pd.DatetimeIndex) else None
        self.step: int | None
        if not isinstance(span, pd.DatetimeIndex):
            self.step = int(frequency)
            self._is_time = False
            return
        self._is_time = True
        offset = to_offset(frequency)
        self.step = _fixed_step(offset)
        self.multiple = int(offset.n)
        self._anchors: NDArray[np.int64] = np.empty(0, np.int64)
        self._unit = 1  # of the anchors, in nanoseconds
        self._reach = 0  # units that a stamp may come after its anchor
        if self.step is None:
            wall = span.tz_localize(None)
            first, last = wall.min().normalize(), wall.max().normalize() + pd.Timedelta(1, "D")
            days = PHASED.get(offset.rule_code.split("-")[0], 0)
            if days:
                first = offset.base.rollback(first)
            anchors = _nanoseconds(pd.date_range(first, last, freq=offset.base))
            # business hours are the one calendar frequency shorter than a day
            self._unit = _DAY if not np.any(anchors % _DAY) else 1
            self._anchors = anchors // self._unit
            self._reach = days

    def split(
        self, stamps: Times, time: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Coordinates and phases of stamps within the span, both `(rows,)`; the phase is `OFF_GRID` off the grid.

        Args:
            stamps: the stamps.
            time: their `counts`, if they are at hand.
        """
        if self.step is not None:
            time = counts(stamps) if time is None else time
            coordinates = time // self.step
            phases = coordinates * self.step
            return coordinates, np.subtract(time, phases, out=phases)
        assert isinstance(stamps, pd.DatetimeIndex)
        wall = wall_times(stamps)
        anchor, rest = wall // self._unit, wall % self._unit
        if not len(self._anchors):
            return np.zeros(len(stamps), np.int64), np.full(len(stamps), OFF_GRID)
        number = np.searchsorted(self._anchors, anchor, side="right") - 1
        after = np.where(number < 0, -1, anchor - self._anchors[number.clip(0)])
        found = (number >= 0) & (after >= 0) & (after <= self._reach)
        number = np.where(found, number, np.searchsorted(self._anchors, anchor))
        phase = np.where(found, (after * self._unit + rest) * self.multiple + number % self.multiple, OFF_GRID)
        return (number // self.multiple).astype(np.int64), phase.astype(np.int64)

    def join(self, coordinates: NDArray[np.int64], phases: NDArray[np.int64]) -> Times:
        """The stamps at coordinates within the span: the inverse of `split`, in nanoseconds.

        A wall-clock time that a change of clocks skips is moved to just after the change.
        """
        if self.step is not None and not self._is_time:
            return one_time(pd.Index(coordinates * self.step + phases))
        if self.step is not None:
            index = pd.DatetimeIndex((coordinates * self.step + phases).view("M8[ns]"))
            return pd.DatetimeIndex(index if self.tz is None else index.tz_localize("UTC").tz_convert(self.tz))
        number = coordinates * self.multiple + phases % self.multiple
        wall = self._anchors[number] * self._unit + phases // self.multiple
        index = pd.DatetimeIndex(wall.view("M8[ns]"))
        is_summer = np.zeros(len(index), dtype=bool)
        return pd.DatetimeIndex(index.tz_localize(self.tz, ambiguous=is_summer, nonexistent="shift_forward"))


def wall_times(stamps: pd.DatetimeIndex) -> NDArray[np.int64]:
    """Stamps in nanoseconds of the clock on the wall, `(rows,)`.

    The first moment after a change of clocks stands for the time of day of the other stamps, where the change skips it:
    in Sao Paulo midnight was one o'clock on 2017-10-15. Where there is no other, it stands for the first one skipped.
    """
    wall = _nanoseconds(stamps.tz_localize(None))
    if stamps.tz is None:
        return wall
    skipped_from = _nanoseconds((stamps.as_unit("ns") - pd.Timedelta(1, "ns")).tz_localize(None)) + 1
    is_moved = skipped_from < wall
    if not is_moved.any():
        return wall
    rest = wall % _DAY
    usual = (skipped_from[is_moved] if is_moved.all() else rest[~is_moved]) % _DAY
    usual_wall = wall - rest + _mode(usual)
    stands = is_moved & (rest != _mode(usual)) & (skipped_from <= usual_wall) & (usual_wall < wall)
    return np.where(stands, usual_wall, wall)


def counts(index: Times) -> NDArray[np.int64]:
    """Time stamps as nanoseconds since 1970-01-01 UTC, steps as they are."""
    return _nanoseconds(index) if isinstance(index, pd.DatetimeIndex) else index.to_numpy(dtype=np.int64)


def _fixed_step(offset: pd.offsets.BaseOffset) -> int | None:
    """The length in nanoseconds of hours, minutes and seconds; None for what the calendar decides, days included."""
    if offset.rule_code == "D" or not isinstance(offset, pd.offsets.Tick):
        return None
    return int(pd.Timedelta(offset).as_unit("ns").value)


def _widest_unit(step: int) -> pd.offsets.BaseOffset:
    """A fixed step in hours, minutes, seconds or parts of them, whichever goes without a fraction."""
    for unit, offset in _UNITS:
        if step % unit == 0:
            return offset(step // unit)
    return pd.offsets.Nano(step)


def _usual_months(days: NDArray[np.int64]) -> str | None:
    """The frequency in whole months of days of which most are first or last (business) days of months.

    Or of which most are the same day of the month, up to the 28th, or the same weekday, such as the last Friday.
    """
    span = _index(days[[0, -1]])
    best, on_best = "MS", np.zeros(len(days), dtype=bool)
    first_days = days - _days_of_month(days) + 1
    usual = _mode(_days_of_month(days))
    weekday = _WEEKDAYS[_mode((days + 3) % 7)]
    weekdays = [f"WOM-{week}{weekday}" for week in range(1, 5)]
    if pd.__version__ >= "3":  # which reads the last weekday of a month from text
        weekdays.insert(0, f"LWOM-{weekday}")
    for alias in ("MS", "ME", "BMS", "BME", *weekdays):
        on_grid = Grid(span, alias).split(_index(days))[1] != OFF_GRID
        if alias == "MS":
            on_grid = days - first_days + 1 == usual if usual <= 28 else np.zeros(len(days), dtype=bool)
        if on_grid.sum() > on_best.sum():
            best, on_best = alias, on_grid
    if 2 * on_best.sum() <= len(days) or on_best.sum() < 3:
        return None
    if best in weekdays and 4 * on_best.sum() <= 3 * len(days):
        return None
    if best == "MS":
        days = first_days
    months: NDArray[np.int64] = days[on_best].view("M8[D]").astype("M8[M]").view(np.int64)
    step = _mode(np.diff(months))
    if best in weekdays:
        return f"{step}{best}"
    # pandas knows the names of quarters and years
    return try_infer_frequency(_regular(_index(days[on_best][:1])[0], 8, f"{step}{best}"))


def _usual_half_months(days: NDArray[np.int64]) -> str | None:
    """The frequency of days of which all but a few are two days of each month, if they are so far apart."""
    in_month = _days_of_month(days)
    is_last = _days_of_month(days + 1) == 1
    middles, how_often = np.unique(in_month[~is_last], return_counts=True)
    if is_last.any() and how_often.size and 3 * (is_last.sum() + how_often.max()) > 2 * len(days):
        middle = int(middles[how_often.argmax()])
        if 13 <= middle <= 17 and 4 * is_last.sum() > len(days):
            return f"SME-{middle}"
    pair = np.sort(middles[np.argsort(-how_often, kind="stable")[:2]])
    if len(pair) < 2 or pair[1] > 28 or 3 * np.isin(in_month, pair).sum() <= 2 * len(days):
        return None
    return f"SMS-{pair[1] - pair[0] + 1}"


def _days_of_month(days: NDArray[np.int64]) -> NDArray[np.int64]:
    dates = days.view("M8[D]")
    numbers: NDArray[np.int64] = (dates - dates.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1
    return numbers


def _index(days: NDArray[np.int64]) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(days.view("M8[D]").astype("M8[ns]"))


def _regular(first: pd.Timestamp, length: int, frequency: str) -> pd.DatetimeIndex:
    return pd.date_range(first, periods=length, freq=frequency)


def _nanoseconds(index: pd.DatetimeIndex) -> NDArray[np.int64]:
    return index.as_unit("ns").asi8


def _mode(steps: NDArray[np.int64]) -> int:
    """The most frequent value, the smallest of several."""
    values, counts = np.unique(steps, return_counts=True)
    return int(values[counts.argmax()])
