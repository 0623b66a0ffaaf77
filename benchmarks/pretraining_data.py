"""Generated and mixed series for a model that forecasts series which it has never seen.

Sources: KernelSynth and TSMixup, Ansari et al., *Chronos: Learning the Language of Time Series* (TMLR 2024), sections
4.1 and 4.2; quasi-periodic processes, Rasmussen & Williams, *Gaussian Processes for Machine Learning* (2006), section
5.4.3. Several series are drawn from each process, as its decomposition is what costs time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import linalg
from typing_extensions import override

from tsattn.batch import Batch, WindowUnits
from tsattn.data.datamodule import ForecastDataModule, Source
from tsattn.data.panel import Panel
from tsattn.data.public.cards import card_of
from tsattn.data.public.public_data import CO2DataModule, PublicDataModule
from tsattn.data.splits import ByCount
from tsattn.errors import UserError, whole_number

Table: TypeAlias = NDArray[np.float64]

_LEAST_SPREAD = 1e-3  # standard deviation of a context, over that of its series, below which it counts as so large
_MOST_PARTS, _CONCENTRATION, _ROWS = 3, 1.5, (1, 2, 3, 6)  # of a mixture: parts, Dirichlet weights, rows averaged

# steps in a period: days and weeks of quarters of an hour, half-hours and hours; weeks, months and years of days;
# months, quarters and years of weeks; quarters and years of months; years of quarters; decades
_PERIODS = (24, 48, 96, 168, 336, 672, 7, 14, 30, 60, 365, 730, 4, 13, 26, 52, 6, 12, 40, 10)
_SHARPNESS = (1.0, 0.5)  # length scales of periodic kernels: smooth as in the source, and sharper
_MOST_KERNELS = 5
_JITTER = 1e-6  # share of the variance that is added on the diagonal, which makes the decomposition possible
_FLAT = 1e-3  # standard deviation, over that of the process, below which a series is all but constant

# steps in a season, and how often it comes: days of hours, half-hours, quarters of an hour and ten minutes; weeks and
# years of days; years of weeks and months; weeks of hours and half-hours; and others
_SEASONS = {
    **{24: 5.0, 48: 3.0, 96: 1.5, 144: 1.5, 7: 2.0, 365: 0.5, 52: 1.5, 12: 1.5, 168: 1.0, 336: 0.5},
    **{30: 1.0, 4: 0.5, 6: 0.5, 13: 0.5, 60: 0.5, 288: 0.5},
}
_DAYS = (24, 48, 96)  # which often have a week beside them
_SECOND, _WEEK = 0.35, 0.6  # shares of processes with a second season, and of days' whose second is the week
_LEVEL, _MEMORY, _NOISE, _NOISE_SIZE = 0.8, 0.6, 0.8, 0.3  # shares of processes that have one; size of noise
_POSITIVE = 0.15  # share of the series that are exponentials


class PretrainingDataModule(ForecastDataModule):
    """Series from Gaussian processes, and mixtures of the training parts of public data sets, all counted in steps.

    The last `prediction_length` steps of each series are for testing, those before them for validation: of real series,
    they lie within the training part, too. In training, each window is brought to its own scale, and a share of the
    contexts is `shortened`, to at least `shortest` steps. `data_seed` decides the series, that of the training weights,
    order and masks.

    Raises:
        UserError: for series too short for a window, or a share that is none.
    """

    in_key = ("shortened", "shortest")
    synthetic: int
    seasonal: int
    mixed: int
    data_seed: int

    def __init__(
        self,
        context_length: int = 512,
        prediction_length: int = 64,
        synthetic: int = 4000,
        seasonal: int = 4000,
        mixed: int = 2000,
        length: int = 1024,
        public: Sequence[str] = ("weather", "exchange_rate", "national_illness", "co2"),
        root: str | None = None,
        data_seed: int = 1,
        shortened: float = 0.5,
        shortest: int = 8,
        **sizes: Any,
    ) -> None:
        sizes |= {"context_length": context_length, "prediction_length": prediction_length}
        super().__init__("pretraining", _Pretraining(self), ByCount(prediction_length, prediction_length), **sizes)
        counts = {"synthetic": synthetic, "seasonal": seasonal, "mixed": mixed, "data_seed": data_seed}
        for name, given in counts.items():
            setattr(self, name, whole_number(name, given, least=0))
        self.length, self.shortest = whole_number("length", length), whole_number("shortest", shortest)
        self.public, self.root, self.shortened = {name: card_of(name) for name in public}, root, shortened
        least = context_length + 3 * prediction_length
        wrong = {
            f"length {length} is too short: context_length {context_length} and three times prediction_length "
            f"{prediction_length}, for training, validation and testing, take {least} steps": length < least,
            "synthetic, seasonal and mixed are all 0: there is no series to train on": not synthetic + seasonal + mixed,
            "mixed series need public data sets to be mixed from": bool(mixed and not public),
            f"shortened must be a share from 0 to 1, not {shortened}": not 0 <= shortened <= 1,
            f"shortest must be at most context_length {context_length}, not {shortest}": shortest > context_length,
        }
        for message, is_wrong in wrong.items():
            if is_wrong:
                raise UserError(message)

    def mixed_from(self) -> dict[str, ForecastDataModule]:
        """Return the public data sets by their names, numbers that stand for missing values masked."""
        return {
            name: PublicDataModule(name, self.root, clean=bool(card.sentinels)) if card.file else CO2DataModule()
            for name, card in (self.public.items() if self.mixed else ())
        }

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Shorten and scale training windows (called by the Trainer)."""
        is_training = self.trainer is not None and self.trainer.training
        return own_scale(shortened(batch, self.shortened, self.shortest)) if is_training else batch


