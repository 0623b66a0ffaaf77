"""What deviations that were drawn say of a difference: its interval, its p-value, and how large one would be found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Deviations"]

_FAR = 1e-5  # in the tail, where p-values lie that are decided after a correction for many

Array = NDArray[np.float64]


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
