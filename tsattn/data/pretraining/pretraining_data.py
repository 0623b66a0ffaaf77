"""Generated and mixed series for a model that forecasts series which it has never seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch, WindowUnits
from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.panel import Panel
from tsattn.data.pretraining.mixed_series import mixed_series
from tsattn.data.pretraining.seasonal_series import seasonal_series
from tsattn.data.public.cards import CARDS, card_of
from tsattn.data.public.co2 import CO2DataModule
from tsattn.data.public.public_data import PublicDataModule
from tsattn.data.sources import Source
from tsattn.data.split_rule import ByCount
from tsattn.errors import UserError, whole_number

__all__ = ["PretrainingDataModule"]

_EMBEDDED = "co2"
_LEAST_SPREAD = 1e-3  # standard deviation of a context, over that of its series, below which it counts as so large


class PretrainingDataModule(ForecastDataModule):
    """Series from Gaussian processes, and mixtures of the training parts of public data sets, all counted in steps.

    The last `prediction_length` steps of each series are for testing, those before them for validation: of real series,
    they lie within the training part, too. In training, windows are brought to their own scale, so that each counts
    alike, and the front of some contexts is masked at random, so that short ones are known.

    Args:
        context_length: past steps that a model sees, L.
        prediction_length: steps that it forecasts, T.
        synthetic: series that are drawn from Gaussian processes, see `synthetic_series`.
        seasonal: series that are drawn from those with seasons, see `seasonal_series`.
        mixed: series that are mixed from real ones, see `mixed_series`.
        length: steps of a series.
        public: names of the data sets whose training parts are mixed.
        root: the folder of their CSV files; `$TSATTN_DATA` by default, else `data`.
        data_seed: decides the series; that of the training decides weights, order and masks.
        shortened: share of the training windows whose context is shortened.
        shortest: steps of the shortest of these.
        **sizes: batch sizes, see `ForecastDataModule`.

    Raises:
        UserError: for series too short for a window, or a share that is none.
    """

    in_key = ("shortened", "shortest")

    def __init__(
        self,
        context_length: int = 512,
        prediction_length: int = 64,
        synthetic: int = 4000,
        seasonal: int = 4000,
        mixed: int = 2000,
        length: int = 1024,
        public: Sequence[str] = ("weather", "exchange_rate", "national_illness", _EMBEDDED),
        root: str | None = None,
        data_seed: int = 1,
        shortened: float = 0.5,
        shortest: int = 8,
        **sizes: Any,
    ) -> None:
        source, rule = _Pretraining(self), ByCount(prediction_length, prediction_length)
        super().__init__("pretraining", source, rule, context_length, prediction_length, **sizes)
        self.synthetic = whole_number("synthetic", synthetic, least=0)
        self.seasonal = whole_number("seasonal", seasonal, least=0)
        self.mixed = whole_number("mixed", mixed, least=0)
        self.length = whole_number("length", length)
        self.public = tuple(public)
        self.root = root
        self.data_seed = whole_number("data_seed", data_seed, least=0)
        self.shortened = shortened
        self.shortest = whole_number("shortest", shortest)
        for name in self.public:
            card_of(name)
        least = context_length + 3 * prediction_length
        if length < least:
            raise UserError(
                f"length {length} is too short: context_length {context_length} and three times prediction_length "
                f"{prediction_length}, for training, validation and testing, take {least} steps"
            )
        if not self.synthetic + self.seasonal + self.mixed:
            raise UserError("synthetic, seasonal and mixed are all 0: there is no series to train on")
        if self.mixed and not self.public:
            raise UserError("mixed series need public data sets to be mixed from")
        if not 0 <= shortened <= 1:
            raise UserError(f"shortened must be a share from 0 to 1, not {shortened}")
        if self.shortest > context_length:
            raise UserError(f"shortest must be at most context_length {context_length}, not {shortest}")

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Shorten and scale training windows (called by the Trainer)."""
        is_training = self.trainer is not None and self.trainer.training
        return own_scale(shortened(batch, self.shortened, self.shortest)) if is_training else batch


