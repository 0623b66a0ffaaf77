"""Series drawn from Gaussian processes whose covariances are composed at random.

Source: KernelSynth, Ansari et al., *Chronos: Learning the Language of Time Series* (TMLR 2024), section 4.2 and
appendix A: one to five kernels of a bank, joined by `+` or `*` in turn. Here several series are drawn from each
composition, as its decomposition is what costs time, and the bank has sharper periodic kernels as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, toeplitz
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Kernel,
    RationalQuadratic,
    WhiteKernel,
)

__all__ = ["composed_covariance", "kernel_bank", "synthetic_series"]

# steps in a period: days and weeks of quarters of an hour, half-hours and hours; weeks, months and years of days;
# months, quarters and years of weeks; quarters and years of months; years of quarters; decades
_PERIODS = (24, 48, 96, 168, 336, 672, 7, 14, 30, 60, 365, 730, 4, 13, 26, 52, 6, 12, 40, 10)
_SHARPNESS = (1.0, 0.5)  # length scales of periodic kernels: smooth as in the source, and sharper
_MOST_KERNELS = 5
_JITTER = 1e-6  # share of the variance that is added on the diagonal, which makes the decomposition possible
_FLAT = 1e-3  # standard deviation, over that of the process, below which a series is all but constant


def kernel_bank(length: int) -> list[Kernel]:
    """The kernels that compositions are drawn from, for `length` steps from 0 to 1."""
    return [
        *(ExpSineSquared(scale, period / length) for period in _PERIODS for scale in _SHARPNESS),
        *(DotProduct(sigma) for sigma in (0.0, 1.0, 10.0)),
        *(RBF(scale) for scale in (0.1, 1.0, 10.0)),
        *(RationalQuadratic(alpha=alpha) for alpha in (0.1, 1.0, 10.0)),
        *(WhiteKernel(noise) for noise in (0.1, 1.0)),
        ConstantKernel(),
    ]


def synthetic_series(count: int, length: int, *, draws: int = 4, seed: int = 0) -> NDArray[np.float64]:
    """Series of mean 0 and standard deviation 1, the same for the same arguments.

    Args:
        count: of series.
        length: steps of each.
        draws: series drawn from each composition.
        seed: decides all of them.

    Returns:
        `(count, length)`.
    """
    rng = np.random.default_rng(seed)
    made = [_covariance(kernel, length) for kernel in kernel_bank(length)]
    series = np.empty((count, length))
    filled = 0
    for batch in _batches(made, length, draws, rng):
        part = batch[: count - filled]
        series[filled : filled + len(part)] = part
        filled += len(part)
        if filled == count:
            break
    return series


def composed_covariance(parts: list[NDArray[np.float64]], rng: np.random.Generator) -> NDArray[np.float64]:
    """The covariance `(n, n)` of one to five random parts, joined by `+` or `*` in turn.

    Args:
        parts: what there is to choose from: `(n,)` covariances at each distance of a stationary process, or `(n, n)`.
        rng: decides.
    """
    chosen = [parts[number] for number in rng.integers(len(parts), size=rng.integers(1, _MOST_KERNELS + 1))]
    whole = _matrix(chosen[0]).copy()
    for part in chosen[1:]:
        if rng.random() < 0.5:
            whole += _matrix(part)
        else:
            whole *= _matrix(part)
    return whole


def _batches(
    made: list[NDArray[np.float64]], length: int, draws: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    """Series of one composition after another, `(draws or fewer, length)`: without those that are all but constant."""
    diagonal = np.diag_indices(length)
    while True:
        covariance = composed_covariance(made, rng)
        noise = rng.standard_normal((length, draws))
        variance = float(covariance[diagonal].mean())
        covariance[diagonal] += _JITTER * variance
        try:
            root = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue  # products of many kernels can be too close to singular
        drawn = (root @ noise).T
        spread = drawn.std(axis=1, keepdims=True)
        varies = spread[:, 0] > _FLAT * np.sqrt(variance)
        yield ((drawn - drawn.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0))[varies]


def _covariance(kernel: Kernel, length: int) -> NDArray[np.float64]:
    """`(n,)` at each distance of a stationary kernel, else `(n, n)`."""
    steps = np.linspace(0, 1, length)[:, None]
    if isinstance(kernel, WhiteKernel):  # which is zero between two lists of steps, even the same
        return np.where(np.arange(length) == 0, kernel.noise_level, 0.0)
    if kernel.is_stationary():
        column: NDArray[np.float64] = kernel(steps, steps[:1])[:, 0]
        return column
    whole: NDArray[np.float64] = kernel(steps)
    return whole


def _matrix(part: NDArray[np.float64]) -> NDArray[np.float64]:
    whole: NDArray[np.float64] = part if part.ndim == 2 else toeplitz(part)
    return whole
