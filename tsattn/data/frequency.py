"""Time stamps: their frequency, the ones that come next, and the length of a season."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from tsattn.errors import UserError

__all__ = ["future_index", "infer_frequency", "season_length", "seconds", "try_infer_frequency"]

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
    "bh": 8,
}


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
    # the longest regular head shows the rhythm that the row behind it breaks
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


def try_infer_frequency(index: pd.DatetimeIndex) -> str | None:
    """What pandas sees in the frequency of at least 3 time stamps: None unless they are regular."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # pandas 4 answers with an offset, which is understood below
        frequency: object = pd.infer_freq(index)
    return None if frequency is None else str(getattr(frequency, "freqstr", frequency))


def _check_regular(index: pd.DatetimeIndex, source: str, frequency: str) -> None:
    regular = pd.date_range(index[0], periods=len(index), freq=frequency)
    off = np.flatnonzero(np.asarray(index != regular))
    if off.size:
        row = int(off[0])
        raise UserError(
            f"{source}, row {row + 1}: {index[row]} where {regular[row]} is due at frequency {frequency!r}; "
            "time stamps must be regular"
        )


def future_index(last: pd.Timestamp, frequency: str, length: int) -> pd.DatetimeIndex:
    """The `length` time stamps after `last`."""
    return pd.date_range(last, periods=length + 1, freq=frequency)[1:]


def season_length(frequency: str) -> int:
    """Steps in the season that a naive forecast repeats: a day, for steps shorter than one; else a week or a year.

    For example 24 for ``h``, 96 for ``15min``, 7 for ``D``, 52 for ``W-SAT``, 12 for ``MS``.
    """
    offset = to_offset(frequency)
    base = offset.rule_code.split("-")[0]
    if base in _SEASONS:
        return max(1, _SEASONS[base] // offset.n)
    day, step = pd.Timedelta(1, "D"), pd.Timedelta(offset)  # type: ignore[arg-type]  # a fixed step
    return max(1, round(day / step))


def seconds(index: pd.DatetimeIndex) -> NDArray[np.int64]:
    """Time stamps as whole seconds since 1970-01-01 by their own clock, whatever unit they are stored in."""
    return index.tz_localize(None).as_unit("s").asi8.copy()
