"""Frequencies of time stamps, or of steps such as ``1``: names, next stamps, seasons and grids.

A stamp has a *coordinate*, its number on a grid, and a *phase*, which separates grids of one frequency: the 1st and the
15th of months. Concatenated series are `(rows,)` stamps or coordinates, rising in each, with first rows `begin (S,)`.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from datetime import timedelta
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from tsattn.errors import UserError, shown

Times: TypeAlias = "pd.DatetimeIndex | pd.Index[int]"

# calendar frequencies whose stamps may be a later day of the period, such as the 15th of each month: the largest number
# of days after the start that exists in every period
PHASED = {"MS": 27, "QS": 27, "HYS": 27, "YS": 27, "SMS": 12}

_BY_SEASON = (
    *("1 YE YS BYE BYS RE", "2 HYE HYS BHYE BHYS", "4 QE QS BQE BQS REQ", "5 B C", "7 D", "8 bh cbh", "24 SMS SME"),
    *("12 ME MS BME BMS CBME CBMS WOM LWOM", "52 W"),
)
_SEASONS = {name: int(season) for season, *names in map(str.split, _BY_SEASON) for name in names}
_UNITS = (("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
# names of pandas 1, which pandas 3 refuses
_OLD_NAMES = {
    **{"H": "h", "BH": "bh", "T": "min", "S": "s", "L": "ms", "U": "us", "N": "ns"},
    **{"M": "ME", "BM": "BME", "SM": "SME", "Q": "QE", "BQ": "BQE"},
    **{"A": "YE", "Y": "YE", "BA": "BYE", "BY": "BYE", "AS": "YS", "BAS": "BYS"},
}


def normalise_frequency(frequency: str | int | timedelta | pd.offsets.BaseOffset) -> str:
    """Name a frequency so that all versions of pandas read it: ``15min`` for ``15T``; UserError if it has no name."""
    if isinstance(given := frequency, pd.offsets.BaseOffset):
        with contextlib.suppress(ValueError):
            if to_offset(given.freqstr) == given:
                return normalise_frequency(str(given.freqstr))
        says = "cannot be written as text with its holidays, hours or parts; give a text such as B, bh or W-SUN"
        raise UserError(f"frequency {shown(repr(given))} {says}")
    if isinstance(frequency, timedelta) or (isinstance(frequency, str) and re.search("day|:|^P", frequency)):
        with contextlib.suppress(ValueError):  # whole days mean calendar days
            days, rest = divmod(pd.Timedelta(frequency), pd.Timedelta(1, "D"))
            frequency = str(to_offset(pd.Timedelta(frequency)).freqstr) if rest else f"{days}D"
    if isinstance(frequency, bool) or not isinstance(frequency, str | Integral):
        says = "must be a text such as h, D or MS, or a whole number for steps, not"
        raise UserError(f"frequency {says} {shown(repr(frequency))}")
    name = str(frequency)
    if name.isdecimal() and int(name) > 0:
        return str(int(name))
    match = re.fullmatch(r"(\d*)([A-Z]+)(-[A-Z]+)?", name)
    text = match[1] + _OLD_NAMES[match[2]] + (match[3] or "") if match and match[2] in _OLD_NAMES else name
    try:
        offset = to_offset(text)
        step = fixed_step(offset)
        if offset.n < 1:
            raise ValueError("no positive number of units of time")
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        says = "is not a frequency; valid are pandas frequencies (15min, h, D, B, W-SUN, MS, QE) and 1 for steps"
        raise UserError(f"{shown(repr(frequency))} {says}") from error
    if step is not None:
        return step_name(step)
    # QS-JAN and QS-OCT are equal; pandas 2 and 3 prefer different names
    quarter = re.fullmatch(r"(\d*)(B?Q[SE])-([A-Z]{3})", offset.freqstr)
    if quarter is None:
        return str(offset.freqstr)
    first = _MONTHS.index("JAN" if quarter[2].endswith("S") else "OCT")
    return f"{quarter[1]}{quarter[2]}-{_MONTHS[first + _MONTHS.index(quarter[3]) % 3]}"


def fixed_step(offset: pd.offsets.BaseOffset) -> int | None:
    """Nanoseconds in a step of hours, minutes or shorter; None for calendar frequencies, including days."""
    is_fixed = offset.rule_code != "D" and isinstance(offset, pd.offsets.Tick)
    step: Any = offset
    return int(pd.Timedelta(step).as_unit("ns").value) if is_fixed else None


def step_name(step: int) -> str:
    """The frequency of steps of `step` nanoseconds, in the widest unit that needs no fraction."""
    unit, size = next(((unit, size) for unit, size in _UNITS if step % size == 0), ("ns", 1))
    return f"{'' if step == size else step // size}{unit}"


def try_infer_frequency(index: Times) -> str | None:
    """The frequency that pandas infers from at least 3 time stamps, or steps; None unless they are regular."""
    if not isinstance(index, pd.DatetimeIndex):
        steps = np.unique(np.diff(index.to_numpy()))
        return str(steps[0]) if len(steps) == 1 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pandas 4 will return an offset
        frequency: object = pd.infer_freq(index)
    name = None if frequency is None else str(getattr(frequency, "freqstr", frequency))
    # check the name, as pandas reads the last Fridays of months as the fourth Fridays
    return name if name is not None and (future_index(index[0], name, len(index) - 1) == index[1:]).all() else None


def one_time(index: pd.Index[Any]) -> Times:
    """Give a concatenated index its type, time stamps or steps."""
    return index if isinstance(index, pd.DatetimeIndex) else pd.Index(index.to_numpy(dtype=np.int64).astype(int))


def is_steps(frequency: str) -> bool:
    """Whether a frequency counts steps instead of time."""
    return frequency.isdecimal()


def future_index(last: Any, frequency: str, length: int, wall: pd.Timestamp | None = None) -> Times:
    """List the `length` time stamps, or steps, after `last`; UserError beyond the end of pandas' calendar.

    Stamps of months, quarters and years that are not on the first day keep their day. `wall` is the local time at
    `last`; give it if a change of clocks has skipped this time.
    """
    if is_steps(frequency):
        return pd.Index(int(last) + int(frequency) * np.arange(1, length + 1))
    offset = to_offset(frequency)
    wall = last.tz_localize(None) if wall is None else wall
    is_phased = offset.rule_code.split("-")[0] in PHASED and not offset.is_on_offset(wall)
    try:
        if not is_phased and (last.tz is None or fixed_step(offset) is not None):
            return pd.date_range(last, periods=length + 1, freq=frequency)[1:]
        # days and longer steps follow local time, which may skip or repeat a stamp
        start = offset.base.rollback(wall.normalize()) if is_phased else wall
        later = pd.date_range(start, periods=length + 1, freq=frequency)[1:] + (wall - start)
        is_summer = np.zeros(length, dtype=bool)
        return pd.DatetimeIndex(later.tz_localize(last.tz, ambiguous=is_summer, nonexistent="shift_forward"))
    except (OverflowError, pd.errors.OutOfBoundsDatetime) as error:
        says = "pass the end of the calendar; lower `--horizon` (Python: `horizon=`)"
        raise UserError(f"{length} steps of {frequency} after {last} {says}") from error


def season_length(frequency: str) -> int:
    """Count the steps in the season that a naive forecast repeats, such as 24 for ``h`` and 7 for ``D``.

    It is a day, week or year; for steps below a second, a second or less; 1 if time counts steps. UserError if unknown.
    """
    if is_steps(frequency):
        return 1
    offset = to_offset(frequency)
    base = offset.rule_code.split("-")[0]
    if base in _SEASONS:
        is_weeks = base == "D" and offset.n % 7 == 0
        return max(1, (7 * _SEASONS["W"] if is_weeks else _SEASONS[base]) // offset.n)
    step = fixed_step(offset)
    if step is None:
        raise UserError(f"frequency {frequency!r} has no known season; give one such as h, D, B, W-SUN, MS, QE or YE")
    # short steps have short seasons: of nanoseconds a microsecond, as a second would not fit into memory
    season = next(of for least, of in ((10**9, _DAY), (10**6, 10**9), (1000, 10**6), (1, 1000)) if step >= least)
    return max(1, round(season / step))


def seconds(index: Times) -> NDArray[np.int64]:
    """Time stamps in whole seconds since 1970-01-01, in local time, for any unit; steps unchanged."""
    if not isinstance(index, pd.DatetimeIndex):
        return index.to_numpy(dtype=np.int64, copy=True)
    return index.tz_localize(None).as_unit("s").asi8.copy()


OFF_GRID = -1
"""The phase of a stamp that is not on a grid of the frequency."""

_DAY = 86_400_000_000_000  # nanoseconds
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_CERTAIN = 14.0  # a run is no accident if its probability is below exp(-14)


class Grid:
    """Coordinates and phases within `span`; calendar frequencies count in local time, others by a fixed `step`."""

    def __init__(self, span: Times, frequency: str) -> None:
        self.tz = span.tz if isinstance(span, pd.DatetimeIndex) else None
        self._is_time = isinstance(span, pd.DatetimeIndex)
        if not isinstance(span, pd.DatetimeIndex):
            self.step: int | None = int(frequency)
            return
        offset = to_offset(frequency)
        self.step = fixed_step(offset)
        if self.step is not None:
            return
        self._multiple = int(offset.n)
        self._reach = PHASED.get(offset.rule_code.split("-")[0], 0)  # most units from an anchor to a stamp
        wall = span.tz_localize(None)
        first, last = wall.min().normalize(), wall.max().normalize() + pd.Timedelta(1, "D")
        if self._reach:
            first = offset.base.rollback(first)
        anchors = pd.date_range(first, last, freq=offset.base).as_unit("ns").asi8
        # business hours are the only calendar frequency shorter than a day
        self._unit = _DAY if not np.any(anchors % _DAY) else 1
        self._anchors: NDArray[np.int64] = anchors // self._unit

    def split(self, stamps: Times) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Coordinates and phases of stamps within the span, both `(rows,)`; `OFF_GRID` is the phase off the grid."""
        if self.step is not None:
            time = counts(stamps)
            coordinates = time // self.step
            return coordinates, time - coordinates * self.step
        wall = wall_times(pd.DatetimeIndex(stamps))
        anchor, rest = wall // self._unit, wall % self._unit
        if not len(self._anchors):
            return np.zeros(len(stamps), np.int64), np.full(len(stamps), OFF_GRID)
        number = np.searchsorted(self._anchors, anchor, side="right") - 1
        after = np.where(number < 0, -1, anchor - self._anchors[number.clip(0)])
        found = (number >= 0) & (after >= 0) & (after <= self._reach)
        number = np.where(found, number, np.searchsorted(self._anchors, anchor))
        phase = np.where(found, (after * self._unit + rest) * self._multiple + number % self._multiple, OFF_GRID)
        return (number // self._multiple).astype(np.int64), phase.astype(np.int64)

    def join(self, coordinates: NDArray[np.int64], phases: NDArray[np.int64]) -> Times:
        """The stamps at coordinates within the span; a time that clocks skip becomes the first time after it."""
        if self.step is not None:
            time = coordinates * self.step + phases
            if not self._is_time:
                return one_time(pd.Index(time))
            index = pd.DatetimeIndex(time.view("M8[ns]"))
            return pd.DatetimeIndex(index if self.tz is None else index.tz_localize("UTC").tz_convert(self.tz))
        number = coordinates * self._multiple + phases % self._multiple
        wall = self._anchors[number] * self._unit + phases // self._multiple
        is_summer = np.zeros(len(wall), dtype=bool)
        local = pd.DatetimeIndex(wall.view("M8[ns]"))
        return pd.DatetimeIndex(local.tz_localize(self.tz, ambiguous=is_summer, nonexistent="shift_forward"))


def wall_times(stamps: pd.DatetimeIndex) -> NDArray[np.int64]:
    """Local times of stamps in nanoseconds, `(rows,)`; stamps that a change of clocks moved get the usual time."""
    wall = stamps.tz_localize(None).as_unit("ns").asi8
    if stamps.tz is None:
        return wall
    skipped_from = (stamps.as_unit("ns") - pd.Timedelta(1, "ns")).tz_localize(None).asi8 + 1
    is_moved = skipped_from < wall
    if not is_moved.any():
        return wall
    rest = wall % _DAY
    usual = _mode((skipped_from[is_moved] if is_moved.all() else rest[~is_moved]) % _DAY)
    usual_wall = wall - rest + usual
    stands = is_moved & (rest != usual) & (skipped_from <= usual_wall) & (usual_wall < wall)
    return np.where(stands, usual_wall, wall)


def counts(index: Times) -> NDArray[np.int64]:
    """Time stamps in nanoseconds since 1970-01-01 UTC; steps unchanged."""
    return index.as_unit("ns").asi8 if isinstance(index, pd.DatetimeIndex) else index.to_numpy(dtype=np.int64)


def usual_frequency(index: Times) -> str:
    """The usual frequency of at least 3 rising stamps, which may have gaps; some stamps may be off its grid.

    Regular stamps have the frequency that pandas infers. Otherwise the most frequent step decides. It is a calendar
    frequency if more than three in four stamps have the same time of day, else a fixed step.
    """
    if not isinstance(index, pd.DatetimeIndex):
        return str(_mode(np.diff(index.to_numpy())))
    if (regular := try_infer_frequency(index)) is not None:
        return normalise_frequency(regular)
    wall = index.tz_localize(None).as_unit("ns").asi8
    at_usual_time = wall % _DAY == _mode(wall % _DAY)
    if 4 * at_usual_time.sum() <= 3 * len(wall):
        return step_name(_mode(np.diff(counts(index))))
    days: NDArray[np.int64] = wall[at_usual_time] // _DAY
    usual, weekdays = _mode(np.diff(days)), _weeks(days)[1]
    if usual >= 28 and (months := _months(days)) is not None:
        return normalise_frequency(months)
    if usual == 1 and are_business_days(_index(days), np.array([0])):
        return "B"
    return normalise_frequency(f"{usual // 7}W-{_WEEKDAYS[_mode(weekdays)]}" if usual % 7 == 0 else f"{usual}D")


def _months(days: NDArray[np.int64]) -> str | None:
    """The frequency in whole months of days if most are the same day, or the same weekday, of their months."""
    dates = days.view("M8[D]")
    in_month: NDArray[np.int64] = (dates - dates.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1
    weekday = _WEEKDAYS[_mode(_weeks(days)[1])]
    weekdays = [f"WOM-{week}{weekday}" for week in range(1, 5)]
    if int(pd.__version__.partition(".")[0]) >= 3:  # pandas 3 can read the last weekday of a month from text
        weekdays.insert(0, f"LWOM-{weekday}")
    # not every month has days 29 to 31
    grids = {"MS": (in_month == _mode(in_month)) & (_mode(in_month) <= 28)}
    grids |= {
        alias: Grid(_index(days[[0, -1]]), alias).split(_index(days))[1] != OFF_GRID
        for alias in ("ME", "BMS", "BME", *weekdays)
    }
    best = max(grids, key=lambda alias: int(grids[alias].sum()))  # the first grid that fits most days
    chosen = grids[best]
    if chosen.sum() < 3 or (4 * chosen.sum() <= 3 * len(days) if best in weekdays else 2 * chosen.sum() <= len(days)):
        return None
    months: NDArray[np.int64] = days[chosen].view("M8[D]").astype("M8[M]").view(np.int64)
    step = _mode(np.diff(months))
    if best in weekdays:
        return f"{step}{best}"
    first = (days - in_month + 1 if best == "MS" else days)[chosen][:1]
    # let pandas name quarters and years
    return try_infer_frequency(pd.date_range(_index(first)[0], periods=8, freq=f"{step}{best}"))


def coarser_series(coordinates: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(S,)`: whether a series has 3 rows or more, but no two rows that are neighbours on the grid."""
    follows = np.concatenate([[False], coordinates[1:] - coordinates[:-1] <= 1])
    follows[begin] = False
    coarser: NDArray[np.bool_] = ~np.logical_or.reduceat(follows, begin)
    return coarser & (np.diff(begin, append=len(coordinates)) > 2)


def are_business_days(index: Times, begin: NDArray[np.int64] | None = None) -> bool:
    """Whether no stamp is on a weekend, although a series (first rows: `begin`) covers more than a week."""
    days = _days(index)
    weeks = _weeks(days.astype(np.int64))[0]
    goes_on = begin is None or bool(np.any(weeks[begin] != weeks[np.append(begin[1:], len(index)) - 1]))
    return goes_on and bool(np.is_busday(days).all())


def business_series(index: Times, begin: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(S,)`: whether a series has 3 rows or more, regular on business days, across a weekend."""
    rows, days = np.diff(begin, append=len(index)), _days(index)
    first, last = days[begin], days[begin + rows - 1]
    are_long = (rows > 2) & ((last - first).astype(np.int64) >= rows) & (np.busday_count(first, last) == rows - 1)
    are_business: NDArray[np.bool_] = are_long & np.logical_and.reduceat(np.is_busday(days), begin)
    return are_business


def runs_of_longer_steps(coordinates: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.int64]:
    """`(runs, 2)`: first and last rows of runs with a longer step, so long that they cannot be an accident."""
    steps = np.diff(coordinates, prepend=coordinates[:1])
    steps[begin] = 0  # a run ends with its series
    first = np.flatnonzero(np.diff(steps, prepend=-1))
    k, length = steps[first].astype(np.float64), np.diff(first, append=len(steps))
    is_long = (k > 1) & (length > 3)  # a short run may come from a single wrong date
    k = np.maximum(k, 2)
    rarity = k * np.log(k) - (k - 1) * np.log(k - 1)  # minus the logarithm of the probability of a long step
    is_certain = is_long & (length * rarity > np.log(len(steps)) + _CERTAIN)
    runs: NDArray[np.int64] = np.stack([first, first + length - 1], axis=1)[is_certain]
    return runs


def _days(index: Times) -> NDArray[np.datetime64]:
    return np.asarray(pd.DatetimeIndex(index).tz_localize(None)).astype("M8[D]")


def _weeks(days: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of weeks, and of days in their weeks; 1970-01-01 was a Thursday."""
    return np.divmod(days + 3, 7)


def _index(days: NDArray[np.int64]) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(days.view("M8[D]").astype("M8[ns]"))


def _mode(steps: NDArray[np.int64]) -> int:
    """The most frequent value; of equally frequent values the smallest."""
    values, how_often = np.unique(steps, return_counts=True)
    return int(values[how_often.argmax()])
