"""The second pass over a table larger than memory: means and standard deviations of training rows.

Shape letters: S series, C channels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsattn.data.mapped.series_keys import SeriesKeys
from tsattn.data.mapped.source import TableSource, target_values
from tsattn.errors import UserError, shown

__all__ = ["Moments", "read_moments"]


class Moments:
    """Mean and sum of squared deviations of each channel of each series, batch by batch.

    Batches are merged by the formula of Chan, Golub and LeVeque (Updating formulae and a pairwise algorithm for
    computing sample variances, 1979). Each series is counted from its first value, so that a constant one has a
    deviation of exactly 0.
    """

    def __init__(self, num_series: int, num_channels: int) -> None:
        shape = num_series, num_channels
        self.count, self.mean, self.square = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
        self.base = np.full(shape, np.nan)

    def add(self, series: slice, begins: NDArray[np.int64], lengths: NDArray[np.int64], x: NDArray[np.float64]) -> None:
        """Some rows, `(rows, C)`, NaN where they do not count."""
        known = ~np.isnan(x)
        count = np.add.reduceat(known, begins, dtype=np.int64)
        if np.isnan(self.base[series]).any():
            places = np.where(known, np.arange(len(x))[:, None], len(x) - 1)
            first = np.take_along_axis(x, np.minimum.reduceat(places, begins), axis=0)
            self.base[series] = np.where(np.isnan(self.base[series]), first, self.base[series])
        from_base = np.where(known, x - self.base[series].repeat(lengths, axis=0), 0.0)
        with np.errstate(invalid="ignore"):
            mean = np.where(count > 0, np.add.reduceat(from_base, begins) / count, 0.0)
        square = np.add.reduceat(np.where(known, from_base - mean.repeat(lengths, axis=0), 0.0) ** 2, begins)
        before, total = self.count[series], np.maximum(self.count[series] + count, 1)
        step = mean - self.mean[series]
        self.square[series] += square + step**2 * (before * count / total)
        self.mean[series] += step * (count / total)
        self.count[series] += count

    def each(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What `series_moments` gives: two `(S, C)`, means, NaN without a value, and standard deviations."""
        mean = np.where(self.count > 0, self.base + self.mean, np.nan)
        return mean, _scale(self.square, self.count, mean)

    def all(self, channels: tuple[str, ...], num_rows: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What the function `moments` gives, for the rows of all series."""
        count = self.count.sum(axis=0)
        empty = np.flatnonzero(count == 0)
        if empty.size:
            raise UserError(f"channel {channels[empty[0]]} has no value in the {num_rows} training rows")
        base = np.nanmin(self.base, axis=0)
        own = np.where(self.count > 0, self.base - base + self.mean, 0.0)
        mean = (self.count * own).sum(axis=0) / count
        square = (self.square + self.count * (own - mean) ** 2).sum(axis=0)
        scale = _scale(square, count, base + mean)
        return tuple((base + mean).tolist()), tuple(scale.tolist())


def _scale(square: NDArray[np.float64], count: NDArray[np.int64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation; 1 for a constant, where rounding leaves no scale."""
    scale = np.sqrt(square / np.maximum(count, 1))
    return np.where(scale > 10 * np.finfo(np.float64).eps * np.abs(mean), scale, 1.0)


def read_moments(source: TableSource, keys: SeriesKeys, last_fitted: NDArray[np.int64] | None) -> tuple[Moments, int]:
    """Second pass: statistics of the first rows of each series, and how many values of all rows are missing.

    Args:
        source: the table.
        keys: its series.
        last_fitted: `(S,)` how many rows of each count; None for none.
    """
    channels = source.roles.target
    moments = Moments(len(keys.ids), len(channels))
    missing = np.zeros((len(keys.ids), len(channels)), np.int64)
    for rows in source.targets():
        x = target_values(rows, channels)
        series, begins, lengths = keys.pieces(rows)
        is_missing = np.isnan(x)
        if is_missing.any():
            missing[series] += np.add.reduceat(is_missing, begins, dtype=np.int64)
        if last_fitted is not None:
            numbers = np.arange(rows.start, rows.start + len(x)) - keys.starts[:-1][series].repeat(lengths)
            counts = numbers < last_fitted[series].repeat(lengths)
            if counts.any():
                x[~counts] = np.nan
                moments.add(series, begins, lengths, x)
    empty = np.argwhere(missing == keys.lengths[:, None])
    if empty.size:
        number, channel = empty[0].tolist()
        of = "" if source.roles.id is None else f" of series {shown(keys.ids[number])}"
        raise UserError(
            f"{source.path}: every value of {shown(channels[channel])}{of} is missing; at least one is needed"
        )
    return moments, int(missing.sum())
