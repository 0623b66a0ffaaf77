"""Differences between the errors of models, with intervals and verdicts.

A difference is a log ratio of errors: -0.02 means that the first model's error is 2 % lower. Two things make it
uncertain: which stretch of time was tested, and which seeds were trained. We estimate a variance for each and add them.
There are no preliminary tests, and no draws.

**Time.** Neighbouring windows share steps, so their errors depend on each other. We use the circular block bootstrap
(Politis and Romano 1992) over *origins*, the times where windows start, with *blocks* at least a horizon long. Drawing
is needless: the bootstrap variance of a mean is the variance of the means of all n circular blocks, over n / block. It
is computed for the log ratio's first-order terms, and corrected because few blocks spread too little, see `_time_part`.
Windows of several horizons cover the same time, so we let their errors move together: standard errors add.

**Seeds.** Trainings are independent, also across horizons and models. A model's *seed variance*, relative to its error,
is its own, pooled with that of all models as one more degree of freedom. So two seeds suffice for an interval, and a
model that trains less steadily than the others keeps its wider one.

**Together.** The interval is Student's, with Welch and Satterthwaite's degrees of freedom (1946) from both parts.

**Data sets.** A claim about an attention is a mean over data sets, see `over_data_sets`; data sets are its units.

Limits: a difference that persists for longer than a block, as in one season alone, gets too narrow an interval. Unevenly
spaced origins count as even. `benchmarks/interval_coverage.py` measures how often intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, stdtr, stdtrit

from tsattn.errors import UserError

__all__ = ["Claim", "Difference", "Estimate", "ModelErrors", "SeedVariance", "difference", "holm", "over_data_sets"]
__all__ += ["seed_variance"]

Array = NDArray[np.float64]

_BLOCK_SHARE = 1 / 15  # of the test part: long enough for most horizons, and some 20 degrees of freedom
_FEWEST_BLOCKS = _FEWEST_SETS = 2
_POOLED_FREEDOM = 1  # how much the other models say of a model's seed variance, in degrees of freedom
_SMALLEST_ERROR = 1e-9  # a standard error of 0 would get an infinite weight


@dataclass(frozen=True, eq=False)
class ModelErrors:
    """Errors of the runs of one model on one data set and horizon, by origin.

    Rows may come in any order; rows of one origin, as of several series or channels, are added.

    Args:
        sums: `(S, n)` squared or absolute errors of each run, summed over the windows that start at an origin.
        counts: `(n,)` observed values that these are sums over.
        origins: `(n,)` when the windows start, in any unit.
        seeds: `(S,)` of each run; `(None,)` for a model that draws nothing, as closed forms do.

    Raises:
        UserError: for errors that are negative or not finite, and for two runs of one seed.
    """

    sums: Array
    counts: Array
    origins: NDArray[np.int64]
    seeds: tuple[int | None, ...]

    def __post_init__(self) -> None:
        sums, counts = np.atleast_2d(np.asarray(self.sums, float)), np.asarray(self.counts, float)
        seeds = tuple(self.seeds)
        if sums.shape != (len(seeds), len(counts)) or len(counts) != len(self.origins) or not counts.sum() > 0:
            raise ValueError(
                f"sums {sums.shape} do not fit {len(seeds)} seeds and {len(counts)} counts, or none counts"
            )
        for seed, row in zip(seeds, sums, strict=True):
            if not (np.isfinite(row).all() and (row >= 0).all()):
                raise UserError(f"errors of seed {seed} are negative or not finite; leave this run out")
        if len(set(seeds)) < len(seeds) or (None in seeds and len(seeds) > 1):
            raise UserError(f"seeds {list(seeds)} name a run twice; pass one run for each seed")
        origins, row_of = np.unique(np.asarray(self.origins), return_inverse=True)
        added = np.zeros((len(seeds) + 1, len(origins)))
        np.add.at(added, (slice(None), row_of), np.vstack([sums, counts]))
        for name, value in (("sums", added[:-1]), ("counts", added[-1]), ("origins", origins), ("seeds", seeds)):
            object.__setattr__(self, name, value)

    @property
    def mean(self) -> Array:
        """`(S,)` mean error of each run."""
        return np.asarray(self.sums.sum(1) / self.counts.sum())

    @property
    def is_trained(self) -> bool:
        """Whether another seed would give another error."""
        return self.seeds != (None,)

    def sums_of(self, seeds: Sequence[int]) -> Array:
        """`(n,)` error sums, mean over some seeds; those of the only run of a model that draws nothing."""
        rows = [self.seeds.index(seed) for seed in seeds] if self.is_trained else [0]
        return np.asarray(self.sums[rows].mean(0))


@dataclass(frozen=True, eq=False)
class SeedVariance:
    """Variance between seeds of the error on one data set and horizon, relative to the squared error.

    Attributes:
        models: by name, the variance of a model with two or more seeds, and its degrees of freedom, S - 1.
    """

    models: Mapping[str, tuple[float, int]]

    @property
    def df(self) -> int:
        """Degrees of freedom of all models together; 0 where nothing is known."""
        return sum(df for _, df in self.models.values())

    @property
    def value(self) -> float:
        """Pooled over the models; NaN where nothing is known."""
        return sum(value * df for value, df in self.models.values()) / self.df if self.df else math.nan


def seed_variance(models: Mapping[str, ModelErrors]) -> SeedVariance:
    """Estimate the relative variance between seeds, from all models that have two or more.

    Args:
        models: trained alike, on one data set and horizon, by name.
    """
    means = {name: one.mean for name, one in models.items() if len(one.seeds) > 1 and one.sums.any()}
    return SeedVariance(
        {name: (float(mean.var(ddof=1) / mean.mean() ** 2), len(mean) - 1) for name, mean in means.items()}
    )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A log ratio of errors, with what is known of its uncertainty.

    Attributes:
        estimate: log ratio; below 0 where the first error is lower. NaN where there is none.
        standard_error: NaN where it is unknown.
        df: degrees of freedom of the standard error.
        reason: why the standard error is unknown; empty otherwise.
    """

    estimate: float
    standard_error: float = math.nan
    df: float = math.nan
    reason: str = ""

    @property
    def percent(self) -> float:
        """By how many percent the first error is higher."""
        return 100 * math.expm1(self.estimate)

    @property
    def p_value(self) -> float:
        """Two-sided, of no difference; NaN where the standard error is unknown."""
        if self.standard_error == 0:
            return float(self.estimate == 0)
        return 2 * float(stdtr(self.df, -abs(self.estimate) / self.standard_error))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the log ratio; NaN where the standard error is unknown."""
        half = self.standard_error and float(stdtrit(self.df, (1 + level) / 2)) * self.standard_error
        return self.estimate - half, self.estimate + half

    def percent_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of `percent`."""
        low, high = (100 * math.expm1(end) for end in self.interval(level))
        return low, high

    def verdict(self, margin: float = 0.01) -> str:
        """``better``, ``worse``, ``equal within 1 %`` or ``undecided``.

        Better or worse: the 95 % interval excludes 0; a lower error is better. Equal: the 90 % interval lies within the
        margin on both sides, which is two one-sided tests of 5 %. Undecided: neither, or no interval.

        Args:
            margin: the share of the error that counts as equal.
        """
        low, high = self.interval(0.95)
        if high < 0:
            return "better"
        if low > 0:
            return "worse"
        low, high = self.percent_interval(0.90)
        return f"equal within {100 * margin:g} %" if -100 * margin <= low and high <= 100 * margin else "undecided"


