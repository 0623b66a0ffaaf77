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

from tsattn.errors import DivergedError, UserError
from tsattn.training.checkpoint_io import load_checkpoint

__all__ = ["DIVERGED", "BestCheckpoint", "BestInMemory", "load_best"]

DIVERGED = "training diverged; a lower --model.learning_rate or more --model.warmup_steps may help"


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


def load_best(
    module: LightningModule, trainer: Trainer, kept: BestCheckpoint | BestInMemory, checkpoint: Path | None
) -> dict[str, Any]:
    """Leave a module with its best weights.

    Args:
        module: trained.
        trainer: that trained it.
        kept: what has kept them.
        checkpoint: that the training went on from.

    Returns:
        ``best_step`` and ``validation_error``.

    Raises:
        DivergedError: if no validation error was finite.
        UserError: if nothing was trained after the checkpoint.
    """
    if isinstance(kept, BestCheckpoint):
        # of several processes each may have named the folder by its own clock; that of the first is the one
        file = Path(str(kept.dirpath)) / "best.ckpt"
        if not file.exists():
            raise DivergedError(
                f"no validation error was finite, so {file.parent.parent} has no best checkpoint: {DIVERGED}"
            )
        content, best = load_checkpoint(file), kept.best_model_score
        module.load_state_dict(content["state_dict"])
        return {"best_step": content["global_step"], "validation_error": None if best is None else float(best)}
    if kept.state is None:
        if checkpoint is not None and trainer.global_step == load_checkpoint(checkpoint)["global_step"]:
            raise UserError(f"{checkpoint} is of step {trainer.global_step}, the end: a higher max_steps goes on")
        raise DivergedError(f"no validation error was finite: {DIVERGED}")
    module.load_state_dict(kept.state)
    return {"best_step": kept.step, "validation_error": kept.error}
