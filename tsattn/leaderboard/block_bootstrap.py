"""A bootstrap of mean errors over blocks of time.

Two sources make the mean error of a trained model what it is: the stretch of time it was tested on, and the seed of its
training. Both are drawn anew, independently of each other, as they are crossed: every seed has an error in every window
(the bootstrap of crossed factors, Owen 2007, *The pigeonhole bootstrap*, Annals of Applied Statistics 1(2)). Here it is
time; `tsattn.leaderboard.seed_luck` has what seeds do, and `tsattn.leaderboard.deviations` both together.

Windows overlap: neighbours share all but one of their steps, and their errors depend on each other for at least a
horizon. So what is drawn are circular blocks of origins (Politis and Romano 1992, *A circular block-resampling
procedure for stationary data*), at least a horizon long. Windows of several series that start at one time are drawn
together, as series move together.

Few blocks tell their spread badly, and too small. Three known shares of that are made up for:

- the mean is estimated from the same `k` blocks: a factor `k / (k - 1)` of the variance;
- a block of `b` windows cuts off what windows beyond its ends share with those inside. Autocovariances of means over
  `h` steps fall linearly to 0 at lag h, and a block weighs lag j by `1 - j / b`: a factor `1 - h / (3 b)`;
- the spread itself is an estimate, of about `1.5 (k - 1)` degrees of freedom (overlapping batch means, Meketon and
  Schmeiser 1984). Deviations are mixed with a chi-squared spread, as those of Student's t are.

All of it holds where the differences of two arms forget within a block. Differences that last for longer than that, as
those of a model that is better in one season alone, are seen too seldom, and intervals are too short for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Resample", "ResampledRuns", "block_length"]

_FEWEST = 2.0  # blocks, below which there is no spread to speak of

Array = NDArray[np.float64]


def block_length(origins: int, horizon: int, stretch: float = 1.0) -> int:
    """How many origins a block holds: a twentieth of all, and two horizons where ten such blocks fit; at least one
    horizon, or all.

    Where origins lie further apart than a step, fewer windows overlap, and such blocks are longer than they need be.

    Args:
        origins: number of different origins of test windows.
        horizon: in steps.
        stretch: how many times as long, to see what hangs on that; never below a horizon.
    """
    length = max(horizon, min(2 * horizon, origins // 10), origins // 20)
    return min(origins, max(horizon, round(stretch * length)))


@dataclass(frozen=True)
class Resample:
    """The same windows drawn anew, many times; shared by all runs that were tested on them.

    Attributes:
        starts: `(R, m)` the first origin of each drawn block.
        length: of blocks, in origins.
        origins: n, how many there are.
        horizon: in steps.
    """

    starts: NDArray[np.int64]
    length: int
    origins: int
    horizon: int

    @classmethod
    def draw(
        cls, origins: int, horizon: int, resamples: int, rng: np.random.Generator, stretch: float = 1.0
    ) -> Resample:
        """Draw R times as many blocks as cover all origins.

        Args:
            origins: n.
            horizon: in steps.
            resamples: R.
            rng: what draws.
            stretch: of the blocks, see `block_length`.
        """
        length = block_length(origins, horizon, stretch)
        starts = rng.integers(0, origins, (resamples, -(-origins // length)))
        return cls(starts, length, origins, horizon)

    @property
    def blocks(self) -> float:
        """How many blocks beside each other all origins are."""
        return self.origins / self.length

    @property
    def has_spread(self) -> bool:
        """Whether there are blocks enough to say anything."""
        return self.blocks >= _FEWEST

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the spread over time."""
        return 1.5 * (self.blocks - 1)

    @property
    def inflation(self) -> float:
        """What deviations are multiplied by for the first two shares; and as a block more may be drawn than fits in."""
        drawn = self.starts.shape[1]
        return float(np.sqrt(drawn / (self.blocks - 1) / (1 - self.horizon / (3 * self.length))))

    def sums(self, values: Array) -> Array:
        """`(R,)` sums over what was drawn of values `(n,)`, one for each origin."""
        wrapped = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: self.length - 1]]))])
        of_block = wrapped[self.length :] - wrapped[: -self.length]
        return np.asarray(of_block[self.starts].sum(1), np.float64)


@dataclass(frozen=True)
class ResampledRuns:
    """The mean errors of runs of one arm, whose seeds are exchangeable.

    Attributes:
        means: `(S,)` of each seed, over all windows.
        resampled: `(S, R)` the same over what was drawn; NaN where no target of that was observed.
    """

    means: Array
    resampled: Array

    @classmethod
    def of(cls, sums: Array, counts: Array, resample: Resample) -> ResampledRuns:
        """From the errors of every window.

        Args:
            sums: `(S, n)` of errors, for each seed and origin.
            counts: `(n,)` observed targets that they are sums over.
            resample: the windows drawn anew.
        """
        drawn = resample.sums(counts)
        drawn = np.where(drawn > 0, drawn, np.nan)
        resampled = np.stack([resample.sums(seed) / drawn for seed in sums])
        return cls(sums.sum(1) / counts.sum(), resampled)

    def __len__(self) -> int:
        """S, the number of seeds."""
        return len(self.means)

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(self.means.mean())

    def only(self, places: Sequence[int]) -> ResampledRuns:
        """Some of these runs."""
        return ResampledRuns(self.means[list(places)], self.resampled[list(places)])

    def less(self, others: ResampledRuns) -> ResampledRuns:
        """The differences from other runs, one by one."""
        return ResampledRuns(self.means - others.means, self.resampled - others.resampled)

    def relative_to(self, level: float) -> ResampledRuns:
        """As shares of an error."""
        return ResampledRuns(self.means / level, self.resampled / level)
