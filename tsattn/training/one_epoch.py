"""A training as one epoch of Lightning's, and the plan of its steps and validations."""

from __future__ import annotations

from dataclasses import dataclass

from lightning.pytorch import Trainer

from tsattn.data import ForecastDataModule
from tsattn.errors import UserError, number_of
from tsattn.training.length import choose_interval, choose_length, scored_windows

__all__ = ["TrainingPlan", "train_as_one_epoch"]

_ENDLESS = 10**12  # batches, where time alone ends a training


@dataclass(frozen=True)
class TrainingPlan:
    """What a training will do.

    Attributes:
        steps: optimizer steps, at most; None where time alone ends it.
        interval: steps from one validation to the next.
        scored: validation windows that each of them scores.
        patience: validations without a lower error, after which it ends; None trains all steps.
    """

    steps: int | None
    interval: int
    scored: int
    patience: int | None

    def __str__(self) -> str:
        steps = "" if self.steps is None else f"{'up to ' if self.patience else ''}{number_of(self.steps, 'step')}, "
        often = f"validation every {number_of(self.interval, 'step')} on {number_of(self.scored, 'window')}"
        return f"{steps}{often}" + (f", ending after {self.patience} without improvement" if self.patience else "")


def train_as_one_epoch(
    trainer: Trainer, data: ForecastDataModule, *, choose_steps: bool = False, choose_validation: bool = False
) -> TrainingPlan:
    """Let a Trainer see all its epochs as one, whose loader begins anew after each; call it before `fit`.

    Its validation, which Lightning counts in epochs too, comes after the same batches. Without the ends of epochs in
    between, every checkpoint is one of the middle of an epoch, from which Lightning goes on exactly.

    Args:
        trainer: its `max_epochs`, `max_steps`, `limit_train_batches`, `val_check_interval` and
            `check_val_every_n_epoch` are obeyed and replaced.
        data: set up.
        choose_steps: train as long as `tsattn.training.length` has it, not as the Trainer says; that
            patience ends it is left to the caller.
        choose_validation: validate as often as it has it.

    Raises:
        UserError: if there is nothing to train, or validation would come in the middle of a step.
    """
    data.training_batches, data.trainer = None, trainer  # of several devices each has its share of a batch
    limit, every = trainer.limit_train_batches, trainer.accumulate_grad_batches
    if every < 1:
        raise UserError(f"accumulate_grad_batches must be at least 1, not {every}")
    whole = len(data.train_dataloader())
    epoch = min(whole, limit) if isinstance(limit, int) else max(1, int(whole * limit)) if limit else 0
    windows_a_batch = data.batch_size * trainer.world_size
    windows = len(data.windows("train"))
    length = choose_length(windows, windows_a_batch * every) if choose_steps else None
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
    data.training_batches = total
    # of windows that the user limits, all are scored
    is_limited = trainer.limit_val_batches not in (None, 1.0)
    data.scored_windows = None if is_limited else scored_windows(interval * windows_a_batch, available)
    return TrainingPlan(
        steps=None if total == _ENDLESS else total // every,
        interval=interval // every,
        scored=data.num_scored(available),
        patience=None if length is None else length.patience,
    )
