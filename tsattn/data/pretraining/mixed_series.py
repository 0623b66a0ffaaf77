"""Stretches of real series, averaged over a few rows and added up with random weights.

Source: TSMixup, Ansari et al., *Chronos: Learning the Language of Time Series* (TMLR 2024), section 4.1. Here a stretch
may first be averaged over neighbouring rows, so that one series shows the seasons of several frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["mixed_series"]

_MOST_PARTS = 3
_CONCENTRATION = 1.5  # of the Dirichlet distribution of the weights
_ROWS = (1, 2, 3, 6)  # that are averaged


def mixed_series(
    sources: Mapping[str, Sequence[NDArray[np.float64]]], count: int, length: int, *, seed: int = 0
) -> list[NDArray[np.float64]]:
    """Series of mean 0 and standard deviation 1, the same for the same arguments; NaN where a part has no value.

    A source is chosen in proportion to the root of its rows, so that large ones do not drown small ones.

    Args:
        sources: the series of each data set.
        count: of series.
        length: steps of each, or fewer where a source has fewer.
        seed: decides all of them.
    """
    rng = np.random.default_rng(seed)
    names = [*sources]
    rows = np.sqrt([sum(map(len, sources[name])) for name in names])
    mixed: list[NDArray[np.float64]] = []
    while len(mixed) < count:
        parts = [
            _stretch(sources[names[rng.choice(len(names), p=rows / rows.sum())]], length, rng)
            for _ in range(rng.integers(1, _MOST_PARTS + 1))
        ]
        weights = rng.dirichlet(np.full(len(parts), _CONCENTRATION))
        steps = min(map(len, parts))
        whole = sum(weight * _standardised(part[-steps:]) for weight, part in zip(weights, parts, strict=True))
        series = _standardised(np.asarray(whole))
        if np.isfinite(series).any():
            mixed.append(series)
    return mixed


def _stretch(series: Sequence[NDArray[np.float64]], length: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """At most `length` steps of one of the series, each the mean of a few rows where it has as many."""
    one = series[int(rng.integers(len(series)))]
    rows = int(rng.choice([rows for rows in _ROWS if rows * length <= len(one)] or [1]))
    steps = min(length, len(one) // rows)
    first = rng.integers(len(one) - rows * steps + 1)
    averaged: NDArray[np.float64] = one[first : first + rows * steps].reshape(steps, rows).mean(axis=1)
    return averaged


def _standardised(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of mean 0 and standard deviation 1 over what is there; NaN throughout where nothing is there or varies."""
    known = series[~np.isnan(series)]
    spread = known.std() if len(known) else 0.0
    return (series - known.mean()) / spread if spread > 0 else np.full_like(series, np.nan)
