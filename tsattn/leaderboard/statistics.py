"""Differences between the errors of models, with intervals and verdicts.

A difference is a log ratio of errors: -0.02 means that the first model's error is 2 % lower. Two things make it
uncertain: which stretch of time was tested, and which seeds were trained. We estimate a variance for each and add them.
There are no preliminary tests and no random draws.

**Time.** Neighbouring windows share steps, so their errors depend on each other. We use the circular block bootstrap
(Politis and Romano 1992) over *origins*, the times where windows start, with *blocks* at least a horizon long. Its
variance of a mean has a closed form: the variance of the means of all n circular blocks. We apply it to the log ratio's
first-order terms and correct it for few blocks. Horizons cover the same time, so their standard errors add.

**Seeds.** Trainings are independent, also across horizons and models. We estimate a model's *seed variance*, relative
to its squared error, from its seeds; the pooled variance of all models adds one degree of freedom. So two seeds suffice
for an interval. A model that trains less steadily than the others gets a wider interval.

**Together.** The interval is Student's, with degrees of freedom by Welch and Satterthwaite (1946) from both parts.

**Data sets.** A claim about an attention is a mean over data sets, see `over_data_sets`.

Limits: an interval is too narrow if a difference lasts longer than a block, as in a single season. Unevenly spaced
origins count as even. `benchmarks/interval_coverage.py` measures how often intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, stdtr, stdtrit

from tsattn.errors import UserError

Array = NDArray[np.float64]

_BLOCK_SHARE = 1 / 10  # of the origins: several horizons in most tests, and about a dozen degrees of freedom
_FEWEST = 2  # blocks, or data sets, for an interval
_POOLED_DF = 1  # degrees of freedom that all models add to one model's seed variance
_SMALLEST_ERROR = 1e-6  # a standard error of 0 would get an infinite weight


@dataclass(frozen=True, eq=False)
class ModelErrors:
    """Errors of the runs of one model on one data set and horizon, by origin.

    Rows may come in any order; rows of one origin, as of several series, are added.

    Args:
        sums: `(S, n)` squared or absolute errors of each run, summed over the windows that start at an origin.
        counts: `(n,)` number of observed values in each sum.
        origins: `(n,)` start times of the windows, in any unit.
        seeds: `(S,)` seed of each run; `(None,)` for a model that draws no random numbers, such as a closed form.

    Raises:
        UserError: for errors that are negative or not finite, and for two runs of one seed.
    """

    sums: Array
    counts: Array
    origins: NDArray[np.int64]
    seeds: tuple[int | None, ...]

    def __post_init__(self) -> None:
        sums, counts, seeds = np.asarray(self.sums, float), np.asarray(self.counts, float), tuple(self.seeds)
        if sums.shape != (len(seeds), len(counts)) or len(counts) != len(self.origins) or not counts.sum() > 0:
            raise ValueError(f"sums {sums.shape} do not fit {len(seeds)} seeds and {len(counts)} counts above 0")
        for seed, row in zip(seeds, sums, strict=True):
            if not (np.isfinite(row).all() and (row >= 0).all()):
                raise UserError(f"errors of seed {seed} are negative or not finite; leave this run out")
        if len(set(seeds)) < len(seeds) or (None in seeds and len(seeds) > 1):
            raise UserError(f"seeds {list(seeds)} name a run twice; pass one run for each seed")
        order = np.argsort(self.origins, kind="stable")
        origins, starts = np.unique(np.asarray(self.origins)[order], return_index=True)
        added = np.add.reduceat(np.concatenate([sums, counts[None]])[:, order], starts, axis=1)
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


@dataclass(frozen=True, eq=False)
class SeedVariance:
    """Variance of the error between seeds, relative to the squared error, on one data set and horizon.

    Attributes:
        models: by name, the variance of a model with two or more seeds, and its degrees of freedom, S - 1.
    """

    models: Mapping[str, tuple[float, int]]

    @property
    def df(self) -> int:
        """Degrees of freedom of all models together; 0 if no model has two seeds."""
        return sum(df for _, df in self.models.values())

    @property
    def value(self) -> float:
        """The variance pooled over the models; NaN if no model has two seeds."""
        return sum(value * df for value, df in self.models.values()) / self.df if self.df else math.nan


Table = Mapping[str, ModelErrors]


def seed_variance(models: Table) -> SeedVariance:
    """Estimate the relative variance between seeds, from all models that have two or more.

    Args:
        models: on one data set and horizon, by name.
    """
    means = {name: one.mean for name, one in models.items() if len(one.seeds) > 1 and one.sums.any()}
    return SeedVariance({name: (float(m.var(ddof=1) / m.mean() ** 2), len(m) - 1) for name, m in means.items()})


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A log ratio of errors, with its uncertainty.

    Attributes:
        estimate: below 0 if the first error is lower; NaN if a ratio does not exist.
        standard_error: NaN if it is unknown.
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
        """Two-sided p-value of no difference; NaN if the standard error is unknown."""
        if self.standard_error == 0:
            return float(self.estimate == 0)
        return 2 * float(stdtr(self.df, -abs(self.estimate) / self.standard_error))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the log ratio; NaN where the standard error is unknown."""
        half = float(stdtrit(self.df, (1 + level) / 2)) * self.standard_error
        return self.estimate - half, self.estimate + half

    def percent_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of `percent`."""
        low, high = 100 * np.expm1(self.interval(level))
        return float(low), float(high)

    def verdict(self, margin: float = 0.01) -> str:
        """``better``, ``worse``, ``equal within 1 %`` or ``undecided``.

        Better or worse: the 95 % interval excludes 0; a lower error is better. Equal: the 90 % interval of the percent
        lies within the margin on both sides (two one-sided tests of 5 %). Undecided: neither, or no interval.

        Args:
            margin: the share of the error that counts as equal.
        """
        low, high = self.interval(0.95)
        if high < 0 or low > 0:
            return "better" if high < 0 else "worse"
        low, high = self.percent_interval(0.90)
        return f"equal within {100 * margin:g} %" if -100 * margin <= low and high <= 100 * margin else "undecided"


@dataclass(frozen=True, kw_only=True)
class Difference(Estimate):
    """A difference between models on one data set.

    Attributes:
        blocks: how many fit into the test set; the fewest at any horizon.
        seeds: how many the trained models share; the fewest at any horizon; 0 without a trained model.
        time_error: the standard error over time alone.
        seed_error: the standard error over seeds alone.
    """

    blocks: float
    seeds: int
    time_error: float = math.nan
    seed_error: float = math.nan


def difference(
    tables: Sequence[Table],
    weights: Mapping[str, float],
    *,
    horizons: Sequence[int],
    variances: Sequence[SeedVariance] | None = None,
    block_share: float = _BLOCK_SHARE,
) -> Difference:
    """Compare models on one data set: the weighted sum of the logs of their errors, each a mean over horizons.

    Args:
        tables: for each horizon, the errors of models by name. Models that are not compared improve the seed variance.
        weights: of the compared models, with sum 0: ``{"mlr": 1, "standard": -1}`` for a pair,
            ``{"swa": 0.5, "mlr": 0.5, "standard": -1}`` for a contrast.
        horizons: horizon of each table, in origins; origins equal steps if a window starts at each step.
        variances: of each table; by default its `seed_variance`. Where no model has two seeds, pass the variance of
            another horizon or data set.
        block_share: length of a block as a share of the origins; a block is never shorter than a horizon.

    Returns:
        The difference. Without a standard error it has a reason: fewer than two blocks in a test set, an unknown seed
        variance, or a model with error 0.

    Raises:
        UserError: if a model has no runs, or two do not share their windows or any seed.
    """
    if abs(sum(weights.values())) > 1e-9:
        raise ValueError(f"weights must sum to 0, not {sum(weights.values())}")
    known = [*map(seed_variance, tables)] if variances is None else variances
    pairs = zip(tables, horizons, strict=True)
    parts = [_Windows.shared(table, weights, horizon, block_share) for table, horizon in pairs]
    means = {name: np.array([one.sums[name].sum() / one.counts.sum() for one in parts]) for name in weights}
    blank = Difference(estimate=math.nan, blocks=min(p.blocks for p in parts), seeds=min(p.seeds for p in parts))
    for name, mean in means.items():
        if not mean.any():
            return replace(blank, reason=f"{name} has error 0, so its ratio to others does not exist")
    blank = replace(blank, estimate=sum(weight * math.log(means[name].mean()) for name, weight in weights.items()))
    slopes = {name: weight / means[name].sum() for name, weight in weights.items()}  # derivatives by each mean
    trained = {name: slopes[name] * means[name] for name in weights if tables[0][name].is_trained}
    for one in parts:
        if one.blocks < _FEWEST:
            few = f"{len(one.counts)} test origins are fewer than two blocks of {one.length}"
            return replace(blank, reason=f"{few}; leave out horizon {one.horizon} or test more rows")
    if trained and not all(variance.df for variance in known):
        return replace(blank, reason="no model has two seeds, so the seed variance is unknown; run a second seed")
    time, time_df = _over_time(parts, slopes)
    over_seeds = _over_seeds(parts, trained, known)
    seed = sum(value for value, _ in over_seeds)
    spread = time**2 / time_df + sum(value**2 / df for value, df in over_seeds)
    df = (time + seed) ** 2 / spread if spread else math.inf
    total, time_error, seed_error = map(math.sqrt, (time + seed, time, seed))
    return replace(blank, standard_error=total, df=df, time_error=time_error, seed_error=seed_error)


@dataclass(frozen=True, eq=False)
class _Windows:
    """Windows of one horizon, with the errors of the compared models: means over the seeds that they share."""

    sums: Mapping[str, Array]
    counts: Array
    seeds: int
    horizon: int
    length: int  # of a block

    @classmethod
    def shared(cls, table: Table, names: Iterable[str], horizon: int, block_share: float) -> _Windows:
        if missing := [name for name in names if name not in table]:
            raise UserError(f"{missing[0]} has no runs at one of the horizons; run them or leave it out")
        (first, reference), *others = ((name, table[name]) for name in names)
        for name, one in others:
            if not (np.array_equal(one.origins, reference.origins) and np.array_equal(one.counts, reference.counts)):
                raise UserError(f"{first} and {name} have different test windows; run both again")
        trained = {name: table[name].seeds for name in names if table[name].is_trained}
        seeds = sorted(set.intersection(*map(set, trained.values())), key=str) if trained else []
        if trained and not seeds:
            raise UserError(f"{' and '.join(trained)} share no seed; run them with equal seeds")
        rows = {name: [table[name].seeds.index(seed) for seed in seeds] if name in trained else [0] for name in names}
        sums = {name: np.asarray(table[name].sums[row].mean(0)) for name, row in rows.items()}
        length = max(horizon, round(block_share * len(reference.counts)))
        return cls(sums, reference.counts, len(seeds), horizon, length)

    @property
    def blocks(self) -> float:
        return len(self.counts) / self.length

    def variance_of_mean(self, moves: Array) -> float:
        """Estimate the variance of the mean of values `(n,)` with mean 0 by the circular block bootstrap.

        Block means spread around the overall mean, which varies too; this corrects for few blocks. Suppose that the
        autocovariance falls linearly to 0 at lag h, as for means over h steps. Then a mean of b neighbours has variance
        `(1 - h / 3b) / b`, less for blocks that wrap around the test set. So the overall mean's share is known.
        """
        n, b, h = len(moves), self.length, self.horizon
        of_block = (1 - h / (3 * b) - h / (3 * n) * (1 - h / (2 * b))) / b
        share = (1 - h / (3 * n)) / n / of_block
        summed = np.cumsum(np.concatenate([[0.0], moves, moves[: b - 1]]))
        return float(((summed[b:] - summed[:-b]) ** 2).mean()) / b**2 * share / (1 - share)


def _over_time(parts: Sequence[_Windows], slopes: Mapping[str, float]) -> tuple[float, float]:
    """Estimate the variance over time and its degrees of freedom; standard errors of horizons add.

    The variance of overlapping block means has `1.5 (k - 1)` degrees of freedom for k blocks (Meketon and Schmeiser
    1984), fewer if windows overlap for long. Errors of standard errors go as `1 / sqrt(df)`, and add too.
    """
    errors, unsure = 0.0, 0.0
    for one in parts:
        centred = {name: sums - sums.sum() / one.counts.sum() * one.counts for name, sums in one.sums.items()}
        moves = np.sum([slope * centred[name] for name, slope in slopes.items()], axis=0) / one.counts.mean()
        error = math.sqrt(one.variance_of_mean(moves))
        errors += error
        unsure += error / math.sqrt(1.5 * (one.blocks - 1) * (1 - one.horizon / (3 * one.length)))
    return errors**2, (errors / unsure) ** 2 if errors else math.inf


def _over_seeds(
    parts: Sequence[_Windows], shares: Mapping[str, Array], known: Sequence[SeedVariance]
) -> list[tuple[float, int]]:
    """Variance over seeds of the estimate: independent parts, one per model, with their degrees of freedom."""
    df: dict[str, int] = {}
    for one in {id(one): one for one in known}.values():  # a variance lent to another horizon counts once
        for name, (_, own) in one.models.items():
            df[name] = df.get(name, 0) + own
    totals = dict.fromkeys(df, 0.0)
    for place, (part, variance) in enumerate(zip(parts, known, strict=True)):
        for name, share in shares.items():
            factor, pooled = share[place] ** 2 / part.seeds, 1.0
            if name in variance.models:
                pooled = _POOLED_DF / (df[name] + _POOLED_DF)  # the model's own variance has the rest of the weight
                totals[name] += factor * (1 - pooled) * variance.models[name][0]
            for other, (value, own) in variance.models.items():
                totals[other] += factor * pooled * value * own / variance.df
    return [(totals[name], df[name]) for name in df]


@dataclass(frozen=True, kw_only=True)
class Claim(Estimate):
    """A mean difference over data sets.

    Attributes:
        between: the standard deviation of the true differences between sources.
        sources: number of sources whose data sets have an interval.
        better: on how many data sets the first error is lower.
        worse: on how many it is higher.
        sign_p: p-value of the sign test: both signs are equally likely.
        left_out: data sets without a standard error; they count only for the signs.
    """

    between: float = math.nan
    sources: int
    better: int
    worse: int
    sign_p: float
    left_out: tuple[str, ...]


def over_data_sets(differences: Mapping[str, Estimate], sources: Mapping[str, str] | None = None) -> Claim:
    """Estimate the mean difference of all data sets like these, by random effects.

    Data sets of one source are likely to be similar, so their mean (also by random effects) counts as one data set.
    Signs are counted by data set.

    Weights follow DerSimonian and Laird (1986), in closed form. The interval is Student's; as in Hartung and Knapp
    (2001), its degrees of freedom are the sources less one. Its standard error is the jackknife's: how far the mean
    moves without each source, squared and summed. The error of the weights is its least value, as few sources may
    agree by chance (Röver, Knapp and Friede, 2015). Data sets of the same days are not independent.

    Args:
        differences: by data set.
        sources: source of each data set that shares one; by default each data set is its own source.

    Returns:
        The claim; with a reason instead of an interval if fewer than two sources have an interval.
    """
    signs = [np.sign(one.estimate) for one in differences.values()]
    better, worse = signs.count(-1), signs.count(1)
    sign_p = min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5))) if better + worse else 1.0
    left_out = tuple(name for name, one in differences.items() if math.isnan(one.standard_error))
    by_source: dict[str, list[Estimate]] = {}
    for name, one in differences.items():
        if name not in left_out:
            by_source.setdefault((sources or {}).get(name, name), []).append(one)
    claim = Claim(
        estimate=math.nan, sources=len(by_source), better=better, worse=worse, sign_p=sign_p, left_out=left_out
    )
    if len(by_source) < _FEWEST:
        return replace(claim, reason="fewer than two data sets have an interval; add data sets of other sources")
    means = []
    for known in by_source.values():
        errors = np.maximum(_SMALLEST_ERROR, [one.standard_error for one in known])
        values = np.array([one.estimate for one in known])
        weights, _ = _random_effects(values, errors**2)
        means.append((weights @ values / weights.sum(), 1 / weights.sum()))
    values, variances = np.array(means).T
    weights, between = _random_effects(values, variances)
    least = float(weights.sum() ** -0.5)
    weights /= weights.sum()
    mean = float(weights @ values)
    error = max(least, float(np.linalg.norm(weights * (values - mean) / (1 - weights))))
    return replace(claim, estimate=mean, standard_error=error, df=len(means) - 1, between=math.sqrt(between))


def _random_effects(values: Array, variances: Array) -> tuple[Array, float]:
    """Return the weights of values with these variances, and the variance between the true values."""
    weights = 1 / variances
    if len(values) == 1:
        return weights, 0.0
    excess = (weights * (values - np.average(values, weights=weights)) ** 2).sum() - (len(values) - 1)
    between = max(0.0, float(excess / (weights.sum() - (weights**2).sum() / weights.sum())))
    return 1 / (variances + between), between


def holm(p_values: ArrayLike) -> Array:
    """Correct the p-values of a family of questions that were named before the runs, by Holm's method (1979).

    Args:
        p_values: NaN for a question without an interval; it counts as part of the family and stays NaN.
    """
    from statsmodels.stats.multitest import multipletests

    values = np.asarray(p_values, float)
    if not len(values):
        return values
    return np.where(np.isnan(values), np.nan, multipletests(np.nan_to_num(values, nan=1.0), method="holm")[1])