@dataclass(frozen=True, kw_only=True)
class Difference(Estimate):
    """A difference between models on one data set.

    Attributes:
        blocks: how many fit into the test part, the fewest of any horizon.
        seeds: that the models share, the fewest at any horizon; 0 where no model is trained.
        time_error: the standard error over time alone.
        seed_error: the standard error over seeds alone.
    """

    blocks: float
    seeds: int
    time_error: float = math.nan
    seed_error: float = math.nan


def difference(
    tables: Sequence[Mapping[str, ModelErrors]],
    weights: Mapping[str, float],
    *,
    horizons: Sequence[int],
    variances: Sequence[SeedVariance] | None = None,
    block_share: float = _BLOCK_SHARE,
) -> Difference:
    """Compare models on one data set: the weighted sum of the logs of their errors, each a mean over horizons.

    All models of a difference are compared on the same windows, and on the seeds that all trained ones share.

    Args:
        tables: for each horizon, the errors of models by name; may hold more models than are compared.
        weights: of the compared models, with sum 0: ``{"mlr": 1, "standard": -1}`` for a pair,
            ``{"swa": 0.5, "mlr": 0.5, "standard": -1}`` for a contrast.
        horizons: of each table, in origins; in steps where a window starts at each step.
        variances: of each table; by default `seed_variance` of the table. Pass one of another horizon or data set
            where no model has two seeds.
        block_share: how long a block is, as a share of the origins; at least a horizon.

    Returns:
        The difference; without a standard error, for a stated reason, where a test part holds fewer than two blocks,
        the seed variance is unknown, or a model has no error at all.

    Raises:
        UserError: if a model has no runs, or two share no windows or seeds.
    """
    if not math.isclose(sum(weights.values()), 0, abs_tol=1e-9):
        raise ValueError(f"weights must sum to 0, not {sum(weights.values())}")
    known = [*map(seed_variance, tables)] if variances is None else variances
    parts = [
        _Windows.shared(table, weights, horizon, block_share) for table, horizon in zip(tables, horizons, strict=True)
    ]
    means = {name: np.array([one.mean(name) for one in parts]) for name in weights}
    blocks, seeds = min(one.blocks for one in parts), min(one.seeds for one in parts)
    without_error = [name for name, mean in means.items() if not mean.any()]
    if without_error:
        reason = f"{without_error[0]} has error 0, so its ratio to others does not exist"
        return Difference(estimate=math.nan, reason=reason, blocks=blocks, seeds=seeds)
    estimate = sum(weight * math.log(means[name].mean()) for name, weight in weights.items())
    # what an error at a horizon changes in the estimate, relative to itself
    shares = {name: weight * means[name] / means[name].sum() for name, weight in weights.items()}
    trained = {name: shares[name] for name in weights if tables[0][name].is_trained}
    reason = next((one.reason for one in parts if one.reason), "")
    if trained and not all(variance.df for variance in known):
        reason = reason or "no model has two seeds, so the seed variance is unknown; run a second seed"
    if reason:
        return Difference(estimate=estimate, reason=reason, blocks=blocks, seeds=seeds)
    time, time_df = _over_time(parts, shares)
    by_model = _over_seeds(parts, trained, known)
    variance = time + sum(value for value, _ in by_model)
    spread = sum(value**2 / df for value, df in [(time, time_df), *by_model])  # Welch and Satterthwaite
    return Difference(
        estimate=estimate,
        standard_error=math.sqrt(variance),
        df=variance**2 / spread if spread else math.inf,
        blocks=blocks,
        seeds=seeds,
        time_error=math.sqrt(time),
        seed_error=math.sqrt(sum(value for value, _ in by_model)),
    )


