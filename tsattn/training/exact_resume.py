"""Going on from a checkpoint to the end that the unbroken training would have had."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

__all__ = ["ExactResume"]


class ExactResume(Callback):
    """Keeps in the checkpoint what decides the next steps beside weights and optimizer: batches seen, random numbers.

    Lightning would keep the place in the loader itself, but forgets it where the number of steps is asked for (by a
    learning rate schedule, say) before the checkpoint is read.
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None
        self._trainer: Any = None

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remember the Trainer, whose loader is asked for its place."""
        self._trainer = trainer

    @override
    def state_dict(self) -> dict[str, Any]:
        """The place in the epoch, and the states of the generators of the CPU and of all CUDA devices."""
        return {
            "loader": self._trainer.train_dataloader.state_dict(),
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember them until training goes on."""
        self._restored = state_dict

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take a training that came to its end for one in the middle of its one epoch: it may be longer now.

        Else Lightning would begin a second epoch, after the first batch of which it stops.
        """
        loop = checkpoint["loops"]["fit_loop"]
        for part in loop["epoch_progress"].values():
            part.update(ready=1, started=1, processed=0, completed=0)
        loop["epoch_loop.batch_progress"]["is_last_batch"] = False

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go to the place in the epoch."""
        if self._restored is not None:
            self._trainer.train_dataloader.load_state_dict(self._restored["loader"])

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Set the random numbers before the first batch."""
        if self._restored is None:
            return
        torch.set_rng_state(self._restored["cpu"].cpu())
        if torch.cuda.is_available() and len(self._restored["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([state.cpu() for state in self._restored["cuda"]])
        self._restored = None
