"""How the steps of a horizon hang together, and paths that do, of forecasts that say each step by itself.

Each validation window says of each step how much of the forecast distribution lies below what came. The ranks of these
over all windows, as normal scores, have a correlation of T x T, which is a Gaussian copula of the steps.

Source: Pinson et al., *From Probabilistic Forecasts to Statistical Scenarios of Short-term Wind Power Production*
(2009). Draws of each step are reordered by the ranks of the copula, so that their marginals stay those of the forecast:
the Schaake shuffle of Clark et al. (2004), whose template is drawn here instead of taken from the past. Few paths have
too few ranks to hang together by, and take the draws of the copula as they are.

Shape letters: B windows, T horizon, C channels, N paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

__all__ = ["StepCopula"]

_LEAST = 1e-6  # eigenvalue
# paths: where a level lies within its N-th is drawn for each step by itself, which tells in the steps of fewer
_LEAST_RANKED = 100
_LEAST_WINDOWS, _WINDOWS_A_STEP = 20, 2


@dataclass(frozen=True, eq=False)
class StepCopula:
    """A Gaussian copula of the steps of a horizon.

    Attributes:
        correlation: `(T, T)` float64.
        windows: that it was found in, each channel of a window being one; None where that is not known.
    """

    correlation: NDArray[np.float64]
    windows: int | None = None

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Self:
        """The copula of the ranks of scores.

        It is shrunk towards independent steps, the more so the fewer windows there are, see
        `sklearn.covariance.ledoit_wolf_shrinkage`.

        Args:
            scores: `(windows, T)`, NaN where a step was not observed.
        """
        known = ~np.isnan(scores)
        ranks = stats.rankdata(scores, axis=0, nan_policy="omit")
        normal = np.where(known, special.ndtri((ranks - 0.5) / np.maximum(known.sum(0), 1)), 0.0)
        pairs = known.T.astype(float) @ known
        together = normal.T @ normal / np.maximum(pairs, 1)
        deviation = np.sqrt(np.maximum(np.diag(together), _LEAST))
        correlation = together / np.outer(deviation, deviation)
        from sklearn.covariance import ledoit_wolf_shrinkage  # slow to import, and paths are rarely asked for

        shrinkage = ledoit_wolf_shrinkage(normal, assume_centered=True) if len(scores) > 1 else 1.0
        identity = np.eye(len(correlation))
        values, vectors = np.linalg.eigh((1 - shrinkage) * correlation + shrinkage * identity)
        fitted = (vectors * np.maximum(values, _LEAST)) @ vectors.T
        deviation = np.sqrt(np.diag(fitted))
        return cls(fitted / np.outer(deviation, deviation), len(scores))

    @property
    def needed_windows(self) -> int:
        """The fewest windows that say how so many steps hang together.

        Of an autoregression, with windows that begin a step apart, totals over the horizon then vary at least four
        fifths as much as they should; with fewer the shrinkage makes steps ever more independent.
        """
        return max(_LEAST_WINDOWS, _WINDOWS_A_STEP * len(self.correlation))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it, as arrays by name."""
        windows = {} if self.windows is None else {"windows": np.array([self.windows], np.int64)}
        return {"correlation": self.correlation, **windows}

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The copula of what `arrays` gave."""
        return cls(arrays["correlation"], int(arrays["windows"][0]) if "windows" in arrays else None)

    def levels(self, generators: Sequence[np.random.Generator], steps: int, channels: int, paths: int) -> Tensor:
        """Levels `(B, steps, C, N)` of paths: of 100 paths or more, at each step one lies in each N-th of (0, 1).

        Horizons longer than T are drawn in stretches of T that do not hang together. Channels do not, either.

        Args:
            generators: B of them, one a window, whose draws do not depend on the others.
            steps: of the horizon.
            channels: C.
            paths: N.
        """
        T = len(self.correlation)
        root = np.linalg.cholesky(self.correlation).T
        stretches = -(-steps // T)
        drawn = np.empty((len(generators), stretches * T, channels, paths))
        for window, generator in zip(drawn, generators, strict=True):
            normal = generator.standard_normal((stretches, channels, paths, T)) @ root
            if paths < _LEAST_RANKED:
                levels = special.ndtr(normal)
            else:
                levels = (normal.argsort(2).argsort(2) + generator.random(normal.shape)) / paths
            window[:] = levels.transpose(0, 3, 1, 2).reshape(window.shape)
        return torch.from_numpy(drawn[:, :steps].clip(1e-12, 1 - 1e-12))
