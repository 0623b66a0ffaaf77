"""How long to train and how often to validate: one rule for all trainings.

Small data are seen more often. A series of a hundred rows has three batches an epoch, and would never leave the warm-up
in a few epochs. A million windows need not all be seen. Nothing here reads a clock, so runs repeat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsattn.errors import UserError, number_of

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from tsattn.data import ForecastDataModule

_EPOCHS, _FEWEST_STEPS, _MOST_STEPS = 20, 400, 1000
_CHECKS, _STEPS_BETWEEN = 20, 10  # validations at most, and steps between them: each costs more than its windows
_PATIENCE = 7  # validations
_TOLERANCE = 0.1  # share above the lowest error within which none counts: only much overfitting ends a training
# a third as many windows as were trained on take less than a quarter of the time (`benchmarks/results/validation.json`)
_TRAINED_A_SCORED = 3
_ENOUGH = 512  # windows that distinguish models: rather fewer validations than fewer windows
_FEWEST_SCORED = 32
_ENDLESS = 10**12  # batches, where time alone ends a training


def choose_length(windows: int, windows_a_step: int) -> int:
    """Return the steps of `_EPOCHS` epochs, at least `_FEWEST_STEPS` and at most `_MOST_STEPS`; they may end early."""
    return min(_MOST_STEPS, max(_FEWEST_STEPS, _EPOCHS * math.ceil(windows / windows_a_step)))


def choose_interval(steps: int, windows_a_step: int, available: int) -> int:
    """Return the steps between validations, of which there are twenty at most, the last at the end if steps divide."""
    affordable = steps * windows_a_step // _TRAINED_A_SCORED // max(1, min(available, _ENOUGH))
    checks = max(1, min(_CHECKS, steps // _STEPS_BETWEEN, affordable))
    even = [count for count in range(checks, checks // 2, -1) if steps % count == 0]
    return steps // (even[0] if even else checks)


def scored_windows(trained: int, available: int) -> int:
    """Return how many validation windows to score after these training windows: a third, at least 32."""
    return min(available, max(_FEWEST_SCORED, trained // _TRAINED_A_SCORED))


@dataclass(frozen=True)
class TrainingPlan:
    """Steps and validations of a training."""

    steps: int | None  # at most; None where time alone ends it
    interval: int  # steps between validations
    scored: int  # windows of a validation
    patience: int | None  # validations without a lower error, after which it ends
    tolerance: float = 0.0  # share above the lowest error from which on a validation counts for that

    def __str__(self) -> str:
        steps = "" if self.steps is None else f"{'up to ' if self.patience else ''}{number_of(self.steps, 'step')}, "
        often = f"validation every {number_of(self.interval, 'step')} on {number_of(self.scored, 'window')}"
        above = f"more than {100 * self.tolerance:.0f} % above the lowest error"
        worse = above if self.tolerance else "without improvement"
        return f"{steps}{often}" + (f", ending after {self.patience} {worse}" if self.patience else "")


def train_as_one_epoch(
    trainer: Trainer, data: ForecastDataModule, *, choose_steps: bool = False, choose_validation: bool = False
) -> tuple[TrainingPlan, ForecastDataModule]:
    """Let a Trainer see its epochs as one, so that Lightning resumes exactly; return the plan and the data."""
    limit, every = trainer.limit_train_batches, trainer.accumulate_grad_batches
    if every < 1:
        raise UserError(f"accumulate_grad_batches must be at least 1, not {every}")
    # each of several devices has its share of a batch
    whole = len(data.planned(trainer).train_dataloader())
    epoch = min(whole, limit) if isinstance(limit, int) else max(1, int(whole * limit)) if limit else 0
    windows_a_batch = data.batch_size * trainer.world_size
    totals = [_ENDLESS]
    if choose_steps:
        totals.append(choose_length(len(data.windows("train")), windows_a_batch * every) * every)
    if trainer.max_epochs not in (None, -1):
        totals.append(trainer.max_epochs * epoch)
    if trainer.max_steps != -1:
        totals.append(trainer.max_steps * every)
    total = min(totals)
    if total == 0 or epoch == 0:
        raise UserError("there is nothing to train: max_epochs, max_steps and limit_train_batches must be above 0")
    if total < _ENDLESS:  # the last step must not have fewer batches than planned
        total = max(every, total // every * every)
    available = len(data.windows("val")) if "val" in data.parts else 0
    interval = trainer.val_check_interval
    if choose_validation and total < _ENDLESS:
        interval = choose_interval(total // every, windows_a_batch * every, available) * every
    elif not isinstance(interval, int):
        interval = int(epoch * interval * (trainer.check_val_every_n_epoch or 1))
        interval = max(1, interval // every) * every
    elif interval % every and interval < total:
        raise UserError(f"val_check_interval {interval} must be a multiple of accumulate_grad_batches {every}")
    interval = min(interval, total)
    trainer.val_check_interval, trainer.check_val_every_n_epoch = interval, None
    trainer.limit_train_batches = 1.0
    trainer.fit_loop.max_epochs = 1
    is_limited = trainer.limit_val_batches not in (None, 1.0)  # then all windows that the user left are scored
    scored = None if is_limited else scored_windows(interval * windows_a_batch, available)
    planned = data.planned(trainer, total, scored)
    steps, patience = None if total == _ENDLESS else total // every, _PATIENCE if choose_steps else None
    return TrainingPlan(steps, interval // every, planned.num_scored(available), patience, _TOLERANCE), planned
