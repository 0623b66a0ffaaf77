"""Keeping the weights of the lowest validation error: in a folder, or in memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from typing_extensions import override

__all__ = ["BestCheckpoint", "BestInMemory"]


class BestCheckpoint(ModelCheckpoint):
    """The weights of the lowest validation error, as ``best.ckpt``, and those of each validation, as ``last.ckpt``.

    Lightning's own keeps the last only where it is the best, too. A run folder may be moved: what was the best there is
    so still, which Lightning's own forgets.

    Args:
        folder: of the checkpoints.
        monitor: the validation error.
    """

    def __init__(self, folder: Path, monitor: str) -> None:
        super().__init__(folder, "best", monitor=monitor, enable_version_counter=False)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights as the best, if they are, and as the last."""
        super().on_validation_end(trainer, pl_module)
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            trainer.save_checkpoint(Path(str(self.dirpath)) / "last.ckpt")

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the best error if its weights are in the folder; a training that goes on in a new one has none."""
        best = Path(str(self.dirpath)) / "best.ckpt"
        if best.exists() and state_dict["best_model_path"]:
            there = {
                "dirpath": self.dirpath,
                "best_model_path": str(best),
                "best_k_models": {str(best): state_dict["best_model_score"]},
                "kth_best_model_path": str(best),
            }
            super().load_state_dict({**state_dict, **there})


class BestInMemory(Callback):
    """The weights of the lowest validation error, for a training that writes no files.

    Args:
        monitor: the validation error.

    Attributes:
        state: the weights, on the CPU; None before a validation error was finite.
        error: that error.
        step: the step that they are of.
    """

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor
        self.state: dict[str, Tensor] | None = None
        self.error = math.inf
        self.step = 0

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights, if they are the best."""
        error = float(trainer.callback_metrics[self.monitor])
        if not trainer.sanity_checking and error < self.error:
            self.error, self.step = error, trainer.global_step
            state = pl_module.state_dict()
            self.state = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}
