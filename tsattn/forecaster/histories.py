"""The ends of series as plain data and arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data import Panel
from tsattn.data.frequency import Times

__all__ = ["history_arrays", "plain_history", "restored_history"]

_ARRAYS = ("starts", "values", "past_covariates", "future_covariates", "ahead", "ahead_starts", "static")
_PLAIN = (
    *("ids", "channels", "frequency", "past_names", "future_names", "static_names", "static_categories"),
    *("is_wide", "id_name", "time_name"),
)


def plain_history(panel: Panel) -> dict[str, Any]:
    """What is not an array in a panel."""
    time = panel.time
    zone, unit = (time.tz, time.unit) if isinstance(time, pd.DatetimeIndex) else (None, None)  # None: it counts steps
    return {
        **{name: getattr(panel, name) for name in _PLAIN},
        "time_zone": None if zone is None else str(zone),
        "time_unit": unit,
    }


def history_arrays(panel: Panel) -> dict[str, NDArray[Any]]:
    """The arrays of a panel, by name."""
    arrays = {name: getattr(panel, name) for name in _ARRAYS}
    time = panel.time
    return {
        "time": time.asi8.copy() if isinstance(time, pd.DatetimeIndex) else time.to_numpy(np.int64, copy=True),
        **{name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None},
    }


def restored_history(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Panel:
    """The panel of both."""
    time: Times = pd.Index(arrays["time"])
    if plain["time_unit"] is not None:
        time = pd.DatetimeIndex(arrays["time"].view(f"M8[{plain['time_unit']}]"))
        if plain["time_zone"] is not None:
            time = time.tz_localize("UTC").tz_convert(plain["time_zone"])
    fields: dict[str, Any] = {name: plain[name] for name in _PLAIN}
    for name in ("ids", "channels", "past_names", "future_names", "static_names"):
        fields[name] = tuple(fields[name])
    fields["static_categories"] = tuple(map(tuple, fields["static_categories"]))
    fields.update({name: arrays.get(name) for name in _ARRAYS})
    return Panel(time=time, **fields)
