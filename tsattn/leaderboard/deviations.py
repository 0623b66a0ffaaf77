"""What deviations that were drawn say of a difference: its interval, its p-value, and how large one would be found.

The deviations over time and those over seeds have each their own mixture, as in the problem of Behrens and Fisher: that
is rather too careful than too bold, also far out in the tails, where corrected p-values lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsattn.leaderboard.block_bootstrap import Array, Resample, ResampledRuns
from tsattn.leaderboard.seed_luck import SeedLuck

__all__ = ["Deviations", "deviations"]

_OBSERVED = 0.9  # the share of draws that must hold an observed target
_FAR = 1e-5  # in the tail, where p-values lie that are decided after a correction for many


@dataclass(frozen=True)
class Deviations:
    """By how much a mean difference would differ from what was found, had time and seeds been others.

    Attributes:
        values: `(R,)`.
        parts: of each source, its standard deviation before the mixture, and the degrees of freedom of that.
        sources: of each source, `(2, R)`, what was drawn before the mixture and after it, which add up to ``values``;
            empty where only these are known.
    """

    values: Array
    parts: Sequence[tuple[float, float]]
    sources: Sequence[Array] = ()

    @property
    def spread(self) -> float:
        """The standard deviation of all sources together, before the mixture."""
        return math.hypot(*(spread for spread, _ in self.parts))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the spread of all sources together (Satterthwaite 1946)."""
        shares = ((spread / self.spread) ** 4 / freedom for spread, freedom in self.parts)
        return 1 / sum(shares) if self.spread else math.inf

    def interval(self, difference: float, level: float = 0.95) -> tuple[float, float]:
        """The basic bootstrap interval of a difference (Davison and Hinkley 1997, section 5.2)."""
        low, high = np.quantile(self.values, [(1 - level) / 2, (1 + level) / 2])
        return difference - float(high), difference - float(low)

    def p_value(self, difference: float) -> float:
        """How often a deviation is at least as large as the difference, two-sided.

        Of the source that reaches furthest the chi-squared spread is not drawn but integrated: each draw counts by the
        probability that this spread makes it large enough. So p-values far below ``1 / R`` are known as well as others,
        and what is decided after a correction for hundreds of comparisons hangs on no single draw. Where only sums are
        known draws are counted, and the difference itself as one of them (Davison and Hinkley 1997, 4.11).
        """
        size = abs(difference) * (1 - 1e-9)  # sums that are equal on paper differ in their last digits
        if not self.sources:
            return float((1 + (np.abs(self.values) >= size).sum()) / (1 + len(self.values)))
        furthest = int(np.argmax([_reach(spread, freedom) for spread, freedom in self.parts]))
        drawn, mixed = self.sources[furthest]
        return float(np.mean(_probability(size, self.values - mixed, drawn, self.parts[furthest][1])))

    def detectable(self, level: float, power: float = 0.8) -> float:
        """The difference that a two-sided test at this level would find with this power.

        That of a noncentral t, whose spread is what was found, less what such an estimate lies too low in the median.
        The quantile of the sum of several t is taken as the root of the sum of their squares (Cochran 1964).
        """
        from scipy.special import chdtri, nctdtrinc, stdtrit

        if not self.spread:
            return 0.0
        critical = math.hypot(*(float(stdtrit(freedom, 1 - level / 2)) * spread for spread, freedom in self.parts))
        spread = self.spread / math.sqrt(chdtri(self.freedom, 0.5) / self.freedom)
        return float(nctdtrinc(self.freedom, 1 - power, critical / self.spread)) * spread


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


def _reach(spread: float, freedom: float) -> float:
    """How far a source goes in its tails."""
    from scipy.special import stdtrit

    return spread * float(stdtrit(freedom, 1 - _FAR))


def _probability(size: float, rest: Array, drawn: Array, freedom: float) -> Array:
    """`(R,)` of ``rest + drawn * sqrt(freedom / chi2)`` to be at least that far from 0, over the chi-squared variable.

    Args:
        size: at least 0.
        rest: `(R,)`.
        drawn: `(R,)`.
        freedom: of the chi-squared variable.
    """
    from scipy.special import chdtr, chdtrc

    side = np.where(drawn < 0, -1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        above, below = ((bound - side * rest) / np.abs(drawn) for bound in (size, -size))
        over = np.where(above > 0, chdtr(freedom, freedom / above**2), 1.0)
        under = np.where(below > 0, chdtrc(freedom, freedom / below**2), 0.0)
    return np.asarray(np.where(drawn == 0, np.abs(rest) >= size, over + under), np.float64)
