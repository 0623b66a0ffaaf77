"""Time as plain numbers, in the unit of the time stamps, and back; nothing is copied on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.frequency import Times
from tsattn.task import UNKNOWN_ZONE, Task

__all__ = ["kept_zone", "no_times_of", "time_numbers", "time_unit", "time_zone", "times_like", "times_of"]


def time_numbers(time: Times) -> NDArray[np.int64]:
    """`(rows,)` time stamps since 1970-01-01 UTC in their own unit, or steps; a view of them, not to be written to."""
    return time.asi8 if isinstance(time, pd.DatetimeIndex) else time.to_numpy(np.int64)


def time_unit(time: Times) -> str | None:
    """The unit of time stamps, such as ``us``; None of steps."""
    return time.unit if isinstance(time, pd.DatetimeIndex) else None


def kept_zone(time: Times) -> str | None:
    """The same as a task keeps it: ``unknown`` of one whose name does not lead back to it, as of some of dateutil."""
    zone = time_zone(time)
    if zone is None:
        return None
    assert isinstance(time, pd.DatetimeIndex)
    try:
        some = time[:1]
        again = some.tz_convert(zone)
    except (LookupError, ValueError, TypeError):
        return UNKNOWN_ZONE
    return zone if again.tz_localize(None).equals(some.tz_localize(None)) else UNKNOWN_ZONE


def time_zone(time: Times) -> str | None:
    """The name of the time zone of time stamps; None of those without one, and of steps."""
    zone = time.tz if isinstance(time, pd.DatetimeIndex) else None
    return None if zone is None else str(zone)


def times_of(numbers: NDArray[np.int64], unit: str | None, zone: Any = None) -> Times:
    """What `time_numbers` gave such numbers of, a view of them.

    Args:
        numbers: `(rows,)`.
        unit: of time stamps; None for steps.
        zone: their time zone, or its name.
    """
    if unit is None:
        return pd.Index(numbers, copy=False)
    if zone is None:
        return pd.DatetimeIndex(numbers.view(f"M8[{unit}]"), copy=False)
    return pd.DatetimeIndex(numbers, dtype=pd.DatetimeTZDtype(unit, zone), copy=False)  # type: ignore[call-overload]


def times_like(time: Times, stamps: NDArray[np.int64]) -> Times:
    """Other stamps, in nanoseconds, in the time zone and unit of these; or other steps."""
    if not isinstance(time, pd.DatetimeIndex):
        return times_of(stamps, None)
    index = times_of(stamps, "ns", time.tz)
    assert isinstance(index, pd.DatetimeIndex)
    return index.as_unit(time.unit)


def no_times_of(task: Task) -> Times | None:
    """Times as a task has them, none at all: in its time zone, or steps; None where that zone is not known."""
    if task.time_zone == UNKNOWN_ZONE:
        return None
    return times_of(np.empty(0, np.int64), None if task.counts_steps else "ns", task.time_zone)
