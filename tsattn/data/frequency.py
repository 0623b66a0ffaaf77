"""Time stamps: their frequency, the ones that come next, and the length of a season.

Time may also be counted in steps: whole numbers take the place of time stamps, and the frequency is one too, such as
``1``.
"""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from tsattn.errors import UserError

__all__ = [
    "PHASED",
    "Times",
    "future_index",
    "infer_frequency",
    "is_steps",
    "one_time",
    "season_length",
    "seconds",
    "try_infer_frequency",
]

Times: TypeAlias = "pd.DatetimeIndex | pd.Index[int]"

# calendar frequencies whose periods may also be written as a later day, such as the 15th of each month: by the days
# that this day may come after the start of the period, as there is a 28th in all of them
PHASED = {"MS": 27, "QS": 27, "HYS": 27, "YS": 27, "SMS": 12}

# steps in a season, for frequencies of a day and longer
_SEASONS = {
    "D": 7,
    "B": 5,
    "W": 52,
    "ME": 12,
    "MS": 12,
    "BME": 12,
    "BMS": 12,
    "QE": 4,
    "QS": 4,
    "YE": 1,
    "YS": 1,
    "BQE": 4,
    "BQS": 4,
    "BYE": 1,
    "BYS": 1,
    "WOM": 12,
    "SMS": 24,
    "SME": 24,
    "bh": 8,
    "C": 5,
    "cbh": 8,
    "CBME": 12,
    "CBMS": 12,
    "LWOM": 12,
    "HYE": 2,
    "HYS": 2,
    "BHYE": 2,
    "BHYS": 2,
    "RE": 1,
    "REQ": 4,
}

# the season of steps from the second length on
_SEASONS_OF_TIME = (
    (pd.Timedelta(1, "D"), pd.Timedelta(1, "s")),
    (pd.Timedelta(1, "s"), pd.Timedelta(1, "ms")),
    (pd.Timedelta(1, "ms"), pd.Timedelta(1, "us")),
)


def infer_frequency(index: pd.DatetimeIndex, source: str, *, expected: str | None = None) -> str:
    """The pandas frequency of regular time stamps.

    Args:
        index: rising time stamps.
        source: what they were read from, for the message.
        expected: the frequency that they must have, if one is known already.

    Raises:
        UserError: naming the first row that breaks the rhythm.
    """
    if expected is not None:
        _check_regular(index, source, expected)
        return expected
    if len(index) < 3:
        raise UserError(f"{source} has {len(index)} rows; at least 3 are needed to see their frequency")
    frequency = try_infer_frequency(index)
    if frequency is not None:
        return frequency
    # the longest regular head shows the rhythm that the row after it breaks
    head, broken = 2, len(index)
    while broken - head > 1:
        middle = (head + broken) // 2
        if try_infer_frequency(index[:middle]) is None:
            broken = middle
        else:
            head = middle
    rhythm = try_infer_frequency(index[:head]) if head > 2 else None
    if rhythm is not None:
        _check_regular(index, source, rhythm)
    steps = index[1:] - index[:-1]
    usual = pd.Series(steps).mode()[0]
    row = int(np.flatnonzero(np.asarray(steps != usual))[0]) + 1
    raise UserError(
        f"{source}, row {row + 1}: {index[row]} comes {steps[row - 1]} after the row before, not the usual "
        f"{usual}; time stamps must be regular"
    )


def try_infer_frequency(index: Times) -> str | None:
    """What pandas sees in the frequency of at least 3 time stamps, or steps: None unless they are regular."""
    if not isinstance(index, pd.DatetimeIndex):
        steps = np.unique(np.diff(index.to_numpy()))
        return str(steps[0]) if len(steps) == 1 else None
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # pandas 4 answers with an offset, which is understood below
        frequency: object = pd.infer_freq(index)
    name = None if frequency is None else str(getattr(frequency, "freqstr", frequency))
    # pandas takes the last Fridays of months for the fourth ones
    is_right = name is not None and bool((index == pd.date_range(index[0], periods=len(index), freq=name)).all())
    return name if is_right else None


