"""How fast a training runs, and in how much memory of the device."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

__all__ = ["Throughput"]


class Throughput(Callback):
    """Measures a training between its validations, where the host waits for the device anyway.

    Attributes:
        windows_per_second: of all processes together, the median over the stretches between validations, so that
            compilation and warm-up in the first of them do not count where there are three or more; None before the
            end of the first.
        peak_memory_bytes: the most that was allocated on the CUDA device of this process; None on other devices.
    """

    def __init__(self) -> None:
        self.windows_per_second: float | None = None
        self.peak_memory_bytes: int | None = None
        self._rates: list[float] = []
        self._windows = 0
        self._started = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        device = trainer.strategy.root_device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._start(device)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count windows."""
        self._windows += len(batch) * trainer.world_size

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._stop(trainer.strategy.root_device)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start it again."""
        self._start(trainer.strategy.root_device)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop it for good."""
        self._stop(trainer.strategy.root_device)

    def _start(self, device: torch.device) -> None:
        _wait(device)
        self._windows, self._started = 0, time.perf_counter()

    def _stop(self, device: torch.device) -> None:
        _wait(device)
        if not self._windows:  # a validation before the first step, or one at the very end
            return
        self._rates.append(self._windows / (time.perf_counter() - self._started))
        self._windows = 0
        self.windows_per_second = statistics.median(self._rates)
        if device.type == "cuda":
            self.peak_memory_bytes = torch.cuda.max_memory_allocated(device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