@dataclass
class _Pretraining(Source):
    """The series that a `PretrainingDataModule` describes."""

    data: PretrainingDataModule

    @override
    def prepare(self) -> None:
        for public in self.data.mixed_from().values():
            public.prepare_data()

    @override
    def load(self) -> Panel:
        data, sources = self.data, {}
        for name, public in data.mixed_from().items():  # the training rows of each channel
            panel = public.source.load()
            sources[name] = [*panel.values[: public.rule.split(panel.time).train_end].T]
        series = [
            *synthetic_series(data.synthetic, data.length, seed=data.data_seed),
            *seasonal_series(data.seasonal, data.length, seed=data.data_seed),
            *(mixed_series(sources, data.mixed, data.length, seed=data.data_seed) if sources else ()),
        ]
        lengths, digits = [*map(len, series)], len(str(len(series)))
        return Panel(
            ids=tuple(f"{number:0{digits}d}" for number in range(len(series))),
            channels=("y",),
            frequency="1",
            time=pd.Index(np.concatenate([np.arange(length) for length in lengths])),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            values=np.concatenate(series)[:, None],
            ahead_starts=np.zeros(len(series) + 1, np.int64),
        )

    @override
    def at(self, path: Path) -> Source:
        raise UserError(
            f"a pretrained model forecasts other series by its weights, not from the run that trained it: {path} is "
            "forecast with {kind: chronos, weights: FILE} as the backbone, FILE made of the run by "
            "`benchmarks/chronos_tiny.py export`"
        )


def shortened(batch: Batch, share: float, shortest: int) -> Batch:
    """Mask the front of a share of the contexts `(B, L, C)`, at random from torch's generator.

    All lengths from `shortest` to L come, short ones as often as they are few in proportion.
    """
    B, L = batch.past.shape[:2]
    if not share:
        return batch
    lengths = (torch.rand(B, 1, 1) * math.log(L / shortest) + math.log(shortest)).exp()
    lengths = torch.where(torch.rand(B, 1, 1) < share, lengths.ceil(), L)
    kept = (torch.arange(L)[:, None] >= L - lengths).to(batch.past.device)
    observed = kept if batch.past_observed is None else kept & batch.past_observed
    return replace(batch, past_observed=observed.expand_as(batch.past).contiguous())


