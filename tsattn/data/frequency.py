"""Frequencies of time stamps: their names, the stamps that come next, and the length of a season.

Time may also be counted in steps: whole numbers take the place of time stamps, and the frequency is one too, such as
``1``.
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

__all__ = [
    *("PHASED", "Times", "fixed_step", "future_index", "is_steps", "normalise_frequency", "one_time", "season_length"),
    *("seconds", "step_name", "try_infer_frequency"),
]

Times: TypeAlias = "pd.DatetimeIndex | pd.Index[int]"

# calendar frequencies whose periods may be written as a later day, such as the 15th of each month: by the most days
# after the start of the period that all periods have
PHASED = {"MS": 27, "QS": 27, "HYS": 27, "YS": 27, "SMS": 12}

_SEASONS = {
    name: season
    for season, names in {
        1: "YE YS BYE BYS RE",
        2: "HYE HYS BHYE BHYS",
        4: "QE QS BQE BQS REQ",
        5: "B C",
        7: "D",
        8: "bh cbh",
        12: "ME MS BME BMS CBME CBMS WOM LWOM",
        24: "SMS SME",
        52: "W",
    }.items()
    for name in names.split()
}
_UNITS = (("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
# as pandas 1 wrote them; pandas 3 refuses them
_OLD_NAMES = {
    **{"H": "h", "BH": "bh", "T": "min", "S": "s", "L": "ms", "U": "us", "N": "ns"},
    **{"M": "ME", "BM": "BME", "SM": "SME", "Q": "QE", "BQ": "BQE"},
    **{"A": "YE", "Y": "YE", "BA": "BYE", "BY": "BYE", "AS": "YS", "BAS": "BYS"},
}


def normalise_frequency(frequency: str | int | timedelta | pd.offsets.BaseOffset) -> str:
    """Name a pandas frequency as all versions of pandas do.

    For example ``15min`` for ``15T``, ``ME`` for ``M``, ``h`` for ``60min``, ``QS-JAN`` for ``QS-OCT``, and ``1`` for
    time that counts steps. Lengths of time are also understood as text, such as ``1 days 12:00:00``.

    Raises:
        UserError: for anything that is no frequency, or an offset whose name does not say all of it.
    """
    given = frequency
    if isinstance(frequency, pd.offsets.BaseOffset):
        frequency = str(frequency.freqstr)
        with contextlib.suppress(ValueError):
            if to_offset(frequency) == given:
                return normalise_frequency(frequency)
        says = "has no name that keeps its holidays, hours or parts; give a text such as B, bh or W-SUN"
        raise UserError(f"frequency {shown(repr(given))} {says}")
    if isinstance(frequency, str) and re.search("day|:|^P", frequency):
        with contextlib.suppress(ValueError):
            frequency = pd.Timedelta(frequency)
    if isinstance(frequency, timedelta):  # whole days are days of the calendar
        days, rest = divmod(pd.Timedelta(frequency), pd.Timedelta(1, "D"))
        frequency = str(to_offset(pd.Timedelta(frequency)).freqstr) if rest else f"{days}D"
    if isinstance(frequency, bool) or not isinstance(frequency, str | Integral):
        says = "must be a text such as h, D or MS, or for steps a whole number, not"
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
        says = "is not a frequency; valid are those of pandas, such as 15min, h, D, B, W-SUN, MS, QE, and 1 for steps"
        raise UserError(f"{shown(repr(frequency))} {says}") from error
    if step is not None:
        return step_name(step)
    # quarters that begin in January also begin in October; pandas 2 and 3 prefer different names
    quarter = re.fullmatch(r"(\d*)(B?Q[SE])-([A-Z]{3})", offset.freqstr)
    if quarter is None:
        return str(offset.freqstr)
    first = _MONTHS.index("JAN" if quarter[2].endswith("S") else "OCT")
    return f"{quarter[1]}{quarter[2]}-{_MONTHS[first + _MONTHS.index(quarter[3]) % 3]}"


def fixed_step(offset: pd.offsets.BaseOffset) -> int | None:
    """Nanoseconds in a step of hours, minutes or seconds; None for what the calendar decides, days included."""
    if offset.rule_code == "D" or not isinstance(offset, pd.offsets.Tick):
        return None
    return int(pd.Timedelta(offset).as_unit("ns").value)


def step_name(step: int) -> str:
    """The frequency of steps of so many nanoseconds, in the widest unit that goes without a fraction."""
    unit, size = next(((unit, size) for unit, size in _UNITS if step % size == 0), ("ns", 1))
    return f"{'' if step == size else step // size}{unit}"


def try_infer_frequency(index: Times) -> str | None:
    """The frequency that pandas sees in at least 3 time stamps, or steps; None unless they are regular."""
    if not isinstance(index, pd.DatetimeIndex):
        steps = np.unique(np.diff(index.to_numpy()))
        return str(steps[0]) if len(steps) == 1 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pandas 4 answers with an offset
        frequency: object = pd.infer_freq(index)
    name = None if frequency is None else str(getattr(frequency, "freqstr", frequency))
    # pandas takes the last Fridays of months for the fourth ones
    is_right = name is not None and bool((index == pd.date_range(index[0], periods=len(index), freq=name)).all())
    return name if is_right else None


def one_time(index: pd.Index[Any]) -> Times:
    """Time stamps or steps, as what was put together of some."""
    return index if isinstance(index, pd.DatetimeIndex) else pd.Index(index.to_numpy(dtype=np.int64).astype(int))


def is_steps(frequency: str) -> bool:
    """Whether a frequency counts steps, not time."""
    return frequency.isdecimal()


def future_index(last: Any, frequency: str, length: int, wall: pd.Timestamp | None = None) -> Times:
    """List the `length` time stamps, or steps, after `last`.

    Months, quarters and years that are written as a later day than their first keep that day. `wall` is what clocks
    would show at `last` if no change of clocks had skipped that; by default what they show.

    Raises:
        UserError: for more than the calendar of time stamps holds.
    """
    if is_steps(frequency):
        return pd.Index(int(last) + int(frequency) * np.arange(1, length + 1))
    offset = to_offset(frequency)
    wall = last.tz_localize(None) if wall is None else wall
    is_phased = offset.rule_code.split("-")[0] in PHASED and not offset.is_on_offset(wall)
    try:
        if not is_phased and (last.tz is None or fixed_step(offset) is not None):
            return pd.date_range(last, periods=length + 1, freq=frequency)[1:]
        # days and longer steps are those of the clock on the wall, which may skip or repeat one of them
        start = offset.base.rollback(wall.normalize()) if is_phased else wall
        later = pd.date_range(start, periods=length + 1, freq=frequency)[1:] + (wall - start)
        is_summer = np.zeros(length, dtype=bool)
        return pd.DatetimeIndex(later.tz_localize(last.tz, ambiguous=is_summer, nonexistent="shift_forward"))
    except (OverflowError, pd.errors.OutOfBoundsDatetime) as error:
        says = "pass the end of the calendar; lower `--horizon` (Python: `horizon=`)"
        raise UserError(f"{length} steps of {frequency} after {last} {says}") from error


def season_length(frequency: str) -> int:
    """Count the steps in the season that a naive forecast repeats.

    A day for steps shorter than one, else a week or a year; for steps shorter than a second it is a second, a
    millisecond or a microsecond; 1 for steps that are no time. For example 24 for ``h``, 7 for ``D``, 12 for ``MS``.

    Raises:
        UserError: for a frequency without a known season.
    """
    if is_steps(frequency):
        return 1
    offset = to_offset(frequency)
    base = offset.rule_code.split("-")[0]
    if base == "D" and offset.n % 7 == 0:
        return max(1, _SEASONS["W"] * 7 // offset.n)
    if base in _SEASONS:
        return max(1, _SEASONS[base] // offset.n)
    step = fixed_step(offset)
    if step is None:
        raise UserError(f"frequency {frequency!r} has no known season; give one such as h, D, B, W-SUN, MS, QE or YE")
    second = 1_000_000_000
    # the season of a nanosecond is a microsecond: a context of a second would not fit into memory
    season = 86_400 * second if step >= second else second if step >= 10**6 else 10**6 if step >= 1000 else 1000
    return max(1, round(season / step))


def seconds(index: Times) -> NDArray[np.int64]:
    """Time stamps as whole seconds since 1970-01-01 by their own clock, whatever unit they are stored in; steps."""
    if not isinstance(index, pd.DatetimeIndex):
        return index.to_numpy(dtype=np.int64, copy=True)
    return index.tz_localize(None).as_unit("s").asi8.copy()
