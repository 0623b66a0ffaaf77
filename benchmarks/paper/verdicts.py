"""Whether numbers of a few seeds decide a claim: intervals, and what several verdicts say together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

__all__ = ["is_lower", "mean_interval", "most"]


def most(verdicts: Iterable[bool | None]) -> bool | None:
    """What verdicts on one claim say together: that of more than half of them, where none says the opposite.

    Args:
        verdicts: None for each that is not decided.
    """
    found = list(verdicts)
    for verdict in (True, False):
        if found.count(verdict) * 2 > len(found) and (not verdict) not in found:
            return verdict
    return None


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The interval of a mean by Student's t; from minus to plus infinity of fewer than two values."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean = float(np.mean(values))
    reach = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values))
    return mean - reach, mean + reach


def is_lower(errors: Sequence[float], others: Sequence[float], level: float = 0.95) -> bool | None:
    """Whether errors are lower than others: True or False where every seed of one lies below all of the other, and
    the interval of the difference of their mean logarithms (Welch) excludes 0; else None.

    Args:
        errors: one a seed, above 0.
        others: likewise; the seeds are not paired.
        level: of the interval.
    """
    if min(len(errors), len(others)) < 2:
        return None
    below, above = max(errors) < min(others), min(errors) > max(others)
    if not below and not above:
        return None
    if np.ptp(errors) == 0 and np.ptp(others) == 0:
        return below
    moments = (value for logs in map(np.log, (errors, others)) for value in (logs.mean(), logs.std(ddof=1), len(logs)))
    p = float(stats.ttest_ind_from_stats(*moments, equal_var=False).pvalue)
    return below if p < 1 - level else None
