"""Telling data by what was read, whatever file it was read from."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pandas as pd

from tsattn.data import ForecastDataModule, Panel
from tsattn.data.grid import counts

__all__ = ["fingerprint"]

_CHUNK = 1 << 26  # bytes


def fingerprint(data: ForecastDataModule) -> str:
    """A hash of the series: values, names and time stamps after reading, not the bytes or the place of a file.

    Args:
        data: set up.
    """
    panel = data.panel
    assert panel is not None
    return _hash(_names(panel), panel)


def _names(panel: Panel) -> list[Any]:
    zone = str(panel.time.tz) if isinstance(panel.time, pd.DatetimeIndex) else None
    parts = [panel.ids, panel.channels, panel.past_names, panel.future_names, panel.static_names]
    more = [panel.covariate_categories] if panel.covariate_categories else []
    kind = [panel.frequency, zone, isinstance(panel.time, pd.DatetimeIndex)]
    return [*map(list, parts), panel.static_categories, *kind, *more]


def _hash(names: list[Any], panel: Panel) -> str:
    found = hashlib.blake2b(json.dumps(names, default=str).encode(), digest_size=32)
    rows = panel.values, panel.past_covariates, panel.future_covariates
    for array in (panel.time, panel.starts, *rows, panel.static, panel.weights):
        if array is None:
            continue
        is_float = array.dtype.kind == "f"
        width = int(np.prod(array.shape[1:]))
        step = max(1, _CHUNK // (8 * max(1, width)))
        found.update(f"{'<f8' if is_float else '<i8'}{array.shape}".encode())
        for start in range(0, len(array), step):
            part: Any = array[start : start + step]
            if isinstance(part, pd.Index):  # the unit of the time stamps is a matter of the reader
                part = counts(part)
            elif is_float:  # one missing value is as good as another, and so are the two zeros; so is the precision
                part = np.where(np.isnan(part), np.nan, part).astype(np.float64) + 0.0
            found.update(part.tobytes())
    return found.hexdigest()