def own_scale(batch: Batch) -> Batch:
    """Scale each window by the observed steps of its context, if any; its units lead back to the same values."""
    past, observed = batch.past, batch.past_observed
    weights = torch.ones_like(past) if observed is None else observed.to(past.dtype)
    known = weights.sum(1, keepdim=True)
    mean = (past * weights).sum(1, keepdim=True) / known.clamp(min=1)
    variance = ((past - mean) * weights).square().sum(1, keepdim=True) / known.clamp(min=1)
    spread = torch.where(known > 0, variance.sqrt().clamp(min=_LEAST_SPREAD), 1.0)
    target, units = batch.target, batch.units
    if units is not None:
        covariates = units.past_covariate_scale, units.future_covariate_scale
        units = WindowUnits(units.restore(mean)[:, 0], units.scale * spread[:, 0], *covariates)
    scaled = None if target is None else (target - mean) / spread
    return replace(batch, past=(past - mean) / spread, target=scaled, units=units)


def synthetic_series(count: int, length: int, *, draws: int = 4, seed: int = 0) -> Table:
    """Draw series from Gaussian processes whose covariances are composed at random, one to five kernels of a bank.

    Several (`draws`) come from each process. They are `(count, length)`, of mean 0 and standard deviation 1, and the
    seed decides them.
    """
    parts = kernel_covariances(length)

    def process(rng: np.random.Generator) -> Table:
        covariance = composed_covariance(parts, rng)
        covariance[np.diag_indices(length)] += _JITTER * float(covariance.diagonal().mean())
        return covariance

    def of_those_that_vary(series: Table, variance: float, rng: np.random.Generator) -> Table:
        varied = series[series.std(axis=1) > _FLAT * np.sqrt(variance)]
        return np.asarray((varied - varied.mean(axis=1, keepdims=True)) / varied.std(axis=1, keepdims=True))

    return _drawn(process, of_those_that_vary, count, (length, draws), seed)


def seasonal_series(count: int, length: int, *, draws: int = 4, seed: int = 0) -> Table:
    """Draw series from Gaussian processes with the seasons, levels and noise that measured series have.

    Each process is a sum of a quasi-periodic season, often of a second one, of a smooth level, of short memory
    (Ornstein-Uhlenbeck) and of noise, each of random weight. Some series are exponentials, which are never negative.
    For the arguments see `synthetic_series`.
    """

    def process(rng: np.random.Generator) -> Table:
        covariance: Table = linalg.toeplitz(seasonal_covariance(length, rng))
        return covariance

    def some_positive(series: Table, variance: float, rng: np.random.Generator) -> Table:
        for one in series:
            if rng.random() < _POSITIVE:
                one[:] = np.exp(one / one.std() * rng.uniform(0.3, 0.9))
            one[:] = (one - one.mean()) / one.std()
        return series

    return _drawn(process, some_positive, count, (length, draws), seed)


def _drawn(
    process: Callable[[np.random.Generator], Table],
    finish: Callable[[Table, float, np.random.Generator], Table],
    count: int,
    size: tuple[int, int],
    seed: int,
) -> Table:
    rng, drawn = np.random.default_rng(seed), [np.empty((0, size[0]))]
    while sum(map(len, drawn)) < count:
        covariance, noise = process(rng), rng.standard_normal(size)
        variance = float(covariance.diagonal().mean())
        try:
            root = linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:  # too close to singular, as products and smooth ones can be
            continue
        drawn.append(finish((root @ noise).T, variance, rng))
    return np.concatenate(drawn)[:count]


def kernel_covariances(length: int) -> list[Table]:
    """Return the kernels that processes are composed of, for `length` steps from 0 to 1.

    Each is `(length,)` covariances at each distance of a stationary kernel, else `(length, length)`.
    """
    from sklearn.gaussian_process import kernels  # slow, and this module is imported wherever a configuration is read

    bank = [
        *(kernels.ExpSineSquared(scale, period / length) for period in _PERIODS for scale in _SHARPNESS),
        *(kernels.DotProduct(sigma) for sigma in (0.0, 1.0, 10.0)),
        *(kernels.RBF(scale) for scale in (0.1, 1.0, 10.0)),
        *(kernels.RationalQuadratic(alpha=alpha) for alpha in (0.1, 1.0, 10.0)),
    ]
    steps = np.linspace(0, 1, length)[:, None]
    parts = [kernel(steps, steps[:1])[:, 0] if kernel.is_stationary() else kernel(steps) for kernel in bank]
    # white noise is zero between two lists of steps, even the same
    return [*parts, *(np.where(np.arange(length) == 0, noise, 0.0) for noise in (0.1, 1.0)), np.ones(length)]


