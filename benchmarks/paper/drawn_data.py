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

_PARTS = ("train", "val", "test")  # the time of a series begins with the number of its part


@dataclass(frozen=True)
class Drawn:
    """Windows: `past` `(B, L)`, `target` `(B, T)`, and `scored` `(T,)` bool, the targets that count; None for all."""

    past: Tensor
    target: Tensor
    scored: Tensor | None = None


class DrawnDataModule(ForecastDataModule):
    """Windows of one channel that a subclass draws; nothing is scaled.

    Each window of validation and testing is a series of its own, drawn from `data_seed`. In training others replace
    those of the loader at each step. Seed and step decide them: a training that resumes draws as it would have, and all
    models of one seed are trained on the same windows. `how` describes these: it is the name of the channel, and so a
    part of the key of an experiment.
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
        sizes |= {"context_length": context_length, "prediction_length": prediction_length}
        super().__init__(name, _DrawnSource(self), _ByFirstStep(context_length, prediction_length), **sizes)
        self.how = how
        self.val_draws = whole_number("val_draws", val_draws)
        self.test_draws = whole_number("test_draws", test_draws)
        self.data_seed = whole_number("data_seed", data_seed, least=0)

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator, done: float | None = None) -> Drawn:
        """Draw new windows; `done` is the share of the training that is done, None outside of it."""

    def held_out(self, part: str, count: int, generator: torch.Generator) -> Drawn:
        """Draw the windows of ``val`` or ``test``, always the same; of ``train`` one that is not trained on."""
        return self.draw(count, generator)

    @override
    def setup(self, stage: str) -> None:
        if self.task is None or self.scaler is None:
            self.panel = self.source.load()
            sizes = self.context_length, self.prediction_length
            self.task = Task(self.name, *sizes, self.panel.channels, self.panel.frequency, 1)
            self.scaler = Scaler((0.0,), (1.0,))
        super().setup(stage)

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Replace training windows of the loader by drawn ones (called by the Trainer)."""
        if self.trainer is None or not self.trainer.training:
            return batch
        if self.trainer.accumulate_grad_batches != 1:
            said = "are drawn once a step: leave trainer.accumulate_grad_batches out, and make data.batch_size larger"
            raise UserError(f"{self.name} {said}")
        steps = self.trainer.estimated_stepping_batches
        if not np.isfinite(steps):
            raise UserError(f"how {self.name} are drawn goes by the share of the training: give trainer.max_steps")
        # torch's own state would not do: in a resumed training it is set after the first batch was drawn
        numbers = [torch.initial_seed(), self.trainer.global_rank, self.trainer.global_step]
        (seed,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(seed) >> 1)
        # the last batch of an epoch of the loader may be smaller, which means nothing here
        drawn = self.draw(self.batch_size, generator, self.trainer.global_step / steps)
        scored = drawn.scored
        if scored is not None:
            scored = scored[:, None].expand(self.batch_size, self.prediction_length, 1)
        new = Batch(past=drawn.past[..., None], target=drawn.target[..., None], target_observed=scored)
        return new.to(batch.past.device)


class _DrawnSource(Source):
    """The windows of a `DrawnDataModule` that are always the same, each as a series."""

    def __init__(self, data: DrawnDataModule) -> None:
        self.data = data

    @override
    def load(self) -> Panel:
        data = self.data
        counts = (1, data.val_draws, data.test_draws)  # without a series for training there would be no training part
        length, values = data.context_length + data.prediction_length, []
        for part, (name, count) in enumerate(zip(_PARTS, counts, strict=True)):
            one = data.held_out(name, count, torch.Generator().manual_seed(len(_PARTS) * data.data_seed + part))
            target = one.target.double()
            if one.scored is not None:
                target = target.masked_fill(~one.scored, torch.nan)
            values.append(torch.cat([one.past.double(), target], dim=1).numpy())
        whole, first = np.concatenate(values), np.repeat(range(len(_PARTS)), counts)
        digits = len(str(len(whole)))
        return Panel(
            ids=tuple(f"{number:0{digits}d}" for number in range(len(whole))),
            channels=(data.how,),
            frequency="1",
            time=pd.Index((first[:, None] + np.arange(length)).ravel()),
            starts=np.arange(len(whole) + 1) * length,
            values=whole.reshape(-1, 1),
            ahead_starts=np.zeros(len(whole) + 1, np.int64),
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
        L, part = self.context_length, _PARTS[int(time[0])]
        end = L + self.prediction_length
        return Split(end if part == "train" else L, L if part == "test" else end, end)
