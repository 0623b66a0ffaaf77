"""Means and standard deviations of the rows of a panel, of all series together or of each alone.

What lies in files is read a part after the other.

Shape letters: S series, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tsattn.data.panel import Panel
from tsattn.data.row_ranges import are_first
from tsattn.errors import UserError

__all__ = ["first_rows", "is_before", "moments", "panel_moments", "series_moments"]

_PIECE = 1 << 20  # rows of a mapped array that are held at once
_SMALLEST = 1e-150  # whose squares keep all their digits


def moments(blocks: Iterable[NDArray[np.float64]], names: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each column over the observed training rows; a constant column has scale 1.

    Args:
        blocks: training rows, each `(rows, C)`, NaN where missing; of one alone the result is exact, those of several
            are merged (Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
            variances, 1979).
        names: the C columns, for messages.

    Raises:
        UserError: for a column without one observed value.
    """
    from sklearn.preprocessing import StandardScaler  # half a second, which forecasting with a known scale is spared

    C, rows = len(names), 0
    count, mean, square = np.zeros(C, np.int64), np.zeros(C), np.zeros(C)
    scale: NDArray[np.float64] | None = None
    with np.errstate(over="ignore", invalid="ignore"):  # `scaled_series` refuses values that are too large
        for number, values in enumerate(blocks):
            rows += len(values)
            known = (~np.isnan(values)).sum(axis=0)
            full = known > 0
            if not full.any():
                continue
            one = StandardScaler().fit(values[:, full])
            step, before = np.zeros(C), count.copy()
            step[full] = one.mean_ - np.where(before > 0, mean, 0.0)[full]
            count += known
            square[full] += one.var_ * known[full] + step[full] ** 2 * (before * known / np.maximum(count, 1))[full]
            mean[full] = np.where(
                before[full] > 0, mean[full] + step[full] * (known / np.maximum(count, 1))[full], one.mean_
            )
            scale = np.sqrt(one.var_) if number == 0 and full.all() else None
    empty = np.flatnonzero(count == 0)
    if empty.size:
        raise UserError(f"channel {names[empty[0]]} has no value in the {rows} training rows")
    if scale is None:
        scale = np.sqrt(square / count)
    _check_not_too_small(scale, mean, names)
    scale = np.where(_is_constant(scale, mean), 1.0, scale)
    return tuple(mean.tolist()), tuple(scale.tolist())


def series_moments(
    values: NDArray[np.float64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each channel of each series.

    Args:
        values: `(rows, C)` of all series end to end, NaN where missing or not to be looked at.
        starts: `(S + 1,)` first row of each series, and `rows`.

    Returns:
        two `(S, C)`: means, NaN without an observed value, and standard deviations, 1 where a channel is constant.
    """
    known, lengths = ~np.isnan(values), np.diff(starts)

    def mean_of(part: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            mean: NDArray[np.float64] = np.add.reduceat(np.where(known, part, 0.0), starts[:-1]) / counts
        return mean

    counts = np.add.reduceat(known, starts[:-1], dtype=np.int64)
    with np.errstate(over="ignore"):  # `scaled_series` refuses values that are too large
        mean = mean_of(values)
        scale = np.sqrt(mean_of((values - mean.repeat(lengths, axis=0)) ** 2))
    _check_not_too_small(scale, mean)
    return mean, np.where(_is_constant(scale, mean), 1.0, scale)


def _is_constant(scale: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether what rounding leaves of a constant is all that there is of a standard deviation, of however many rows."""
    constant: NDArray[np.bool_] = ~(scale > 10 * np.finfo(np.float64).eps * np.abs(mean))
    return constant


def _check_not_too_small(scale: NDArray[np.float64], mean: NDArray[np.float64], names: Sequence[str] = ()) -> None:
    """Refuse values whose squares double precision takes for 0, so that they would seem constant.

    Args:
        scale: `(..., C)`.
        mean: `(..., C)`.
        names: the C columns, for the message.
    """
    is_bad = (scale < _SMALLEST) & (np.abs(mean) < _SMALLEST) & (mean != 0)
    if is_bad.any():
        place = int(is_bad.nonzero()[-1][0])
        whose = f"channel {names[place]} has" if names else "a series has"
        raise UserError(
            f"{whose} values around {mean[is_bad].flat[0]:.0e}, too small to compute with: give it in a smaller unit"
        )


def first_rows(panel: Panel, part: NDArray[np.float64], ends: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """The first `ends (S,)` rows of all series, end to end; of arrays in files in several blocks.

    Args:
        panel: the series.
        part: `(rows, n)`, one of its arrays.
        ends: rows of each series.
    """
    if not panel.is_mapped:
        yield part[is_before(ends, panel)]
        return
    for piece in _pieces(0, len(part)):
        kept = are_first(panel.starts, ends, piece)
        if kept.any():
            yield part[piece].astype(np.float64)[kept]


def panel_moments(panel: Panel, ends: NDArray[np.int64] | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What `series_moments` gives of the first `ends (S,)` rows of each series; of all rows without them."""
    means, scales = [], []
    ends = panel.lengths if ends is None else ends
    for block in panel.blocks():
        starts = panel.starts[block.start : block.stop + 1]
        if not panel.is_mapped or len(starts) > 2 or starts[-1] - starts[0] <= _PIECE:
            values = panel.values[starts[0] : starts[-1]].astype(np.float64, copy=False)
            counts = np.arange(len(values)) < (ends[block] + starts[:-1] - starts[0]).repeat(np.diff(starts))
            if not counts.all():
                values = np.where(counts[:, None], values, np.nan)
            mean, scale = series_moments(values, starts - starts[0])
        else:
            mean, scale = _long_moments(panel, block.start, int(ends[block.start]))
        means.append(mean)
        scales.append(scale)
    return np.concatenate(means), np.concatenate(scales)


def _long_moments(panel: Panel, number: int, end: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same of one series that is too long to be held in memory, a part of it after the other."""
    start = int(panel.starts[number])

    def mean_of(what: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
        total, count = np.zeros(len(panel.channels)), np.zeros(len(panel.channels), np.int64)
        for piece in _pieces(start, start + end):
            values = panel.values[piece].astype(np.float64)
            known = ~np.isnan(values)
            total += np.where(known, what(values), 0.0).sum(axis=0)
            count += known.sum(axis=0)
        with np.errstate(invalid="ignore"):
            mean: NDArray[np.float64] = total / count
        return mean

    with np.errstate(over="ignore"):
        mean = mean_of(lambda values: values)
        scale = np.sqrt(mean_of(lambda values: (values - mean) ** 2))
    _check_not_too_small(scale, mean)
    return mean[None], np.where(_is_constant(scale, mean), 1.0, scale)[None]


def _pieces(first: int, end: int) -> Iterator[slice]:
    """Rows, as many at once as may be held."""
    for start in range(first, end, _PIECE):
        yield slice(start, min(start + _PIECE, end))


def is_before(ends: NDArray[np.int64], panel: Panel) -> NDArray[np.bool_]:
    """`(rows,)` whether a row is among the first `ends (S,)` of its series."""
    before: NDArray[np.bool_] = np.arange(len(panel.values)) < (panel.starts[:-1] + ends).repeat(panel.lengths)
    return before
