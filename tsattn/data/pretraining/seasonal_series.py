"""Series drawn from Gaussian processes with the seasons, levels and noise that measured series have.

The compositions of `kernel_synth` have few seasons that last: products of kernels dim them. Here each process is a sum
of a season whose form changes slowly (quasi-periodic: Rasmussen & Williams, *Gaussian Processes for Machine Learning*,
2006, section 5.4.3), often of a second one, of a smooth level, of short memory (Ornstein-Uhlenbeck) and of noise, each
of random weight. Some series are exponentials of such, as what cannot be negative.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, toeplitz

__all__ = ["seasonal_covariance", "seasonal_series"]

# steps in a season, and how often it comes: days of hours, half-hours, quarters of an hour and ten minutes; weeks and
# years of days; years of weeks and months; weeks of hours and half-hours; and others
_SEASONS = {
    **{24: 5.0, 48: 3.0, 96: 1.5, 144: 1.5, 7: 2.0, 365: 0.5, 52: 1.5, 12: 1.5, 168: 1.0, 336: 0.5},
    **{30: 1.0, 4: 0.5, 6: 0.5, 13: 0.5, 60: 0.5, 288: 0.5},
}
_DAYS = (24, 48, 96)  # which often have a week beside them
_SECOND, _WEEK = 0.35, 0.6  # shares of processes with a second season, and of days' whose second is the week
_LEVEL, _MEMORY, _NOISE = 0.8, 0.6, 0.8  # shares of processes that have one
_NOISE_SIZE = 0.3
_POSITIVE = 0.15  # share of the series that are exponentials
_JITTER = 1e-5  # share of the variance that is added on the diagonal, which makes the decomposition possible


def seasonal_series(count: int, length: int, *, draws: int = 4, seed: int = 0) -> NDArray[np.float64]:
    """Series of mean 0 and standard deviation 1, the same for the same arguments.

    Args:
        count: of series.
        length: steps of each.
        draws: series drawn from each process, as its decomposition is what costs time.
        seed: decides all of them.

    Returns:
        `(count, length)`.
    """
    rng = np.random.default_rng(seed)
    series = np.empty((count, length))
    filled = 0
    while filled < count:
        covariance = seasonal_covariance(length, rng)
        noise = rng.standard_normal((length, draws))
        try:
            root = cholesky(toeplitz(covariance), lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue  # very smooth processes can be too close to singular
        for drawn in (root @ noise).T[: count - filled]:
            if rng.random() < _POSITIVE:
                drawn = np.exp(drawn / drawn.std() * rng.uniform(0.3, 0.9))
            series[filled] = (drawn - drawn.mean()) / drawn.std()
            filled += 1
    return series


def seasonal_covariance(length: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """The covariance `(length,)` of a random process at distances of 0, 1, ... steps.

    Args:
        length: distances.
        rng: decides.
    """
    seasons, weights = np.array([*_SEASONS]), np.array([*_SEASONS.values()])

    def drawn_season() -> int:
        return int(rng.choice(seasons, p=weights / weights.sum()))

    distance = np.arange(length)
    first = drawn_season()
    covariance = rng.gamma(2.0) * _quasi_periodic(distance, first, rng)
    if rng.random() < _SECOND:
        second = 7 * first if first in _DAYS and rng.random() < _WEEK else drawn_season()
        covariance += rng.gamma(1.0) * _quasi_periodic(distance, second, rng)
    if rng.random() < _LEVEL:
        covariance += rng.gamma(1.0) * np.exp(-0.5 * (distance / _log_uniform(20, 1500, rng)) ** 2)
    if rng.random() < _MEMORY:
        covariance += rng.gamma(1.0) * np.exp(-distance / _log_uniform(2, 200, rng))
    if rng.random() < _NOISE:
        covariance[0] += _NOISE_SIZE * rng.gamma(1.0)
    covariance[0] *= 1 + _JITTER
    return covariance


def _quasi_periodic(distance: NDArray[np.int64], season: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A season of smooth or sharp form, that is forgotten after a few seasons or after hundreds."""
    smoothness, seasons = _log_uniform(0.3, 2, rng), _log_uniform(3, 300, rng)
    form = np.exp(-2 * np.sin(np.pi * distance / season) ** 2 / smoothness**2)
    return np.asarray(form * np.exp(-0.5 * (distance / (seasons * season)) ** 2))


def _log_uniform(low: float, high: float, rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