@dataclass(frozen=True, eq=False)
class _Windows:
    """The windows of one horizon that all compared models share, with their errors, mean over the shared seeds."""

    sums: Mapping[str, Array]
    counts: Array
    seeds: int
    horizon: int
    length: int  # of a block

    @classmethod
    def shared(
        cls, table: Mapping[str, ModelErrors], names: Iterable[str], horizon: int, block_share: float
    ) -> _Windows:
        models: dict[str, ModelErrors] = {}
        for name in names:
            if name not in table:
                raise UserError(
                    f"{name} has no runs at horizon {horizon}; run them, or leave out {name} or the horizon"
                )
            models[name] = table[name]
        (first, reference), *others = models.items()
        for name, one in others:
            if not (np.array_equal(one.origins, reference.origins) and np.array_equal(one.counts, reference.counts)):
                raise UserError(
                    f"{first} and {name} were tested on different windows at horizon {horizon}; run both again"
                )
        trained = {name: one.seeds for name, one in models.items() if one.is_trained}
        seeds = [seed for seed in next(iter(trained.values()), ()) if all(seed in one for one in trained.values())]
        if trained and not seeds:
            raise UserError(f"{' and '.join(trained)} share no seed at horizon {horizon}; run them with the same seeds")
        sums = {name: one.sums_of(seeds) for name, one in models.items()}
        length = max(horizon, round(block_share * len(reference.counts)))
        return cls(sums, reference.counts, len(seeds), horizon, length)

    @property
    def blocks(self) -> float:
        return len(self.counts) / self.length

    @property
    def reason(self) -> str:
        """Why time tells nothing here; empty where it does."""
        if self.blocks >= _FEWEST_BLOCKS:
            return ""
        origins = f"{len(self.counts)} test origins hold fewer than two blocks of {self.length}"
        return f"{origins}; leave out horizon {self.horizon} or test more rows"

    def mean(self, name: str) -> float:
        return float(self.sums[name].sum() / self.counts.sum())

    def variance_of_mean(self, moves: Array) -> float:
        """The circular block bootstrap's variance of the mean of values `(n,)` whose mean is 0, corrected.

        Blocks vary around a mean of their own, and cut off what windows share beyond their ends. Autocovariances of
        means over h steps fall linearly to 0 at lag h; then the mean of b neighbours has a variance proportional to
        (1 - h / 3b) / b. So the mean of all n has a known share of a block's variance, and the spread of block means
        around the common mean shows the rest.
        """
        n, b, h = len(moves), self.length, self.horizon
        summed = np.concatenate([[0.0], np.cumsum(np.concatenate([moves, moves[: b - 1]]))])
        spread = float((((summed[b:] - summed[:-b]) / b) ** 2).mean())
        share = b / n * (1 - h / (3 * n)) / (1 - h / (3 * b))
        return spread * share / (1 - share)


