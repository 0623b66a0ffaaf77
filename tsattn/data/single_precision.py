"""What single precision, in which models compute, leaves of series on their scale.

Shape letters: S series, n columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["blurred_columns", "farthest_row"]

_ROUNDING = 2.0**-24  # of a float32, relative to its size
_DOUBLE = 2.0**-53  # of a float64
_NOISE = 2.0**-45  # relative to a float64: smaller changes are what its own rounding leaves
_TOLD = 0.05  # of a change, which rounding may take
_FAR = 2.0**-30  # smaller than this part of the value beside it, a value is next to an outlier
_PIECE = 1 << 20  # numbers that are looked at together


def blurred_columns(
    part: NDArray[np.float64], mean: NDArray[np.float64], starts: NDArray[np.int64], *, together: bool = False
) -> NDArray[np.bool_]:
    """The series and columns of which rounding takes a part of most changes from a row to the next.

    So are small series beside a large one with one scale for all, and one whose outlier decides its scale: steps from
    or to an outlier do not count. Where a value does not change, rounding may take a part of the value itself, of zero
    a part of one.

    Args:
        part: `(rows, n)` of all series end to end, NaN where missing.
        mean: `(S, n)` that is subtracted before rounding.
        starts: `(S + 1,)` first row of each series, and `rows`.
        together: whether the changes of all series count together.

    Returns:
        `(S, n)`, or `(1, n)` together.
    """
    S, n = mean.shape
    blurred, counted = np.zeros(S * n, np.int64), np.zeros(S * n, np.int64)
    piece = max(1, _PIECE // n)
    for begin in range(0, len(part) - 1, piece):
        values = np.asarray(part[begin : begin + 1 + piece], dtype=np.float64)
        owner = starts.searchsorted(np.arange(begin, begin + len(values)), side="right") - 1
        center, size = mean[owner], np.abs(values)
        with np.errstate(invalid="ignore"):
            lost = _ROUNDING * np.abs(values - center) + _DOUBLE * np.abs(center)
            step = np.abs(np.diff(values, axis=0))
            larger = np.maximum(size[1:], size[:-1])
            is_change = step > _NOISE * larger
            is_near = np.minimum(size[1:], size[:-1]) >= _FAR * larger
            level = np.where(size[1:] == 0, 1.0, size[1:])
            is_blurred = np.maximum(lost[1:], lost[:-1]) > _TOLD * np.where(is_change, step, level)
        is_counted = is_near & (owner[1:] == owner[:-1])[:, None]
        place = owner[1:, None] * n + np.arange(n)
        counted += np.bincount(place[is_counted], minlength=S * n)
        blurred += np.bincount(place[is_counted & is_blurred], minlength=S * n)
    both = blurred.reshape(S, n), counted.reshape(S, n)
    taken, of = (one.sum(axis=0, keepdims=True) for one in both) if together else both
    most: NDArray[np.bool_] = 2 * taken > of
    return most


def farthest_row(column: NDArray[np.float64], center: float, first: int = 0, end: int | None = None) -> int:
    """The row, of those from `first` to before `end`, whose value is the farthest from a center."""
    best, at = -1.0, first
    end = len(column) if end is None else end
    for begin in range(first, end, _PIECE):
        away = np.nan_to_num(np.abs(column[begin : min(begin + _PIECE, end)] - center), nan=-1.0)
        if away.max() > best:
            best, at = float(away.max()), begin + int(away.argmax())
    return at
