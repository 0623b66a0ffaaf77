"""Telling data by what was read, whatever file it was read from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from tsattn.data import ForecastDataModule, Panel

__all__ = ["fingerprint"]

_CHUNK = 1 << 26  # bytes


def fingerprint(data: ForecastDataModule) -> str:
    """A hash of the series: values, names and time stamps after reading, not the bytes or the place of a file.

    Args:
        data: set up.
    """
    panel, series = data.panel, data.series
    assert panel is not None
    if len(panel.values) == len(series.values):
        return _hash(_names(panel), _arrays(panel))
    # of series on disk, a panel of their last rows stands in memory
    tensors = (series.values, series.observed, series.time, series.starts, series.mean, series.scale)
    return _hash(_names(panel), [tensor.numpy() for tensor in tensors if tensor is not None])


def _names(panel: Panel) -> list[Any]:
    zone = str(panel.time.tz) if isinstance(panel.time, pd.DatetimeIndex) else None
    parts = [panel.ids, panel.channels, panel.past_names, panel.future_names, panel.static_names]
    more = [panel.covariate_categories] if panel.covariate_categories else []
    kind = [panel.frequency, zone, isinstance(panel.time, pd.DatetimeIndex)]
    return [*map(list, parts), panel.static_categories, *kind, *more]


def _arrays(panel: Panel) -> list[Any]:
    time = panel.time
    # the unit of the time stamps is a matter of the reader
    stamps = time.as_unit("ns").asi8 if isinstance(time, pd.DatetimeIndex) else time.to_numpy(np.int64)
    parts = [panel.starts, panel.values, panel.past_covariates, panel.future_covariates, panel.static, panel.weights]
    return [stamps, *(part for part in parts if part is not None)]


def _hash(names: list[Any], arrays: Iterable[Any]) -> str:
    found = hashlib.blake2b(json.dumps(names, default=str).encode(), digest_size=32)
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1)
        step = max(1, _CHUNK // flat.itemsize)
        found.update(f"{array.dtype.str}{array.shape}".encode())
        for start in range(0, len(flat), step):
            part = flat[start : start + step]
            if part.dtype.kind == "f":  # one missing value is as good as another, and so are the two zeros
                part = np.where(np.isnan(part), np.nan, part) + 0.0
            found.update(part.tobytes())
    return found.hexdigest()