def _over_time(parts: Sequence[_Windows], shares: Mapping[str, Array]) -> tuple[float, float]:
    """Variance over time of the estimate, and its degrees of freedom: standard errors of horizons add.

    Spreads of overlapping block means have 1.5 (k - 1) degrees of freedom (Meketon and Schmeiser 1984). Relative errors
    of standard errors, 1 / sqrt(2 df), are as comonotone as what they are of.
    """
    errors, freedoms = [], []
    for place, one in enumerate(parts):
        changes = [
            share[place] * (one.sums[name] / one.mean(name) - one.counts) / one.counts.mean()
            for name, share in shares.items()
            if share[place]
        ]
        errors.append(math.sqrt(one.variance_of_mean(np.sum(changes, axis=0))))
        freedoms.append(1.5 * (one.blocks - 1))
    total = sum(errors)
    unsure = sum(error / math.sqrt(df) for error, df in zip(errors, freedoms, strict=True))
    return total**2, (total / unsure) ** 2 if total else min(freedoms)


def _over_seeds(
    parts: Sequence[_Windows], shares: Mapping[str, Array], known: Sequence[SeedVariance]
) -> list[tuple[float, int]]:
    """Variance over seeds of the estimate, as a sum of independent parts: what the runs of each model contribute to it.

    A model with F degrees of freedom at all horizons has F parts of its own variance and one of the pooled variance, to
    which all models contribute.
    """
    distinct = list({id(one): one for one in known}.values())  # one that is lent to a horizon tells nothing twice
    names = {name for one in distinct for name in one.models}
    freedom = {name: sum(one.models[name][1] for one in distinct if name in one.models) for name in names}
    totals = dict.fromkeys(sorted(names), 0.0)
    for place, (one, variance) in enumerate(zip(parts, known, strict=True)):
        for name, share in shares.items():
            factor = share[place] ** 2 / one.seeds
            own = freedom[name] / (freedom[name] + _POOLED_FREEDOM) if name in variance.models else 0.0
            if own:
                totals[name] += factor * own * variance.models[name][0]
            for other, (value, df) in variance.models.items():
                totals[other] += factor * (1 - own) * value * df / variance.df
    return [(totals[name], freedom[name]) for name in totals]


@dataclass(frozen=True, kw_only=True)
class Claim(Estimate):
    """A mean difference over data sets, for data sets like these.

    Attributes:
        between: the standard deviation of the true differences between data sets.
        better: on how many data sets the first error is lower.
        worse: on how many it is higher.
        sign_p: of the sign test, that both are as likely.
        left_out: data sets without a standard error, which count for the sign test alone.
    """

    between: float = math.nan
    better: int
    worse: int
    sign_p: float
    left_out: tuple[str, ...] = ()


def over_data_sets(differences: Mapping[str, Estimate]) -> Claim:
    """Estimate a mean difference by random effects: data sets are drawn from all that are like them.

    The variance between data sets is DerSimonian and Laird's (1986), which is closed. The interval is Hartung and
    Knapp's (2001), Student's with one degree of freedom less than data sets: it takes the spread of the differences
    around their mean as it is, and so holds whatever the variance between them, also for few data sets. Data sets that
    cover the same days, as ETTm1 and ETTm2, are not independent; then the interval is too narrow.

    Args:
        differences: by data set.

    Returns:
        The claim; without a standard error where fewer than two data sets have one.
    """
    signs = [np.sign(one.estimate) for one in differences.values()]
    better, worse = signs.count(-1), signs.count(1)
    sign_p = min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5))) if better + worse else 1.0
    known = [one for one in differences.values() if not math.isnan(one.standard_error)]
    left_out = tuple(name for name, one in differences.items() if math.isnan(one.standard_error))
    claim = Claim(estimate=math.nan, better=better, worse=worse, sign_p=sign_p, left_out=left_out)
    if len(known) < _FEWEST_SETS:
        return replace(claim, reason="fewer than two data sets have an interval; add data sets")
    values = np.array([one.estimate for one in known])
    variances = np.array([one.standard_error for one in known]) ** 2
    variances = np.maximum(variances, _SMALLEST_ERROR**2)
    fixed = 1 / variances
    excess = (fixed * (values - np.average(values, weights=fixed)) ** 2).sum() - (len(values) - 1)
    between = max(0.0, excess / (fixed.sum() - (fixed**2).sum() / fixed.sum()))
    random = 1 / (variances + between)
    mean = float(np.average(values, weights=random))
    df = len(values) - 1
    error = math.sqrt(np.average((values - mean) ** 2, weights=random) / df)
    return replace(claim, estimate=mean, standard_error=error, df=df, between=math.sqrt(between))


def holm(p_values: ArrayLike) -> Array:
    """Correct the p-values of a family of questions, named before the runs, by Holm's method (1979).

    Args:
        p_values: NaN for a question without an answer, which still counts as one of the family and stays NaN.
    """
    from statsmodels.stats.multitest import multipletests

    values = np.asarray(p_values, float)
    if not len(values):
        return values
    return np.where(np.isnan(values), np.nan, multipletests(np.nan_to_num(values, nan=1.0), method="holm")[1])
