"""Ending a training before its plan does: at a step, without improvement, or when its loss explodes."""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping
from torch import Tensor
from typing_extensions import override

from tsattn.errors import DivergedError, UserError

__all__ = ["FiniteLoss", "StopAt", "StopEarly", "check_stopping"]


def check_stopping(patience: int | None, min_delta: float) -> tuple[int | None, float]:
    """When a training ends early, see `StopEarly`; None leaves the patience to the length of the training.

    Raises:
        UserError: for one that is out of its range.
    """
    if patience is not None and patience < 1:
        raise UserError(f"patience must be at least 1 validation, not {patience}")
    if not 0 <= min_delta < math.inf:
        raise UserError(f"min_delta must be a number of at least 0, not {min_delta}")
    return patience, min_delta


class StopAt(Callback):
    """Ends a training after some steps, whatever its plan.

    Args:
        steps: of the optimizer.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look whether this was the last."""
        trainer.should_stop = trainer.should_stop or trainer.global_step >= self.steps


class StopEarly(EarlyStopping):
    """Ends a training whose validation error has not come down for some validations.

    Args:
        monitor: the validation error.
        min_delta: how much lower than the least one before an error must be to count as lower.

    Attributes:
        patience: validations without a lower error, after which training ends; None never ends it. It is not part of
            a checkpoint.
    """

    patience: int | None  # type: ignore[assignment]

    def __init__(self, monitor: str, min_delta: float = 0.0) -> None:
        super().__init__(monitor, check_finite=False, check_on_train_epoch_end=False)
        self.patience = None
        self.least_gain = min_delta  # Lightning's own is signed by its mode

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting; the patience is that of this training."""
        super().load_state_dict({**state_dict, "patience": self.patience})

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End at once what had come to its end before it was killed."""
        trainer.should_stop = trainer.should_stop or self._is_over

    @override
    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        """Count."""
        if current < self.best_score.to(current.device) - self.least_gain:
            self.best_score, self.wait_count = current, 0
        else:
            self.wait_count += 1
        return self._is_over, None

    @property
    def _is_over(self) -> bool:
        return self.patience is not None and self.wait_count >= self.patience


class FiniteLoss(Callback):
    """Stops a training whose loss is no longer a number, or has exploded, before its weights are saved.

    The loss is watched on its device; it is looked at in the steps that are logged, where the host waits for the device
    anyway, and before each validation.

    Args:
        most: a loss is taken to have exploded where it exceeds this many times that of the first step, or this number.
    """

    def __init__(self, most: float = 1e4) -> None:
        self.most = most
        self._limit: Tensor | None = None
        self._first_bad: Tensor | None = None

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the first step whose loss is bad."""
        loss = outputs["loss"].detach().float()
        if self._limit is None or self._first_bad is None:
            self._limit = self.most * torch.nan_to_num(loss, 1.0).clamp(min=1.0)
            self._first_bad = torch.full((), torch.inf, device=loss.device)
        is_good = loss <= self._limit  # false for what is not a number
        # global_step counts this step already
        self._first_bad = torch.where(is_good, self._first_bad, self._first_bad.clamp(max=float(trainer.global_step)))
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # 0 for never
        if every and trainer.global_step % every == 0:
            self._look(trainer)

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look before a checkpoint is written."""
        self._look(trainer)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the end."""
        self._look(trainer)

    def _look(self, trainer: Trainer) -> None:
        if self._first_bad is None or self._first_bad.isinf():
            return
        step = int(self._first_bad)
        batches = trainer.train_dataloader.batches  # type: ignore[union-attr]  # a TrainingLoader
        epoch, batch = divmod(step * trainer.accumulate_grad_batches - 1, batches.epoch_length)
        raise DivergedError(
            f"training diverged: the loss of step {step} (batch {batch + 1} of epoch {epoch + 1}) is not a number or "
            "has exploded; a lower learning_rate, more warmup_steps or a lower gradient_clip_val may help"
        )
