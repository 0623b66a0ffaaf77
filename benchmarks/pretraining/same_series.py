"""Whether a series agrees with another one, at any shift: a test must not be trained on under another name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from scipy.signal import oaconvolve

FREQUENCIES = ("Y", "Q", "M", "W", "D", "B", "h", "30min")
SAME = 0.98  # correlation of changes from which series are the same
COMPARED, YEARS_COMPARED, STRETCHES = 48, 24, 5  # changes of a stretch; stretches of a series that are looked for
NOT_VALUES = re.compile(
    r"(?i)^(rownames|unnamed.*|index|instant|no|t|tsq|trend|yr|mnth|id|year|month|day|hour|quarter|date|time)$"
)


def changes_of(values: Any) -> Any:
    return np.diff(pd.Series(values).interpolate(limit_direction="both").to_numpy(float))


class Bank:
    """Series that others are compared with, by frequency: agreement of changes at any shift."""

    def __init__(self) -> None:
        self.changes: dict[str, list[Any]] = {}
        self._joined: dict[tuple[str, int], tuple[Any, Any]] = {}

    def add(self, frequency: str, values: Any) -> None:
        changes = changes_of(values)
        if (spread := changes.std()) > 0:
            self.changes.setdefault(frequency, []).append(changes / spread)
            self._joined = {key: found for key, found in self._joined.items() if key[0] != frequency}

    def has(self, frequency: str, values: Any) -> bool:
        """Whether a stretch of the changes of a series is also one of a series in the bank."""
        own = changes_of(values)
        size = min(YEARS_COMPARED if frequency == "Y" else COMPARED, len(own))
        if not any(len(one) >= size for one in self.changes.get(frequency, [])):
            return False
        whole, norms = self._joined_of(frequency, size)
        for first in {*np.linspace(0, len(own) - size, STRETCHES).astype(int)}:
            centred = own[first : first + size] - own[first : first + size].mean()
            products = oaconvolve(whole, centred[::-1], "valid")
            if (products / norms).max() > SAME * max(np.linalg.norm(centred), 1e-30):
                return True
        return False

    def _joined_of(self, frequency: str, size: int) -> tuple[Any, Any]:
        """Return all changes end to end, and the norms of windows around their means, infinite across two series."""
        if (frequency, size) not in self._joined:
            others = [one for one in self.changes[frequency] if len(one) >= size]
            whole = np.concatenate(others)
            sums, squares = (np.cumsum(np.concatenate([[0.0], whole**power])) for power in (1, 2))
            norms = squares[size:] - squares[:-size] - (sums[size:] - sums[:-size]) ** 2 / size
            norms = np.sqrt(np.where(norms > 1e-6, norms, np.inf))
            for end in np.cumsum([*map(len, others)])[:-1]:
                norms[max(0, end - size + 1) : end] = np.inf
            self._joined[frequency, size] = whole, norms
        return self._joined[frequency, size]

    def add_table(self, frame: pd.DataFrame) -> None:
        """Add all columns of numbers of a table, by the groups of its texts."""
        texts = frame.select_dtypes(exclude=["number", "bool"]).columns
        is_time = {
            one: bool(re.search(r"(?i)^(quarter|month|week|date|time|year|ds|index|date_?time)$", one)) for one in frame
        }
        times = [one for one in frame if is_time[one]]
        keys = [one for one in texts if not is_time[one] and 1 < frame[one].nunique() < len(frame) / 8]
        frequencies = _frequencies_of(frame[times[0]].astype(str)) if times else [*FREQUENCIES]
        for _, own in frame.groupby(keys, sort=False, dropna=False) if keys else [((), frame)]:
            for column in own.select_dtypes("number"):
                if not NOT_VALUES.search(str(column)) and own[column].notna().sum() >= 13:
                    for frequency in frequencies:
                        self.add(frequency, own[column].dropna())


def _frequencies_of(texts: pd.Series) -> list[str]:
    """Guess the frequency of texts of time from their form, or from their distances."""
    first = texts.iloc[0]
    for pattern, frequency in ((r"Q\d", "Q"), (r"W\d", "W"), (r"\d{4} [A-Z][a-z]{2}$", "M"), (r"^\d{4}$", "Y")):
        if re.search(pattern, first):
            return [frequency]
    stamps = pd.DatetimeIndex(pd.to_datetime(texts.unique()[:500], utc=True, format="mixed", errors="coerce")).dropna()
    days = np.median(np.diff(np.sort(stamps.as_unit("s").asi8))) / 86400 if len(stamps) > 2 else 0
    bounds = (0.03, ["30min", "h"]), (0.9, ["h", "30min"]), (5, ["D", "B"]), (20, ["W"]), (40, ["M"]), (120, ["Q"])
    return next((found for most, found in bounds if days <= most), ["Y"])
