"""How long to train, how often to validate, and at which learning rates: one rule for all who train.

Small data are seen more often: a series of a hundred rows has three batches an epoch and would never leave the warm-up
in a few epochs. A million windows need not all be seen. Nothing here looks at a clock, so that runs repeat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from tsattn.errors import UserError, number_of, one_of
from tsattn.optim import BETAS, SCHEDULES, adamw, mup_groups, rate_schedule

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from tsattn.data import ForecastDataModule

__all__ = [
    *("Optimization", "TrainingLength", "TrainingPlan", "choose_interval", "choose_length", "choose_warmup"),
    *("scored_windows", "train_as_one_epoch"),
]

_EPOCHS = 20
_FEWEST_STEPS, _MOST_STEPS = 400, 1000
_WARMUP_SHARE, _MOST_WARMUP = 10, 100
_CHECKS = 20  # validations in a training, at most
_STEPS_BETWEEN = 10  # validations, at least: each costs more than its windows
_PATIENCE = 7  # validations
# A window takes a third of the time to forecast that it takes to train on, as there is no backward pass, and its errors
# of all quantiles take nearly as long: a third as many windows as were trained on stay below a quarter of the time.
_TRAINED_A_SCORED = 3
_ENOUGH = 512  # windows by which one model is told from another: rather fewer validations than fewer windows
_FEWEST_SCORED = 32
_ENDLESS = 10**12  # batches, where time alone ends a training


@dataclass(frozen=True)
class TrainingLength:
    """Optimizer steps, at most, and validations without a lower error, after which a training ends."""

    steps: int
    patience: int | None = None


def choose_length(windows: int, windows_a_step: int) -> TrainingLength:
    """Choose 20 epochs, within 400 and 1000 steps, which may end early."""
    epochs = _EPOCHS * math.ceil(windows / windows_a_step)
    return TrainingLength(min(_MOST_STEPS, max(_FEWEST_STEPS, epochs)), _PATIENCE)


def choose_warmup(steps: float) -> int:
    """Return the steps over which the learning rate rises: a tenth of all, at most 100."""
    return int(min(_MOST_WARMUP, steps // _WARMUP_SHARE))


def choose_interval(steps: int, windows_a_step: int, available: int) -> int:
    """Return the steps between validations, of which there are twenty at most, the last at the end if steps divide."""
    affordable = steps * windows_a_step // _TRAINED_A_SCORED // max(1, min(available, _ENOUGH))
    checks = max(1, min(_CHECKS, steps // _STEPS_BETWEEN, affordable))
    even = [count for count in range(checks, checks // 2, -1) if steps % count == 0]
    return steps // (even[0] if even else checks)


def scored_windows(trained: int, available: int) -> int:
    """Return how many validation windows to score after so many training windows: a third, at least 32.

    That takes less than a quarter of the time of training (`benchmarks/results/validation.json`).
    """
    return min(available, max(_FEWEST_SCORED, trained // _TRAINED_A_SCORED))


@dataclass(frozen=True)
class TrainingPlan:
    """Steps and validations of a training."""

    steps: int | None  # at most; None where time alone ends it
    interval: int  # steps between validations
    scored: int  # windows of a validation
    patience: int | None  # validations without a lower error, after which it ends

    def __str__(self) -> str:
        steps = "" if self.steps is None else f"{'up to ' if self.patience else ''}{number_of(self.steps, 'step')}, "
        often = f"validation every {number_of(self.interval, 'step')} on {number_of(self.scored, 'window')}"
        return f"{steps}{often}" + (f", ending after {self.patience} without improvement" if self.patience else "")


def train_as_one_epoch(
    trainer: Trainer, data: ForecastDataModule, *, choose_steps: bool = False, choose_validation: bool = False
) -> tuple[TrainingPlan, ForecastDataModule]:
    """Let a Trainer see all its epochs as one, and return the plan and the data to fit it with.

    Without the ends of epochs in between, each checkpoint lies in the middle of an epoch, from which Lightning resumes
    exactly. Validation, which Lightning counts in epochs too, comes after the same batches.

    Args:
        trainer: its limits of epochs, steps and batches, and its intervals of validation are obeyed and replaced.
        data: set up.
        choose_steps: choose the length.
        choose_validation: choose how often to validate.

    Raises:
        UserError: if there is nothing to train, or validation would come in the middle of a step.
    """
    limit, every = trainer.limit_train_batches, trainer.accumulate_grad_batches
    if every < 1:
        raise UserError(f"accumulate_grad_batches must be at least 1, not {every}")
    # each of several devices has its share of a batch
    whole = len(data.planned(trainer).train_dataloader())
    epoch = min(whole, limit) if isinstance(limit, int) else max(1, int(whole * limit)) if limit else 0
    windows_a_batch = data.batch_size * trainer.world_size
    length = choose_length(len(data.windows("train")), windows_a_batch * every) if choose_steps else None
    totals = [_ENDLESS if length is None else length.steps * every]
    if trainer.max_epochs not in (None, -1):
        totals.append(trainer.max_epochs * epoch)
    if trainer.max_steps != -1:
        totals.append(trainer.max_steps * every)
    total = min(totals)
    if total == 0 or epoch == 0:
        raise UserError("there is nothing to train: max_epochs, max_steps and limit_train_batches must be above 0")
    if total < _ENDLESS:  # a step of fewer batches would be a smaller one, and not the one that was planned
        total = max(every, total // every * every)
    available = len(data.windows("val")) if "val" in data.parts else 0
    interval = trainer.val_check_interval
    if choose_validation and total < _ENDLESS:
        interval = choose_interval(total // every, windows_a_batch * every, available) * every
    elif not isinstance(interval, int):
        interval = int(epoch * interval * (trainer.check_val_every_n_epoch or 1))
        interval = max(1, interval // every) * every
    elif interval % every and interval < total:
        raise UserError(
            f"val_check_interval {interval} must be a multiple of accumulate_grad_batches {every}: validation comes "
            "after a whole step"
        )
    interval = min(interval, total)
    trainer.val_check_interval, trainer.check_val_every_n_epoch = interval, None
    trainer.limit_train_batches = 1.0
    trainer.fit_loop.max_epochs = 1
    # all of the windows that the user limits are scored
    is_limited = trainer.limit_val_batches not in (None, 1.0)
    planned = data.planned(
        trainer, total, None if is_limited else scored_windows(interval * windows_a_batch, available)
    )
    plan = TrainingPlan(
        steps=None if total == _ENDLESS else total // every,
        interval=interval // every,
        scored=planned.num_scored(available),
        patience=None if length is None else length.patience,
    )
    return plan, planned


@dataclass(frozen=True)
class Optimization:
    """Choices of a training by AdamW; `ForecastingModule` explains the arguments.

    Raises:
        UserError: for one out of its range.
    """

    learning_rate: float
    weight_decay: float
    warmup_steps: int | None
    schedule: str = SCHEDULES[0]
    betas: Sequence[float] = BETAS
    mup: bool = False

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}")
        for name, value in (("weight_decay", self.weight_decay), ("warmup_steps", self.warmup_steps)):
            if value is not None and not value >= 0:
                raise UserError(f"{name} must be at least 0, not {value}")
        if self.schedule not in SCHEDULES:
            raise UserError(f"schedule must be one of {one_of(SCHEDULES)}, not {self.schedule!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas must be two numbers of at least 0 and below 1, not {list(self.betas)}")

    def begin(
        self, network: nn.Module, steps: float, *, fused: bool
    ) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LRScheduler]:
        """Build the optimizer of a network, and the schedule of its rates; steps may be infinite."""
        first, second = self.betas
        if self.mup:
            groups = mup_groups(network, self.learning_rate, self.weight_decay)
            optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, betas=(first, second), fused=fused)
        else:
            optimizer = adamw([network], self.learning_rate, self.weight_decay, betas=(first, second), fused=fused)
        warmup = choose_warmup(steps) if self.warmup_steps is None else self.warmup_steps
        return optimizer, rate_schedule(optimizer, warmup, steps, self.schedule)
