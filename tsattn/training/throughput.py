"""How fast a training runs, and in how much memory of the device."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

__all__ = ["Throughput"]


class Throughput(Callback):
    """Measures a training between its validations, where the host waits for the device anyway.

    Attributes:
        windows_per_second: of all processes together, the median over the stretches between validations, so that
            compilation and warm-up in the first of them do not count where there are three or more; None before the
            end of the first. Validation and the writing of checkpoints are left out.
        peak_memory_bytes: the most that was allocated on the CUDA device of this process in these stretches, what lies
            there all the time included; None on other devices.
    """

    def __init__(self) -> None:
        self.windows_per_second: float | None = None
        self.peak_memory_bytes: int | None = None
        self._rates: list[float] = []
        self._windows = 0
        self._started: float | None = None

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Start the clock, if it stands."""
        if self._started is None:
            device = trainer.strategy.root_device
            if device.type == "cuda":
                torch.cuda.synchronize(device)
                torch.cuda.reset_peak_memory_stats(device)
            self._windows, self._started = 0, time.perf_counter()

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count windows."""
        self._windows += len(batch) * trainer.world_size

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._stop(trainer.strategy.root_device)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop it for good."""
        self._stop(trainer.strategy.root_device)

    def _stop(self, device: torch.device) -> None:
        if self._started is None:  # a validation before the first step, or one at the very end
            return
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0, torch.cuda.max_memory_allocated(device))
        self._rates.append(self._windows / (time.perf_counter() - self._started))
        self._started = None
        self.windows_per_second = statistics.median(self._rates)