def _check_regular(index: pd.DatetimeIndex, source: str, frequency: str) -> None:
    regular = pd.date_range(index[0], periods=len(index), freq=frequency)
    off = np.flatnonzero(np.asarray(index != regular))
    if off.size:
        row = int(off[0])
        raise UserError(
            f"{source}, row {row + 1}: {index[row]} where {regular[row]} is due at frequency {frequency!r}; "
            "time stamps must be regular"
        )


def one_time(index: pd.Index[Any]) -> Times:
    """Time stamps or steps, as what was put together of some."""
    return index if isinstance(index, pd.DatetimeIndex) else pd.Index(index.to_numpy(dtype=np.int64).astype(int))


def is_steps(frequency: str) -> bool:
    """Whether a frequency counts steps, not time."""
    return frequency.isdecimal()


def future_index(last: Any, frequency: str, length: int, wall: pd.Timestamp | None = None) -> Times:
    """The `length` time stamps, or steps, after `last`.

    Of months, quarters and years that are written as a later day than their first, it is that day again.

    Args:
        last: a time stamp, or a step.
        frequency: a pandas frequency, or that of steps.
        length: how many come after it.
        wall: what clocks would show at `last` if no change of clocks had skipped that; by default what they show. Days
            and longer steps go on from there.

    Raises:
        UserError: for more than the calendar of time stamps holds.
    """
    if is_steps(frequency):
        return pd.Index(int(last) + int(frequency) * np.arange(1, length + 1))
    try:
        return _future_stamps(last, frequency, length, wall)
    except (OverflowError, pd.errors.OutOfBoundsDatetime) as error:
        raise UserError(
            f"{length} steps of {frequency} after {last} pass the end of the calendar; lower `--horizon` "
            "(Python: `horizon=`)"
        ) from error


def _future_stamps(last: Any, frequency: str, length: int, wall: pd.Timestamp | None) -> Times:
    offset = to_offset(frequency)
    wall = last.tz_localize(None) if wall is None else wall
    if offset.rule_code.split("-")[0] in PHASED and not offset.is_on_offset(wall):
        start = offset.base.rollback(wall.normalize())
        later = pd.date_range(start, periods=length + 1, freq=frequency)[1:] + (wall - start)
        is_summer = np.zeros(length, dtype=bool)
        return pd.DatetimeIndex(later.tz_localize(last.tz, ambiguous=is_summer, nonexistent="shift_forward"))
    if last.tz is None or (isinstance(offset, pd.offsets.Tick) and offset.rule_code != "D"):
        return pd.date_range(last, periods=length + 1, freq=frequency)[1:]
    # days and longer steps are those of the clock on the wall, which may skip or repeat one of them
    later = pd.date_range(wall, periods=length + 1, freq=frequency)[1:]
    is_summer = np.zeros(length, dtype=bool)
    return later.tz_localize(last.tz, ambiguous=is_summer, nonexistent="shift_forward")


def season_length(frequency: str) -> int:
    """Steps in the season that a naive forecast repeats: a day, for steps shorter than one; else a week or a year.

    For steps shorter than a second it is a second, a millisecond or a microsecond; 1 for steps that are no time.

    For example 24 for ``h``, 96 for ``15min``, 7 for ``D``, 52 for ``W-SAT``, 12 for ``MS``.

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
    if not isinstance(offset, pd.offsets.Tick):
        raise UserError(f"frequency {frequency!r} has no known season; give one such as h, D, B, W-SUN, MS, QE or YE")
    step = pd.Timedelta(offset)
    # the season of a step of a nanosecond is a microsecond: a context of a second would not fit into memory
    season = next((longer for longer, shortest in _SEASONS_OF_TIME if step >= shortest), pd.Timedelta(1, "us"))
    return max(1, round(season / step))


def seconds(index: Times) -> NDArray[np.int64]:
    """Time stamps as whole seconds since 1970-01-01 by their own clock, whatever unit they are stored in; steps."""
    if not isinstance(index, pd.DatetimeIndex):
        return index.to_numpy(dtype=np.int64, copy=True)
    return index.tz_localize(None).as_unit("s").asi8.copy()