def composed_covariance(parts: Sequence[Table], rng: np.random.Generator) -> Table:
    """Join one to five random parts, of `kernel_covariances`, by `+` or `*` in turn."""
    chosen = [parts[number] for number in rng.integers(len(parts), size=rng.integers(1, _MOST_KERNELS + 1))]
    first, *others = (part if part.ndim == 2 else linalg.toeplitz(part) for part in chosen)
    whole: Table = first.copy()
    for part in others:
        whole = np.add(whole, part, out=whole) if rng.random() < 0.5 else np.multiply(whole, part, out=whole)
    return whole


def seasonal_covariance(length: int, rng: np.random.Generator) -> Table:
    """Return the covariance `(length,)` of a random process at distances of 0, 1, ... steps."""
    seasons, weights, distance = np.array([*_SEASONS]), np.array([*_SEASONS.values()]), np.arange(length)

    def drawn_season() -> int:
        return int(rng.choice(seasons, p=weights / weights.sum()))

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def quasi_periodic(season: int) -> Table:
        smoothness, lasts = log_uniform(0.3, 2), log_uniform(3, 300)  # smooth or sharp; few seasons or hundreds
        form = np.exp(-2 * np.sin(np.pi * distance / season) ** 2 / smoothness**2)
        return np.asarray(form * np.exp(-0.5 * (distance / (lasts * season)) ** 2))

    first = drawn_season()
    covariance = rng.gamma(2.0) * quasi_periodic(first)
    if rng.random() < _SECOND:
        second = 7 * first if first in _DAYS and rng.random() < _WEEK else drawn_season()
        covariance += rng.gamma(1.0) * quasi_periodic(second)
    if rng.random() < _LEVEL:
        covariance += rng.gamma(1.0) * np.exp(-0.5 * (distance / log_uniform(20, 1500)) ** 2)
    if rng.random() < _MEMORY:
        covariance += rng.gamma(1.0) * np.exp(-distance / log_uniform(2, 200))
    if rng.random() < _NOISE:
        covariance[0] += _NOISE_SIZE * rng.gamma(1.0)
    covariance[0] *= 1 + 10 * _JITTER
    return covariance


def mixed_series(sources: Mapping[str, Sequence[Table]], count: int, length: int, *, seed: int = 0) -> list[Table]:
    """Add up stretches of real series by data set, each the mean of a few rows, with random weights.

    A source is chosen in proportion to the root of its rows. The series have `length` steps, or fewer where a source
    has fewer, mean 0 and standard deviation 1, and NaN where a part has no value.
    """
    rng, names, mixed = np.random.default_rng(seed), [*sources], list[Table]()
    rows = np.sqrt([sum(map(len, sources[name])) for name in names])

    def stretch(series: Sequence[Table]) -> Table:
        one = series[int(rng.integers(len(series)))]
        together = int(rng.choice([few for few in _ROWS if few * length <= len(one)] or [1]))
        steps = min(length, len(one) // together)
        first = rng.integers(len(one) - together * steps + 1)
        return np.asarray(one[first : first + together * steps].reshape(steps, together).mean(axis=1))

    while len(mixed) < count:
        parts = [
            stretch(sources[names[rng.choice(len(names), p=rows / rows.sum())]])
            for _ in range(rng.integers(1, _MOST_PARTS + 1))
        ]
        weights, steps = rng.dirichlet(np.full(len(parts), _CONCENTRATION)), min(map(len, parts))
        whole = sum(weight * _standardised(part[-steps:]) for weight, part in zip(weights, parts, strict=True))
        series = _standardised(np.asarray(whole))
        if np.isfinite(series).any():
            mixed.append(series)
    return mixed


def _standardised(series: Table) -> Table:
    """Scale what is there; NaN throughout where nothing is there or varies."""
    known = series[~np.isnan(series)]
    spread = known.std() if len(known) else 0.0
    return (series - known.mean()) / spread if spread > 0 else np.full_like(series, np.nan)