class _Pretraining(Source):
    """The series that a `PretrainingDataModule` describes."""

    def __init__(self, data: PretrainingDataModule) -> None:
        self.data = data

    @override
    def prepare(self) -> None:
        for name in self.data.public if self.data.mixed else ():
            self._public(name).prepare_data()

    @override
    def load(self) -> Panel:
        # slow to import, and this class is known wherever a configuration is read
        from tsattn.data.pretraining.kernel_synth import synthetic_series

        data = self.data
        series = [
            *synthetic_series(data.synthetic, data.length, seed=data.data_seed),
            *seasonal_series(data.seasonal, data.length, seed=data.data_seed),
        ]
        if data.mixed:
            sources = {name: self._training_part(name) for name in data.public}
            series += mixed_series(sources, data.mixed, data.length, seed=data.data_seed)
        return steps_panel(series)

    @override
    def at(self, path: Path) -> Source:
        raise UserError(
            f"a pretrained model forecasts other series by its weights, not from the run that trained it: {path} is "
            "forecast with {kind: chronos, weights: FILE} as the backbone, FILE made of the run by "
            "`benchmarks/chronos_tiny.py export`"
        )

    def _public(self, name: str) -> ForecastDataModule:
        if name == _EMBEDDED:
            return CO2DataModule()
        return PublicDataModule(name, self.data.root, clean=bool(CARDS[name].sentinels))

    def _training_part(self, name: str) -> list[NDArray[np.float64]]:
        """The training rows of each channel."""
        data = self._public(name)
        panel = data.source.load()
        values = panel.values[: data.rule.split(panel.time).train_end]
        return [values[:, channel] for channel in range(values.shape[1])]


def steps_panel(series: Sequence[NDArray[np.float64]]) -> Panel:
    """Series of any lengths, NaN where missing, as one panel whose time counts steps from 0."""
    lengths = [len(one) for one in series]
    digits = len(str(len(series)))
    return Panel(
        ids=tuple(f"{number:0{digits}d}" for number in range(len(series))),
        channels=("y",),
        frequency="1",
        time=pd.Index(np.concatenate([np.arange(length) for length in lengths])),
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        values=np.concatenate(series)[:, None],
        past_covariates=None,
        past_names=(),
        future_covariates=None,
        future_names=(),
        ahead=None,
        ahead_starts=np.zeros(len(series) + 1, np.int64),
        static=None,
        static_names=(),
        static_categories=(),
        is_wide=False,
    )


def shortened(batch: Batch, share: float, shortest: int) -> Batch:
    """Windows of which some know only the last steps of their context, drawn from torch's generator.

    Args:
        batch: `past (B, L, C)`.
        share: the probability that a window is shortened.
        shortest: steps; all lengths up to L come, short ones as often as they are few in proportion.
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
    """Windows of which each has mean 0 and standard deviation 1 over the observed steps of its context, if any.

    Their units, where they have some, lead back to the same values.
    """
    past, observed = batch.past, batch.past_observed
    weights = torch.ones_like(past) if observed is None else observed.to(past.dtype)
    known = weights.sum(1, keepdim=True)
    mean = (past * weights).sum(1, keepdim=True) / known.clamp(min=1)
    variance = ((past - mean) * weights).square().sum(1, keepdim=True) / known.clamp(min=1)
    spread = torch.where(known > 0, variance.sqrt().clamp(min=_LEAST_SPREAD), 1.0)

    def scaled(part: Tensor) -> Tensor:
        return (part - mean) / spread

    target = None if batch.target is None else scaled(batch.target)
    units = batch.units
    if units is not None:
        covariates = units.past_covariate_scale, units.future_covariate_scale
        units = WindowUnits(units.restore(mean)[:, 0], units.scale * spread[:, 0], *covariates)
    return replace(batch, past=scaled(past), target=target, units=units)
