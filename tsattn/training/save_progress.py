"""Saving a training every few minutes, at its end, and where it is interrupted."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

__all__ = ["SaveProgress"]


class SaveProgress(Callback):
    """Saves a training every few minutes, at its end, and when Ctrl-C or SIGTERM ends it; a second one ends it at once.

    It saves after a whole step of the optimizer only, so that nothing of a step is done twice or lost.

    Args:
        path: of the checkpoint.
        every: seconds between checkpoints.
    """

    def __init__(self, path: Path, every: float = 300.0) -> None:
        self.path = path
        self.every = every
        self._saved = 0.0
        self._asked = False
        self._before: Any = None

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over Ctrl-C, and look at the clock."""
        self._saved = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save, if it is time or the end was asked for."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        is_time = time.monotonic() - self._saved > self.every
        is_end = batch_idx + 1 == trainer.num_training_batches
        if is_end and trainer.val_check_batch:  # a validation that falls on the end keeps it
            is_end = (batch_idx + 1) % trainer.val_check_batch != 0
        if is_time or is_end or self._asked or trainer.received_sigterm:
            trainer.save_checkpoint(self.path)
            self._saved = time.monotonic()
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give Ctrl-C back."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _ask(self, number: int, frame: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
