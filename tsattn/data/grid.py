"""The grid of time stamps that a frequency allows: where a stamp lies on it, and which stamps are missing.

A stamp is split into a *coordinate*, its number on the grid, and a *phase*, which tells grids of the same frequency
apart: series on the hour and on the half hour are both hourly. The stamps of a regular series share one phase, and
their coordinates rise by 1.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from tsattn.data.frequency import try_infer_frequency
from tsattn.errors import UserError

__all__ = ["OFF_GRID", "Grid", "normalise_frequency", "usual_frequency"]

OFF_GRID = -1  # the phase of a stamp that is on no grid of the frequency

_DAY = 86_400_000_000_000  # nanoseconds
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
    "Q": "QE",
    "BQ": "BQE",
    "A": "YE",
    "Y": "YE",
    "BA": "BYE",
    "BY": "BYE",
    "AS": "YS",
    "BAS": "BYS",
}


def normalise_frequency(frequency: str) -> str:
    """A pandas frequency under one name in all versions; the aliases of older versions are understood.

    For example ``15min`` for ``15T``, ``ME`` for ``M``, ``W-SUN`` for ``W``, ``h`` for ``60min``, ``QS-JAN`` for
    ``QS-OCT``, which is the same.

    Raises:
        UserError: for anything that is no frequency of a second or longer.
    """
    match = re.fullmatch(r"(\d*)([A-Z]+)(-[A-Z]+)?", frequency)
    text = frequency
    if match and match[2] in _OLD_ALIASES:
        text = match[1] + _OLD_ALIASES[match[2]] + (match[3] or "")
    try:
        offset = to_offset(text)
        step = _fixed_step(offset)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise UserError(
            f"{frequency!r} is not a frequency; valid are those of pandas, such as 15min, h, D, B, W-SUN, MS, QE, YE"
        ) from error
    if offset.n < 1 or (step is not None and step % 1_000_000_000):
        raise UserError(f"frequency {frequency!r} is not a positive number of whole seconds or calendar units")
    if step is not None:
        return str(_widest_unit(step).freqstr)
    # quarters that begin in January also begin in October; pandas 2 and 3 prefer different names
    quarter = re.fullmatch(r"(\d*)(B?Q[SE])-([A-Z]{3})", offset.freqstr)
    if quarter is None:
        return str(offset.freqstr)
    first = "JAN" if quarter[2].endswith("S") else "OCT"
    month = _MONTHS[_MONTHS.index(first) + _MONTHS.index(quarter[3]) % 3]
    return f"{quarter[1]}{quarter[2]}-{month}"


def usual_frequency(index: pd.DatetimeIndex) -> str:
    """The frequency that stamps with gaps have as a rule; some of them may still be off its grid.

    Regular stamps have the frequency that pandas infers. Otherwise the most frequent step decides: where more than
    three in four stamps have the same time of day it is counted in days, business days, weeks, months, quarters or
    years; else it is a fixed step of time.

    Args:
        index: at least 3 rising time stamps.

    Raises:
        UserError: for steps of fractions of a second.
    """
    return normalise_frequency(_usual_frequency(index))


def _usual_frequency(index: pd.DatetimeIndex) -> str:
    inferred = try_infer_frequency(index)
    if inferred is not None and index.equals(_regular(index[0], len(index), inferred)):
        return inferred
    wall = _nanoseconds(index.tz_localize(None))
    at_usual_time = wall % _DAY == _mode(wall % _DAY)
    if 4 * at_usual_time.sum() <= 3 * len(wall):
        return str(_widest_unit(_mode(np.diff(_nanoseconds(index)))).freqstr)
    days = wall[at_usual_time] // _DAY
    usual = _mode(np.diff(days))
    weeks, weekdays = np.divmod(days + 3, 7)  # 1970-01-01 was a Thursday
    if usual >= 28:
        months = _usual_months(days)
        if months is not None:
            return months
    if usual == 1 and weekdays.max() < 5 and weeks[0] != weeks[-1]:
        return "B"
    if usual % 7 == 0:
        return str(to_offset(f"{usual // 7}W-{_WEEKDAYS[_mode(weekdays)]}").freqstr)
    return str(to_offset(f"{usual}D").freqstr)


class Grid:
    """Coordinates and phases of time stamps.

    Calendar frequencies (days, business days, weeks, months, ...) count on the wall clock of the time zone; fixed
    steps, such as hours, count time itself.

    Args:
        span: stamps whose extent the grid must cover.
        frequency: a pandas frequency.
    """

    def __init__(self, span: pd.DatetimeIndex, frequency: str) -> None:
        offset = to_offset(frequency)
        self.tz = span.tz
        self.step = _fixed_step(offset)
        self.multiple = int(offset.n)
        self._anchors: NDArray[np.int64] = np.empty(0, np.int64)
        self._unit = 1  # of the anchors, in nanoseconds
        if self.step is None:
            wall = span.tz_localize(None)
            first, last = wall.min().normalize(), wall.max().normalize() + pd.Timedelta(1, "D")
            anchors = _nanoseconds(pd.date_range(first, last, freq=offset.base))
            # business hours are the one calendar frequency shorter than a day
            self._unit = _DAY if not np.any(anchors % _DAY) else 1
            self._anchors = anchors // self._unit

    def split(self, stamps: pd.DatetimeIndex) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Coordinates and phases of stamps within the span, both `(rows,)`; the phase is `OFF_GRID` off the grid."""
        if self.step is not None:
            time = _nanoseconds(stamps)
            return time // self.step, time % self.step
        wall = _nanoseconds(stamps.tz_localize(None))
        anchor, rest = wall // self._unit, wall % self._unit
        number = np.searchsorted(self._anchors, anchor)
        found = number < len(self._anchors)
        found[found] = self._anchors[number[found]] == anchor[found]
        phase = np.where(found, rest * self.multiple + number % self.multiple, OFF_GRID)
        return (number // self.multiple).astype(np.int64), phase.astype(np.int64)

    def join(self, coordinates: NDArray[np.int64], phases: NDArray[np.int64]) -> pd.DatetimeIndex:
        """The stamps at coordinates within the span: the inverse of `split`, in nanoseconds.

        A wall-clock time that a change of clocks skips is moved behind the change.
        """
        if self.step is not None:
            index = pd.DatetimeIndex((coordinates * self.step + phases).view("M8[ns]"))
            return index if self.tz is None else index.tz_localize("UTC").tz_convert(self.tz)
        number = coordinates * self.multiple + phases % self.multiple
        wall = self._anchors[number] * self._unit + phases // self.multiple
        index = pd.DatetimeIndex(wall.view("M8[ns]"))
        if self.tz is None:
            return index
        return index.tz_localize(self.tz, ambiguous=np.zeros(len(index), dtype=bool), nonexistent="shift_forward")


def _fixed_step(offset: pd.offsets.BaseOffset) -> int | None:
    """The length in nanoseconds of hours, minutes and seconds; None for what the calendar decides, days included."""
    if offset.rule_code == "D" or not isinstance(offset, pd.offsets.Tick):
        return None
    return int(pd.Timedelta(offset).as_unit("ns").value)


def _widest_unit(step: int) -> pd.offsets.BaseOffset:
    """A fixed step in hours, minutes or seconds, whichever goes without a fraction."""
    for unit, offset in ((3600, pd.offsets.Hour), (60, pd.offsets.Minute), (1, pd.offsets.Second)):
        if step % (unit * 1_000_000_000) == 0:
            return offset(step // (unit * 1_000_000_000))
    return pd.offsets.Nano(step)


def _usual_months(days: NDArray[np.int64]) -> str | None:
    """The frequency in whole months of days of which most are first or last (business) days of months."""
    span = pd.DatetimeIndex(days[[0, -1]].view("M8[D]").astype("M8[ns]"))
    best, on_best = "MS", np.zeros(len(days), dtype=bool)
    for alias in ("MS", "ME", "BMS", "BME"):
        on_grid = Grid(span, alias).split(pd.DatetimeIndex(days.view("M8[D]").astype("M8[ns]")))[1] != OFF_GRID
        if on_grid.sum() > on_best.sum():
            best, on_best = alias, on_grid
    if 2 * on_best.sum() <= len(days) or on_best.sum() < 3:
        return None
    months: NDArray[np.int64] = days[on_best].view("M8[D]").astype("M8[M]").view(np.int64)
    step = _mode(np.diff(months))
    # pandas knows the names of quarters and years
    return try_infer_frequency(_regular(pd.Timestamp(days[on_best][0].view("M8[D]")), 8, f"{step}{best}"))


def _regular(first: pd.Timestamp, length: int, frequency: str) -> pd.DatetimeIndex:
    return pd.date_range(first, periods=length, freq=frequency)


def _nanoseconds(index: pd.DatetimeIndex) -> NDArray[np.int64]:
    return index.as_unit("ns").asi8


def _mode(steps: NDArray[np.int64]) -> int:
    """The most frequent value, the smallest of several."""
    values, counts = np.unique(steps, return_counts=True)
    return int(values[counts.argmax()])
