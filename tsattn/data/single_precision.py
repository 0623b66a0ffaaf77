"""What single precision, in which models compute, leaves of series on their scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsattn.data.panel import Panel

__all__ = ["blurred_series"]

_ROUNDING = 2.0**-24  # of a float32, relative to its size
_NOISE = 2.0**-45  # relative to a float64: smaller changes are what its own rounding leaves
_TOLD = 0.05  # of a change, which rounding may take
_PIECE = 1 << 20  # rows that are looked at together


def blurred_series(scaled: NDArray[np.float64], panel: Panel) -> NDArray[np.int64]:
    """The numbers of the series of which rounding takes a part of most changes from a row to the next.

    Such are small series beside a large one with one scale for all, and one whose outlier decides its scale.

    Args:
        scaled: `(rows, C)` what is rounded, NaN where missing.
        panel: the series.
    """
    blurred, changes = np.zeros(len(panel), np.int64), np.zeros(len(panel), np.int64)
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    for begin in range(0, len(scaled) - 1, _PIECE):
        rows = slice(begin + 1, min(begin + 1 + _PIECE, len(scaled)))
        before = slice(rows.start - 1, rows.stop - 1)
        size = np.maximum(np.abs(scaled[rows]), np.abs(scaled[before]))
        with np.errstate(invalid="ignore"):
            step = np.abs(scaled[rows] - scaled[before])
            is_change = (step > _NOISE * size) & (owner[rows] == owner[before])[:, None]
            is_blurred = is_change & (_ROUNDING * size > _TOLD * step)
        blurred += np.bincount(owner[rows], is_blurred.sum(axis=1), len(panel)).astype(np.int64)
        changes += np.bincount(owner[rows], is_change.sum(axis=1), len(panel)).astype(np.int64)
    return np.flatnonzero(2 * blurred > changes)
