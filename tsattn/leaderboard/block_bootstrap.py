"""A bootstrap of mean differences over blocks of time and over seeds.

Two sources make the mean error of a trained model what it is: the stretch of time it was tested on, and the seed of its
training. Both are drawn anew, independently of each other, as they are crossed: every seed has an error in every window
(the bootstrap of crossed factors, Owen 2007, *The pigeonhole bootstrap*, Annals of Applied Statistics 1(2)).

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

How far seeds lie apart is learnt relative to the error, from all horizons of a data set together: the luck of a
training moves what it forecasts far ahead by about as many percent as what it forecasts near. Two or three seeds at one
horizon alone would say next to nothing of it.

Runs of the same seed begin with the same weights and see the same batches where they have as many parameters; then they
lie closer to each other than to other seeds. So where both arms have as many parameters and the same seeds, and enough
of these at all horizons together to know how far pairs lie apart, pairs are drawn, and what luck does is `N / (N - H)`
times the variance of the N differences around their means at H horizons, of `N - H` degrees of freedom. That holds
however alike the runs of a pair are.

Where too little is known of the pairs of two arms alone, or they have not as many parameters, but the same seeds, pairs
are taken out of an analysis of variance of two ways, arms and seeds, over all attentions of a predictor at a horizon:
what is left of their runs is drawn for both arms, apart, if an F test at the 10 % level says that seeds do something to
all arms alike, as by the order of the batches. What they do to one arm alone is taken for as large in all. Its degrees
of freedom are those that runs have beside the means of arms and of seeds, (A - 1) (S - 1) of A arms with S seeds each.

Elsewhere seeds of both arms are drawn apart, from how far the runs of each arm lie from its mean, of all attentions of
a predictor, as in an analysis of variance of one way: a few seeds of each together tell what luck does. Its factor is
`N / (N - A)` of N runs of A arms and horizons (Davison and Hinkley 1997, *Bootstrap Methods and their Application*,
section 3.2), its degrees of freedom are `N - A`. That takes the luck of all attentions for alike, which it need not be:
one attention may train far less steadily than the others. Where an F test at the 10 % level says that the runs of an
arm lie further apart than those of the others (or, of two ways, from the mean of the others of the same seed), its luck
is its own, of all its horizons, with the few degrees of
freedom that these have. What that test overlooks is little: of two seeds at two horizons, beside three arms whose
luck is a tenth, 3 cases of 100. Where no arm has two seeds nothing is known about others, and what comes out holds for
these models alone.

The deviations over time and those over seeds have each their own mixture, as in the problem of Behrens and Fisher: that
is rather too careful than too bold, also far out in the tails, where corrected p-values lie.

All of it holds where the differences of two arms forget within a block. Differences that last for longer than that, as
those of a model that is better in one season alone, are seen too seldom, and intervals are too short for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsattn.leaderboard.deviations import Deviations

__all__ = ["Resample", "ResampledRuns", "SeedLuck", "block_length", "deviations"]

_OBSERVED = 0.9  # the share of draws that must hold an observed target
_FEWEST = 2.0  # blocks, below which there is no spread to speak of
_NOTHING = 1e-9  # a share of a run that rounding leaves
_UNLIKE = 0.1  # the level of the test by which an arm has a luck of its own

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


@dataclass(frozen=True)
class SeedLuck:
    """How far runs lie from the mean of their arm.

    Attributes:
        apart: `(N, R)` of each run, over what was drawn, of the spread that runs beyond these have.
        freedom: degrees of freedom of that spread.
        spread: the standard deviation of a run, over all windows.
    """

    apart: Array
    freedom: float
    spread: float

    @classmethod
    def of(cls, arms: Sequence[ResampledRuns]) -> SeedLuck | None:
        """From arms whose luck is alike; None where none of them has two seeds."""
        several = [arm for arm in arms if len(arm) > 1]
        if not several:
            return None
        apart = np.concatenate([arm.resampled - arm.resampled.mean(0) for arm in several])
        freedom = len(apart) - len(several)
        squares = sum(float(((arm.means - arm.mean) ** 2).sum()) for arm in several)
        return cls(apart * np.sqrt(len(apart) / freedom), float(freedom), math.sqrt(squares / freedom))

    @classmethod
    def crossed(cls, tables: Sequence[Sequence[tuple[ResampledRuns, Sequence[int]]]]) -> SeedLuck | None:
        """What is left of runs without what their arm and their seed do, in an analysis of variance of two ways.

        Args:
            tables: the arms of each, whose luck is alike, with their seeds; what a seed does is another in each table.

        Returns:
            None where nothing is left.
        """
        parts, squares, freedom = [], 0.0, 0.0
        for arms in tables:
            labels = np.array([(arm, seed) for arm, (_, seeds) in enumerate(arms) for seed in seeds])
            if not len(labels):
                continue
            design = np.concatenate([column[:, None] == np.unique(column) for column in labels.T], axis=1).astype(float)
            left = np.eye(len(labels)) - design @ np.linalg.pinv(design)
            left = left[np.diag(left) > _NOTHING]  # not those that their arm, or their seed, has alone
            parts.append(left @ np.concatenate([runs.resampled for runs, _ in arms]))
            squares += float(((left @ np.concatenate([runs.means for runs, _ in arms])) ** 2).sum())
            freedom += len(labels) - float(np.linalg.matrix_rank(design))
        if not freedom:
            return None
        apart = np.concatenate(parts)
        return cls(apart * np.sqrt(len(apart) / freedom), freedom, math.sqrt(squares / freedom))

    def times(self, level: float) -> SeedLuck:
        """Of errors that these are shares of."""
        return SeedLuck(self.apart * level, self.freedom, self.spread * level)

    def exceeds(self, others: SeedLuck) -> bool:
        """Whether an F test at the 10 % level says that runs lie further apart here than there."""
        from scipy.special import fdtrc

        if not others.spread:
            return self.spread > 0
        return bool(fdtrc(self.freedom, others.freedom, (self.spread / others.spread) ** 2) < _UNLIKE)

    def is_more_than(self, left: SeedLuck) -> bool:
        """Whether an F test at the 10 % level says that seeds do something to all arms alike.

        Args:
            left: of the same runs, what is left of them without that, see `crossed`.
        """
        from scipy.special import fdtrc

        freedom = self.freedom - left.freedom
        squares = max(0.0, self.freedom * self.spread**2 - left.freedom * left.spread**2)
        if freedom <= 0 or not left.spread:
            return squares > 0
        return bool(fdtrc(freedom, left.freedom, squares / freedom / left.spread**2) < _UNLIKE)

    def of_mean(self, seeds: int, rng: np.random.Generator) -> Array:
        """`(R,)` by how much the mean of so many seeds differs from that of all there could be."""
        runs, resamples = self.apart.shape
        chosen = rng.integers(0, runs, (seeds, resamples))
        return np.asarray(self.apart[chosen, np.arange(resamples)].mean(0), np.float64)


def deviations(
    arm: ResampledRuns,
    reference: ResampledRuns,
    resample: Resample,
    luck: SeedLuck | None,
    reference_luck: SeedLuck | None,
    rng: np.random.Generator,
) -> Deviations | None:
    """Deviations of the mean error of an arm less that of a reference, over the same windows.

    Args:
        arm: its runs.
        reference: others, whose seeds are others too, though they may have the same numbers.
        resample: what both were drawn by.
        luck: of the seeds of the arm, or of pairs of both arms as they are; None where nothing is known of it.
        reference_luck: of the seeds of the reference, the same one where it is known of both together; None where it
            has none of its own, as closed forms and pairs have, or nothing is known of it.
        rng: what draws seeds and the chi-squared mixture.

    Returns:
        None where so few targets were observed that one draw in ten or more holds none of them.
    """
    difference = arm.mean - reference.mean
    of_time = (arm.resampled.mean(0) - reference.resampled.mean(0) - difference) * resample.inflation
    parts = [(of_time, resample.freedom)]
    if luck is not None:
        of_seeds = luck.of_mean(len(arm), rng)
        if reference_luck is luck:
            of_seeds = of_seeds - luck.of_mean(len(reference), rng)
        parts.append((of_seeds, luck.freedom))
    if reference_luck is not None and reference_luck is not luck:
        parts.append((reference_luck.of_mean(len(reference), rng), reference_luck.freedom))
    mixed = [part * np.sqrt(freedom / rng.chisquare(freedom, len(part))) for part, freedom in parts]
    values = np.sum(mixed, axis=0)
    is_known = np.isfinite(values)
    if is_known.mean() <= _OBSERVED:
        return None
    return Deviations(
        values[is_known],
        [(float(part[is_known].std()), freedom) for part, freedom in parts],
        [np.stack([part, of_part])[:, is_known] for (part, _), of_part in zip(parts, mixed, strict=True)],
    )
