"""Windows in a second: of training alone, with the median over stretches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from tests.training.toys import trainer, windows_of
from tsattn.training import ForecastingModule, callbacks
from tsattn.training.callbacks import Throughput


class Clock(Callback):
    """A step takes half a second, each of the first four a minute; a validation, and what follows it, an hour."""

    def __init__(self) -> None:
        self.now = 0.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.now += 60.0 if batch_idx < 4 else 0.5

    def on_validation_batch_start(self, *_: Any) -> None:
        self.now += 3600.0

    def on_validation_end(self, *_: Any) -> None:
        self.now += 3600.0


def test_neither_validation_nor_checkpoints_nor_warming_up_count(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, measured = Clock(), Throughput()
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    made = trainer(tmp_path, clock, measured, max_steps=18, val_check_interval=4, num_sanity_val_steps=2)
    torch.manual_seed(0)
    made.fit(ForecastingModule({"kind": "transformer", "d_model": 8, "num_heads": 2}), windows_of(toy_csv, 16))
    assert clock.now > 8 * 3600
    assert measured.windows_per_second == 16 / 0.5
    assert measured.peak_memory_bytes is None
