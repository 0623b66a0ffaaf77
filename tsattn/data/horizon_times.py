"""The time stamps that come after the ends of many series."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.frequency import Times, future_index, one_time
from tsattn.data.grid import wall_times

__all__ = ["times_after"]


def times_after(
    time: Times, starts: NDArray[np.int64], numbers: NDArray[np.int64], frequency: str, horizon: int
) -> Times:
    """The `horizon` time stamps, or steps, after the last row of some series, end to end.

    Args:
        time: `(rows,)` time stamps, or steps, of all series end to end.
        starts: `(S + 1,)` first row of each series, and `rows`.
        numbers: which series.
        frequency: of all of them.
        horizon: how many each.
    """
    last = starts[1:][numbers] - 1
    # a last stamp that clocks have moved is told by the one before it; of a series of one row by the first of all
    before = np.where(last > starts[:-1][numbers], last - 1, 0)
    # most series end at a few time stamps: of many, a calendar is too slow to be asked for each
    codes = [pd.factorize(time[rows])[0] for rows in (last, before)]
    _, some, places = np.unique(codes[0] * (codes[1].max() + 1) + codes[1], return_index=True, return_inverse=True)
    first, *others = _each(time[before[some]], time[last[some]], frequency, horizon)
    steps = places[:, None] * horizon + np.arange(horizon)
    return one_time(first.append(others).take(steps.ravel()))


def _each(before: Times, last: Times, frequency: str, horizon: int) -> Iterator[Times]:
    """What comes after each of the last stamps."""
    for earlier, end in zip(before, last, strict=True):
        wall = None
        if isinstance(end, pd.Timestamp) and end.tz is not None:
            wall = pd.Timestamp(wall_times(pd.DatetimeIndex([earlier, end]))[1]).as_unit(end.unit)
        yield future_index(end, frequency, horizon, wall)
