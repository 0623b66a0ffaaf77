"""Training towards what a teacher forecasts, beside what came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch

__all__ = ["MixedTargets"]


class MixedTargets(Callback):
    """Puts a weighted mean of targets and forecasts in the place of the targets of each training batch.

    Validation and test windows keep theirs. Targets that are not observed stay so, and weights of targets stay too.

    Args:
        teacher: forecasts a batch without its targets, `(B, T, C)`.
        weight: the share of the forecast, in (0, 1].
    """

    def __init__(self, teacher: Callable[[Batch], Tensor], weight: float) -> None:
        self.teacher, self.weight = teacher, weight

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Ask the teacher, once for each batch."""
        target = batch.target
        forecast = self.teacher(replace(batch, target=None, target_observed=None, target_weight=None))
        batch.target = (1 - self.weight) * target + self.weight * forecast.to(target)
