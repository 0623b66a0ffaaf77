"""The checkpoints of a training in a folder of the user's: the best few, by their steps, and the last."""

from __future__ import annotations

from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from tsattn.errors import UserError

__all__ = ["KeptCheckpoints"]


class KeptCheckpoints(ModelCheckpoint):
    """The weights of the lowest validation errors, as ``step_100.ckpt``, and those of the last one, as ``last.ckpt``.

    Args:
        folder: of the checkpoints.
        monitor: the validation error.
        save_top_k: how many of the best are kept; -1 keeps all.
        keeps_last: whether the last is kept, too.

    Raises:
        UserError: for a number below -1.
    """

    def __init__(self, folder: Path, monitor: str, save_top_k: int = 1, *, keeps_last: bool = True) -> None:
        if save_top_k < -1:
            raise UserError(f"save_top_k must be at least 0, or -1 for all checkpoints, not {save_top_k}")
        names = {"filename": "step_{step}", "auto_insert_metric_name": False, "enable_version_counter": False}
        super().__init__(folder, monitor=monitor, save_top_k=save_top_k, **names)  # type: ignore[arg-type]
        self.keeps_last = keeps_last

    @property
    def last(self) -> Path:
        """The last checkpoint."""
        return Path(str(self.dirpath)) / "last.ckpt"

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights among the best, if they are, and as the last: Lightning's own would only if they are."""
        super().on_validation_end(trainer, pl_module)
        if self.keeps_last and trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            trainer.save_checkpoint(self.last)
