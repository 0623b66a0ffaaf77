"""Draw synthetic series that look like those of businesses, economies, sensors, energy, traffic and health.

Each row draws its kind from `KINDS`, its period, all parameters, its breaks, outliers, gaps and scale; no series comes
twice. `kinds.py` has the kinds and cites its sources. Write `draw(np.random.default_rng(seed), count, length)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.pretraining import kinds
from benchmarks.pretraining.kinds import Random, Series, log_uniform, reined, unit

ODD, NO = 0, -1  # stand for a period from 2 to 700 that need not be whole, and for no season at any frequency
BUSINESS = {12: 5.0, 4: 3.0, 52: 1.2, 7: 0.8, 1: 1.5, 24: 0.4, 6: 0.1, 13: 0.1, ODD: 0.2}
DAYS = {24: 4.0, 48: 3.0, 96: 1.0, 144: 0.6, 288: 0.6}
ANY = {
    12: 3.0,
    4: 1.5,
    24: 2.0,
    7: 1.5,
    52: 2.0,
    48: 0.8,
    96: 0.4,
    144: 0.2,
    168: 0.2,
    288: 0.2,
    60: 0.3,
    365: 0.2,
    ODD: 1.5,
}
FORMS = {ODD: 4.0, 24: 1.0, 12: 1.0, 7: 0.5, 48: 0.5, 96: 0.5, 288: 0.3}
YEAR, NONE, WEEK = {1: 1.0}, {NO: 1.0}, {7: 1.0}


@dataclass(frozen=True)
class Kind:
    """A kind of series: how often it comes, its function, its periods, and how its values are finished.

    Values of a `positive` kind are multiplied by a scale, those of a `free` one are also moved; `whole` ones stay.
    """

    weight: float
    make: Callable[[Random, int, float], Series]
    periods: Mapping[int, float]
    form: str


KINDS = {
    "smoothing": Kind(0.24, kinds.smoothing, BUSINESS, "positive"),
    "decomposed": Kind(0.15, kinds.decomposed, ANY, "positive"),
    "sarima": Kind(0.09, kinds.sarima, BUSINESS, "positive"),
    "economy": Kind(0.1, kinds.economy, YEAR, "positive"),
    "walk": Kind(0.05, kinds.walk, NONE, "positive"),
    "crowd": Kind(0.09, kinds.crowd, DAYS, "whole"),
    "demand": Kind(0.06, kinds.demand, DAYS, "positive"),
    "sunlight": Kind(0.015, kinds.sunlight, DAYS, "positive"),
    "price": Kind(0.035, kinds.price, DAYS, "positive"),
    "daily": Kind(0.04, kinds.daily, WEEK, "whole"),
    "counts": Kind(0.04, kinds.counts, BUSINESS, "whole"),
    "intermittent": Kind(0.02, kinds.intermittent, BUSINESS, "whole"),
    "sensor": Kind(0.04, kinds.sensor, ANY, "free"),
    "mixture": Kind(0.035, kinds.mixture, ANY, "free"),
    "form": Kind(0.025, kinds.form, FORMS, "free"),
    "switch": Kind(0.01, kinds.switch, NONE, "free"),
}

# shares of rows; a period is forgotten or replaced in what the forecaster gets to know
FORGOTTEN, WRONG, NAMED = 0.07, 0.06, 0.4  # NAMED: rows without a season that still have a calendar
BREAKS, DIPS, OUTLIERS, SPREADS, STUCK, LAUNCHED, CLIPPED = 0.1, 0.08, 0.12, 0.03, 0.015, 0.015, 0.02
ROUNDED, MISSING = 0.35, 0.12
CALENDARS = (12, 4, 24, 7, 52, 48, 96)


def draw(rng: Random, count: int, length: int) -> tuple[Series, NDArray[np.int64]]:
    """Draw `count` series of `length` steps, and the period that a forecaster would know of each.

    Returns:
        Values `(count, length)`, NaN where missing, and periods `(count,)`, 1 where none is known.
    """
    values, seasons = np.empty((count, length)), np.empty(count, np.int64)
    weights = np.cumsum([kind.weight for kind in KINDS.values()])
    for row, place in enumerate(rng.random(count) * weights[-1]):
        kind = [*KINDS.values()][int(np.searchsorted(weights, place, side="right"))]
        period = _period(rng, kind.periods, length)
        series = kind.make(rng, length, max(period, 1.0))
        if kind.form != "whole":
            series = _scaled(rng, _modified(rng, _moved(rng, series) if kind.form == "free" else series))
        if not _varies(series):
            period, series = NO, 100 + reined(np.cumsum(rng.standard_normal(length)), 90)
        values[row], seasons[row] = _with_gaps(rng, series), _known_period(rng, period)
    return values, seasons


def _varies(series: Series) -> bool:
    return bool(np.isfinite(series).all() and np.ptp(series) > 1e-6 * (np.abs(series).max() + 1e-12))


def _period(rng: Random, periods: Mapping[int, float], length: int) -> float:
    """Draw a period, preferring those that come twice within the length."""
    weights, period = np.cumsum([*periods.values()]), 1.0
    for _ in range(4):
        period = float([*periods][int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))])
        if period == ODD:
            period = log_uniform(rng, 2, 700)
            period = round(period) if rng.random() < 0.6 else round(period, 1)
        if 2 * period <= length:
            break
    return period


def _known_period(rng: Random, period: float) -> int:
    place, other = rng.random(), CALENDARS[rng.integers(len(CALENDARS))]
    if period == NO:
        return other if place < NAMED else 1
    if place < WRONG:
        return other
    return 1 if place < WRONG + FORGOTTEN else round(period)


def _moved(rng: Random, series: Series) -> Series:
    """Move a series to where it is positive, mostly."""
    place, series = rng.random(), unit(series)
    if place < 0.3:
        return series
    return series - series.min() + np.ptp(series) * (0.0 if place < 0.4 else log_uniform(rng, 0.02, 10))


def _modified(rng: Random, series: Series) -> Series:
    """Break levels and spreads, add dips and outliers, hold values, begin late, clip."""
    length, positive = len(series), bool(series.min() >= 0)
    time, size = np.arange(length), series.std()
    places = rng.random(7) < (BREAKS, DIPS, OUTLIERS, SPREADS, STUCK, LAUNCHED, CLIPPED)
    if not places.any():
        return series
    at = int(rng.integers(length))
    if places[0]:
        series = np.where(
            time >= at, series * math.exp(rng.normal(0, 0.35)) if positive else series + 2 * size * rng.normal(), series
        )
    if places[1]:  # a strike: off for a while; or a pandemic: down at once, back over steps
        after, lasts = time - at, log_uniform(rng, 0.5, 30)
        depth = np.where(after < 0, 0, np.exp(-np.maximum(after, 0) / lasts) if rng.random() < 0.6 else after < lasts)
        depth = depth * min(1, 1.3 * rng.beta(1.5, 1))
        series = series * (1 - depth) if positive else series - 3 * size * depth
    if places[2]:
        hit = rng.random(length) < rng.choice((0.3, 2, 5)) / max(length, 100)
        hit[at] = True
        far = rng.standard_t(2.5, hit.sum()) * 3
        series[hit] = (
            series[hit] * np.exp(np.clip(0.3 * far, -3, 2)) if positive else series[hit] + size * np.clip(far, -20, 20)
        )
    if places[3]:
        series = np.where(time < at, series.mean() + (series - series.mean()) * log_uniform(rng, 0.1, 1), series)
    if places[4]:
        series[at : at + int(rng.integers(2, max(3, length // 8)))] = series[at]
    if places[5] and positive:
        series = np.where(time < at // 2, 0.0, series)
    if places[6]:
        series = np.minimum(series, np.quantile(series, rng.uniform(0.7, 0.98)))
    return series


def _scaled(rng: Random, series: Series) -> Series:
    """Give a series a scale, from 1e-3 to 1e9, and at times few digits."""
    scale = 10 ** np.clip(rng.normal(2.5, 2), -3, 9)
    series = series * scale / (np.abs(series).mean() + 1e-12)
    if rng.random() < ROUNDED:
        size = series.std() + 1e-300
        fine = 10 ** math.floor(math.log10(size * log_uniform(rng, 0.001, 0.4)))
        series = np.round(series / fine) * fine
    return series


def _with_gaps(rng: Random, series: Series) -> Series:
    """Leave out steps at random, or a few stretches, but most of the series stays."""
    if rng.random() >= MISSING:
        return series
    length, series = len(series), series.copy()
    if rng.random() < 0.5:
        series[rng.random(length) < log_uniform(rng, 0.003, 0.3)] = np.nan
    else:
        for _ in range(rng.integers(1, 5)):
            first = rng.integers(length)
            series[first : first + int(length * log_uniform(rng, 0.005, 0.12)) + 1] = np.nan
    return series
