"""What single precision, in which models compute, leaves of series on their scale, and values too far to be measured.

Shape letters: S series, n columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tsattn.data.panel import Panel
from tsattn.data.table_rows import listed
from tsattn.errors import shown

__all__ = ["EMPTY_IT", "LARGEST", "blurred_columns", "cell_words", "warn_of_far", "warn_of_rounding"]

logger = logging.getLogger("tsattn")

EMPTY_IT = "empty that cell if it means missing"
LARGEST = 1e17  # standard deviations from the mean: a thousand squares of it are a number of single precision
_FARTHEST = 1e5  # standard deviations; what is measured does not change so much
_FARTHEST_OF_CONSTANT = 1e15  # a product that starts late is far from its zeros, too
_ROUNDING = 2.0**-24  # of a float32, relative to its size
_DOUBLE = 2.0**-53  # of a float64
_NOISE = 2.0**-45  # relative to a float64: smaller changes are what its own rounding leaves
_TOLD = 0.05  # of a change, which rounding may take
_FAR = 2.0**-30  # smaller than this part of the value beside it, a value is next to an outlier
_RARE = 0.01  # of the values of a series: fewer that are not zero may be fill values
_PIECE = 1 << 20  # numbers that are looked at together


def warn_of_rounding(
    panel: Panel, mean: NDArray[np.float64], centers: Mapping[str, NDArray[np.float64]], scaling: str
) -> None:
    """Log the series and covariates that are lost beside a value that makes their scale, and that value.

    `mean (S, C)` is subtracted from the targets, and `centers` from the covariates of their arrays.
    """
    blurred = np.argwhere(blurred_columns(panel.values, mean, panel.starts))
    if blurred.size:
        series, channel = blurred[0].tolist()
        is_shared = scaling != "series" and len(panel) > 1
        rows = (0, len(panel.values)) if is_shared else panel.starts[series : series + 2].tolist()
        row = _farthest_row(panel.values[:, channel], mean[series, channel], *rows)
        names = panel.channels if panel.is_wide else panel.ids
        lost = np.unique(blurred[:, 1 if panel.is_wide else 0])
        logger.warning(
            "%d of %d series (%s) change by less than single precision tells apart: %s; %s%s",
            *(len(lost), len(names), listed([names[number] for number in lost.tolist()])),
            *(cell_words(panel, "values", (row, channel)), EMPTY_IT),
            ", or give each series its own scale (scaling: series)" if is_shared else "",
        )
    for name, center in centers.items():
        part = getattr(panel, name)
        names = panel.past_names if name == "past_covariates" else panel.future_names
        blurred = blurred_columns(part, np.tile(center, (len(panel), 1)), panel.starts, together=True)[0]
        for place in np.flatnonzero(blurred).tolist():
            row = _farthest_row(part[:, place], center[place], 0, len(part))
            what = f"covariate {shown(names[place])}"
            logger.warning(
                "%s changes by less than single precision tells apart: it%s; %s",
                *(what, cell_words(panel, name, (row, place)).removeprefix(what), EMPTY_IT),
            )


def blurred_columns(
    part: NDArray[np.float64], mean: NDArray[np.float64], starts: NDArray[np.int64], *, together: bool = False
) -> NDArray[np.bool_]:
    """Find the series and columns of which rounding takes a part of most changes from a row to the next.

    Steps from or to an outlier do not count. Where no other step changes, rounding may take a part of the values
    themselves: of zeros a part of the smallest other value, or of one where the others seem to be fill values.

    From `(rows, n)` end to end, NaN where missing, `mean (S, n)` is subtracted before rounding. The result
    is `(S, n)`, or `(1, n)` where the changes of all series count `together`.
    """
    S, n = mean.shape
    tallies = np.zeros((5, S * n), np.int64)  # changes, blurred ones, values, zeros, values that are blurred themselves
    smallest, largest = np.full((S, n), np.inf), np.zeros((S, n))  # of the sizes that are not zero
    piece = max(1, _PIECE // n)
    for begin in range(0, len(part), piece):
        values = np.asarray(part[begin : begin + 1 + piece], dtype=np.float64)
        owner = starts.searchsorted(np.arange(begin, begin + len(values)), side="right") - 1
        center, size = mean[owner], np.abs(values)
        with np.errstate(invalid="ignore"):
            lost = _ROUNDING * np.abs(values - center) + _DOUBLE * np.abs(center)
            step = np.abs(np.diff(values, axis=0))
            larger = np.maximum(size[1:], size[:-1])
            is_near = np.minimum(size[1:], size[:-1]) >= _FAR * larger
            is_change = (step > _NOISE * larger) & is_near & (owner[1:] == owner[:-1])[:, None]
            is_blurred = is_change & (np.maximum(lost[1:], lost[:-1]) > _TOLD * step)
        size, lost, owner = size[:piece], lost[:piece], owner[:piece]  # one row more made the last step
        place = owner[:, None] * n + np.arange(n)
        counted = is_change, is_blurred, ~np.isnan(size), size == 0, (size > 0) & (lost > _TOLD * size)
        for tally, which in zip(tallies, counted, strict=True):
            tally += np.bincount(place[: len(which)][which], minlength=S * n)
        numbers, first = np.unique(owner, return_index=True)
        least = np.minimum.reduceat(np.where(size > 0, size, np.inf), first, axis=0)
        smallest[numbers] = np.minimum(smallest[numbers], least)
        largest[numbers] = np.maximum(largest[numbers], np.maximum.reduceat(np.nan_to_num(size), first, axis=0))
    shaped, center = tallies.reshape(5, S, n), np.abs(mean)
    if together:
        shaped, center = shaped.sum(axis=1, keepdims=True), center.max(axis=0, keepdims=True)
        smallest, largest = smallest.min(axis=0, keepdims=True), largest.max(axis=0, keepdims=True)
    changes, blurred, present, zeros, lost_values = shaped
    is_fill = (present - zeros < _RARE * present) | ((smallest == largest) & (smallest * _FAR >= 1))
    is_zero_lost = (_ROUNDING + _DOUBLE) * center > _TOLD * np.where(is_fill, 1.0, smallest)
    lost_values = lost_values + np.where(is_zero_lost, zeros, 0)
    # a quarter, as half of the values may be fill values
    most: NDArray[np.bool_] = np.where(changes > 0, 2 * blurred > changes, 4 * lost_values > present)
    return most


def _farthest_row(column: NDArray[np.float64], center: float, first: int, end: int) -> int:
    """The row, of those from `first` to before `end`, whose value is the farthest from a center."""
    best, at = -1.0, first
    for begin in range(first, end, _PIECE):
        away = np.nan_to_num(np.abs(column[begin : min(begin + _PIECE, end)] - center), nan=-1.0)
        if away.max() > best:
            best, at = float(away.max()), begin + int(away.argmax())
    return at


def cell_words(panel: Panel, name: str, place: tuple[int, int]) -> str:
    """Describe the number at a row and column of the array `name` of a panel."""
    row, column = place
    number = getattr(panel, name)[row, column]
    series = panel.ids[panel.starts.searchsorted(row, side="right") - 1]
    if name == "values":
        whose = panel.channels[column] if panel.is_wide else series
        return f"series {shown(whose)} has the value {number:g} at {panel.time[row]}"
    covariate = (panel.past_names if name == "past_covariates" else panel.future_names)[column]
    of = "" if panel.is_wide else f" of series {shown(series)}"
    return f"covariate {shown(covariate)} is {number:g} at {panel.time[row]}{of}"


def warn_of_far(
    scaled: NDArray[np.float64], scale: NDArray[np.float64], words: Callable[[tuple[int, ...]], str]
) -> bool:
    """Log the value farthest from the mean of the training rows, if it is too far to be measured; whether one is.

    `scaled` is ``(value - mean) / scale`` of the training rows, and `scale` 1 where they are constant.
    """
    size = np.abs(scaled)
    is_far = size > np.where(scale == 1, _FARTHEST_OF_CONSTANT, _FARTHEST)
    if not is_far.any():
        return False
    place = tuple(map(int, np.unravel_index(np.where(is_far, size, 0).argmax(), size.shape)))
    logger.warning(
        "%s, %.0e standard deviations from the mean of the training rows; %s", words(place), size[place], EMPTY_IT
    )
    return True
