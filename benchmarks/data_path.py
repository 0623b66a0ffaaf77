"""Batches per second over a usual per-sample dataset, and what the Trainer adds to a step: measured in one run.

    python benchmarks/data_path.py

The usual dataset holds float64 numpy arrays, cuts one window at a time with its marks of the time, and lets the loader
stack them; ours answers a whole batch by one gather. Both go through a shuffled `DataLoader` without workers and must
give the same windows, or nothing is timed. They take turns; medians are reported. Writes `data_path.json` (with
hardware and versions) into the output folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tsattn.batch import Batch
from tsattn.data import ByShare, ForecastDataModule, FrameSource

ROWS, CHANNELS, HORIZON, BATCH = 17_420, 7, 96, 32  # the size of ETTh1
STEPS = 400

# limits: a ratio of batches per second, and milliseconds a step
AT_LEAST = {96: 6.0, 336: 3.5}
AT_MOST_MS = {"light": 0.7, "default": 1.6}


class Synthetic(ForecastDataModule):
    """Noise of the size of ETTh1."""

    def __init__(self, context_length: int) -> None:
        values = np.random.default_rng(0).standard_normal((ROWS, CHANNELS))
        index = pd.date_range("2016-07-01", periods=ROWS, freq="h")
        source = FrameSource(pd.DataFrame(values, index, [f"c{i}" for i in range(CHANNELS)]))
        sizes = {"context_length": context_length, "prediction_length": HORIZON, "batch_size": BATCH}
        super().__init__("synthetic", source, ByShare(0.7, 0.1), **sizes)


class PerSample(Dataset[tuple[Any, ...]]):
    """A window at a time, as research code usually cuts them."""

    def __init__(self, values: np.ndarray, marks: np.ndarray, context_length: int) -> None:
        self.values, self.marks, self.context_length = values, marks, context_length

    def __len__(self) -> int:
        return len(self.values) - self.context_length - HORIZON + 1

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        middle = index + self.context_length
        past, future = slice(index, middle), slice(middle, middle + HORIZON)
        return self.values[past], self.values[future], self.marks[past], self.marks[future]


class Linear(LightningModule):
    """The least model, so that what is around it shows."""

    def __init__(self, context_length: int, *, logs: bool = False) -> None:
        super().__init__()
        self.map, self.logs = nn.Linear(context_length, HORIZON), logs

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        if self.logs:
            self.log("train_loss", loss, prog_bar=True, batch_size=len(batch))
        return loss

    def loss(self, batch: Batch) -> Tensor:
        forecast = self.map(batch.past.transpose(1, 2)).transpose(1, 2)
        return nn.functional.mse_loss(forecast, batch.target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), fused=True)


def both_loaders(data: Synthetic) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """The usual loader and ours, over the same training rows."""
    assert data.panel is not None
    assert data.scaler is not None
    end = data.splits[0].train_end
    values = (data.panel.values - np.asarray(data.scaler.mean)) / np.asarray(data.scaler.scale)
    index = data.panel.time
    marks = np.stack([index.month, index.day, index.day_of_week, index.hour], 1).astype(np.float64)
    usual = PerSample(values[:end], marks[:end], data.context_length)
    ours = data.windows("train")
    assert len(usual) == len(ours)
    for number in (0, len(ours) // 2, len(ours) - 1):
        batch = ours[number]
        assert batch.target is not None
        np.testing.assert_allclose(batch.past[0], usual[number][0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(batch.target[0], usual[number][1], rtol=1e-6, atol=1e-6)
    return DataLoader(usual, BATCH, shuffle=True, drop_last=True), data.train_dataloader()


def seconds_a_batch(loader: DataLoader[Any], batches: int) -> float:
    """Time to the last of so many batches, over their number."""
    iterator = iter(loader)
    next(iterator)
    start = time.perf_counter()
    for _ in range(batches):
        next(iterator)
    return (time.perf_counter() - start) / batches


def bare_loop(data: Synthetic) -> float:
    """Seconds a step of the plainest training loop."""
    model = Linear(data.context_length)
    optimizer = model.configure_optimizers()
    iterator = iter(data.train_dataloader())
    start = time.perf_counter()
    for _, batch in zip(range(STEPS), iterator, strict=False):
        loss = model.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - start) / STEPS


def trainer_loop(data: Synthetic, *, light: bool) -> float:
    """Seconds a step under the Trainer: bare of logging, bar, checkpoints and summary; or with bar and logging."""
    times: list[float] = []

    class Timed(Linear):
        def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
            if batch_idx in (0, STEPS):
                times.append(time.perf_counter())

    options: dict[str, Any] = {"enable_progress_bar": not light, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        max_steps=STEPS + 1, limit_val_batches=0, enable_checkpointing=False, accelerator="cpu", devices=1, **options
    )
    trainer.fit(Timed(data.context_length, logs=not light), data.train_dataloader())
    return (times[1] - times[0]) / STEPS


def median(function: Callable[[], float], others: list[Callable[[], float]], rounds: int) -> list[float]:
    """Medians of functions that take turns."""
    taken = [[call() for call in (function, *others)] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder to write into")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: dict[str, Any] = {}
    met = True
    for context_length, least in AT_LEAST.items():
        data = Synthetic(context_length)
        data.setup("fit")
        usual, ours = both_loaders(data)
        slow, fast = median(
            lambda u=usual: seconds_a_batch(u, 60), [lambda o=ours: seconds_a_batch(o, 200)], options.rounds
        )
        rows[f"loader, context {context_length}"] = {
            "usual_ms": 1e3 * slow,
            "ours_ms": 1e3 * fast,
            "times_faster": slow / fast,
            "at_least": least,
        }
        print(
            f"loader, context {context_length}: {1 / fast:,.0f} batches of {BATCH} a second, {slow / fast:.1f} times "
            f"the usual (at least {least})"
        )
        met &= slow / fast >= least
    data = Synthetic(96)
    data.setup("fit")
    bare, light, default = median(
        lambda: bare_loop(data),
        [lambda: trainer_loop(data, light=True), lambda: trainer_loop(data, light=False)],
        options.rounds,
    )
    for name, taken in (("light", light), ("default", default)):
        extra = 1e3 * (taken - bare)
        rows[f"{name} Trainer"] = {"extra_ms_a_step": extra, "at_most_ms": AT_MOST_MS[name]}
        print(
            f"{name} Trainer: {extra:.2f} ms a step over a bare loop of {1e3 * bare:.2f} (at most {AT_MOST_MS[name]})"
        )
        met &= extra <= AT_MOST_MS[name]
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "threads": 1}
    versions = {name: version(name) for name in ("torch", "lightning", "numpy", "tsattn")}
    report = {"command": "python benchmarks/data_path.py", "seed": 0, "machine": machine, "versions": versions, **rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "data_path.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
