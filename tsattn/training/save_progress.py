"""Saving a training every few minutes, at its end, and where it is interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
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

    Attributes:
        is_asked: whether the end was asked for while it trained.
    """

    def __init__(self, path: Path, every: float = 300.0) -> None:
        self.path = path
        self.every = every
        self.is_asked = False
        self._saved = 0.0
        self._trains = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take over Ctrl-C and SIGTERM, of which Lightning is told, too."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None for one of C

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the clock; from now on there is something to save."""
        self._saved = time.monotonic()
        self._trains = True

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
        if is_time or is_end or self.is_asked or trainer.received_sigterm:
            trainer.save_checkpoint(self.path)
            self._saved = time.monotonic()
        if self.is_asked and not trainer.received_sigterm:  # of which Lightning tells all processes
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: Any) -> None:
        if self.is_asked or not self._trains:
            raise KeyboardInterrupt
        self.is_asked = True
