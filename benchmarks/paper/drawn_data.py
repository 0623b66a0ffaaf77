"""Data that are drawn, not read: training windows never repeat, those of validation and testing are always the same."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.data.datamodule import ForecastDataModule, Source
from tsattn.data.frequency import Times
from tsattn.data.panel import Panel
from tsattn.data.splits import Split
from tsattn.errors import UserError, whole_number
from tsattn.scaler import Scaler
from tsattn.task import Task

__all__ = ["Drawn", "DrawnDataModule"]

_TRAIN, _VAL, _TEST = range(3)  # the step that the time of a series begins with, by which its part is known
_NAMES = ("train", "val", "test")


@dataclass(frozen=True)
class Drawn:
    """Windows.

    Attributes:
        past: `(B, L)`.
        target: `(B, T)`.
        scored: `(T,)` bool, which targets count; None for all.
    """

    past: Tensor
    target: Tensor
    scored: Tensor | None = None


class DrawnDataModule(ForecastDataModule):
    """Windows of one channel that a subclass draws; nothing is scaled.

    Each window of validation and testing is a series of its own, drawn from `data_seed`. In training others are drawn
    in the place of those of the loader at each step. Seed and step decide them, so that a training that is resumed
    draws on as it would have, and all arms of one seed are trained on the same.

    Args:
        name: of the data set.
        context_length: L.
        prediction_length: T.
        how: what decides the training windows, in words: it is the name of the channel, and so a part of what tells one
            experiment from another.
        val_draws: windows for validation.
        test_draws: windows for testing.
        data_seed: decides both.
        **sizes: batch sizes, see `ForecastDataModule`.
    """

    can_recut = False

    def __init__(
        self,
        name: str,
        context_length: int,
        prediction_length: int,
        how: str,
        val_draws: int = 1000,
        test_draws: int = 3200,
        data_seed: int = 1,
        **sizes: Any,
    ) -> None:
        rule = _ByFirstStep(context_length, prediction_length)
        super().__init__(
            name,
            _DrawnSource(self),
            rule,
            context_length=context_length,
            prediction_length=prediction_length,
            **sizes,
        )
        self.how = how
        self.val_draws = whole_number("val_draws", val_draws)
        self.test_draws = whole_number("test_draws", test_draws)
        self.data_seed = whole_number("data_seed", data_seed, least=0)

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator, done: float | None = None) -> Drawn:
        """New windows.

        Args:
            count: B.
            generator: draws them.
            done: the share of the training that is done, from 0 to 1; None outside of it.
        """

    def held_out(self, part: str, count: int, generator: torch.Generator) -> Drawn:
        """The windows of a part, which are always the same; by default others of the kind that training draws.

        Args:
            part: ``val`` or ``test``; of ``train`` a single window, which is never trained on.
            count: B.
            generator: decided by part and `data_seed`.
        """
        return self.draw(count, generator)

    @override
    def setup(self, stage: str) -> None:
        """Draw the windows that are always the same (called by the Trainer), once."""
        if self.task is None or self.scaler is None:
            self.panel = self.source.load()
            self.task = Task(
                data=self.name,
                context_length=self.context_length,
                prediction_length=self.prediction_length,
                channels=self.panel.channels,
                frequency=self.panel.frequency,
                season_length=1,
            )
            self.scaler = Scaler((0.0,), (1.0,))
        super().setup(stage)

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Draw training windows in the place of those of the loader (called by the Trainer)."""
        if self.trainer is None or not self.trainer.training:
            return batch
        if self.trainer.accumulate_grad_batches != 1:
            raise UserError(
                f"{self.name} are drawn once a step: leave trainer.accumulate_grad_batches out, and make "
                "data.batch_size larger"
            )
        steps = self.trainer.estimated_stepping_batches
        if not np.isfinite(steps):
            raise UserError(f"how {self.name} are drawn goes by the share of the training: give trainer.max_steps")
        # the last batch of an epoch of the loader may be smaller, which means nothing here
        drawn = self.draw(self.batch_size, self._generator(), self.trainer.global_step / steps)
        shape = self.batch_size, self.prediction_length, 1
        new = Batch(
            past=drawn.past[..., None],
            target=drawn.target[..., None],
            target_observed=None if drawn.scored is None else drawn.scored[:, None].expand(shape),
        )
        return new.to(batch.past.device)

    def _generator(self) -> torch.Generator:
        """Of the windows of this step, on this process.

        Torch's own would not do: where a training is resumed its state is set only after the first batch was drawn.
        """
        assert self.trainer is not None
        numbers = [torch.initial_seed(), self.trainer.global_rank, self.trainer.global_step]
        (seed,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(seed) >> 1)


class _DrawnSource(Source):
    """The windows of a `DrawnDataModule` that are always the same, each as a series."""

    def __init__(self, data: DrawnDataModule) -> None:
        self.data = data

    @override
    def load(self) -> Panel:
        data = self.data
        # one series for training: without it there would be no training part
        counts = {_TRAIN: 1, _VAL: data.val_draws, _TEST: data.test_draws}
        length = data.context_length + data.prediction_length
        values = []
        for part, count in counts.items():
            one = data.held_out(_NAMES[part], count, torch.Generator().manual_seed(len(counts) * data.data_seed + part))
            target = one.target.double()
            if one.scored is not None:
                target = target.masked_fill(~one.scored, torch.nan)
            values.append(torch.cat([one.past.double(), target], dim=1).numpy())
        whole = np.concatenate(values)
        first = np.repeat([*counts], [*counts.values()])
        digits = len(str(len(whole)))
        return Panel(
            ids=tuple(f"{number:0{digits}d}" for number in range(len(whole))),
            channels=(data.how,),
            frequency="1",
            time=pd.Index((first[:, None] + np.arange(length)).ravel()),
            starts=np.arange(len(whole) + 1) * length,
            values=whole.reshape(-1, 1),
            past_covariates=None,
            past_names=(),
            future_covariates=None,
            future_names=(),
            ahead=None,
            ahead_starts=np.zeros(len(whole) + 1, np.int64),
            static=None,
            static_names=(),
            static_categories=(),
            is_wide=False,
        )

    @override
    def at(self, path: Path) -> Source:
        raise UserError(f"{self.data.name} are drawn, and forecast from no file: {path} cannot be read")


@dataclass(frozen=True)
class _ByFirstStep:
    """A whole window for one part: for validation and testing its horizon alone."""

    context_length: int
    prediction_length: int

    def split(self, time: Times) -> Split:
        L, T = self.context_length, self.prediction_length
        part = int(time[0])
        return Split(L if part else L + T, L + T if part == _VAL else L if part else L + T, L + T)
