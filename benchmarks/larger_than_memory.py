"""Training on series larger than memory: how much of it is held while the map is built and a model trains on it.

    python benchmarks/larger_than_memory.py

Writes seeded synthetic series as one Parquet file, maps it with `MappedDataModule`, checks windows drawn at random
against the series as they were made, empties the page cache of the map, and trains a small PatchTST under the Trainer
on windows drawn at random. A thread samples RssAnon of /proc/self/status, the memory of the process that no file backs:
pages of a map do not count, for the system takes them back when it needs them. Writes `larger_than_memory.json` (with
hardware and versions) into the output folder, and removes the series and the map.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import torch
from lightning.pytorch import Callback, Trainer

from tsattn.data import MappedDataModule
from tsattn.training import ForecastingModule

CHANNELS, SERIES, CONTEXT, HORIZON, BATCH = 16, 100, 336, 96, 32
AT_MOST_GB = 1.5
BACKBONE = {"kind": "patchtst", "d_model": 32, "num_layers": 1, "num_heads": 4}


class Memory:
    """The most anonymous memory of this process, sampled by a thread; for Linux."""

    def __init__(self) -> None:
        self.most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @staticmethod
    def now(field: str = "RssAnon") -> int:
        """Bytes in use."""
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return 1024 * int(line.split()[1])
        raise RuntimeError(f"/proc/self/status has no {field}")

    def _sample(self) -> None:
        while not self._end.wait(0.01):
            self.most = max(self.most, self.now())

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()


class Timed(Callback):
    """When each training batch had been worked through."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.times.append(time.perf_counter())


def made(number: int, rows: int) -> np.ndarray:
    """A series, `(rows, CHANNELS)` float32: a daily wave and noise, at a level of its own."""
    rng = np.random.default_rng((0, number))
    values = rng.standard_normal((rows, CHANNELS), dtype=np.float32)
    values += (2 * np.sin(2 * np.pi * np.arange(rows) / 96)).astype(np.float32)[:, None]
    values += np.float32(number)
    return values


def write(path: Path, rows: int) -> None:
    """The table, a row group a series."""
    names = [f"c{number}" for number in range(CHANNELS)]
    schema = pa.schema(
        [("unique_id", pa.string()), ("ds", pa.timestamp("s")), *((name, pa.float32()) for name in names)]
    )
    stamps = pa.array(pd.date_range("2000-01-01", periods=rows, freq="15min", unit="s"))
    with pa.parquet.ParquetWriter(path, schema, use_dictionary=["unique_id"]) as writer:
        for number in range(SERIES):
            ids = pa.array([f"series {number:03}"]).take(pa.array(np.zeros(rows, np.int8)))
            columns = [pa.array(column) for column in made(number, rows).T]
            writer.write_table(pa.table([ids, stamps, *columns], schema=schema), row_group_size=rows)


def check(data: MappedDataModule, rows: int) -> int:
    """Compare windows drawn at random with the series; how many were."""
    windows = data.windows("train")
    drawn = torch.randint(len(windows), (4,), generator=torch.Generator().manual_seed(0)).tolist()
    first = data.splits[0].origins("train", CONTEXT, HORIZON)
    assert len(windows) == SERIES * len(first)
    for index in drawn:
        number, place = divmod(index, len(first))
        batch = windows[index]
        assert batch.target is not None
        assert batch.series_id.tolist() == [number]
        scaled = torch.cat([batch.past, batch.target], 1)[0].double()
        values = (scaled * data.series.scale[number] + data.series.mean[number]).numpy()
        np.testing.assert_allclose(values, made(number, rows)[place : place + CONTEXT + HORIZON], atol=1e-4)
    return len(drawn)


def forget(folder: Path) -> None:
    """Ask the system to drop its copy of the map, so that windows come from the disk."""
    for path in folder.glob("*.bin"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measured(folder: Path, gigabytes: float, steps: int) -> dict[str, Any]:
    """Sizes, memory and speed."""
    rows = int(gigabytes * 1e9) // (4 * CHANNELS * SERIES)
    needed, free = 2.6 * gigabytes * 1e9, shutil.disk_usage(folder).free
    if needed > free:
        raise SystemExit(f"{needed / 1e9:.1f} GB of disk are needed in {folder}, {free / 1e9:.1f} are free")
    path = folder / "series.parquet"
    started = time.perf_counter()
    write(path, rows)
    print(f"{path.stat().st_size / 1e9:.2f} GB of Parquet written in {time.perf_counter() - started:.0f} s", flush=True)

    def module() -> MappedDataModule:
        names = [f"c{number}" for number in range(CHANNELS)]
        return MappedDataModule(
            str(path), target=names, context_length=CONTEXT, prediction_length=HORIZON, batch_size=BATCH
        )

    pa.default_memory_pool().release_unused()
    before = Memory.now()
    started = time.perf_counter()
    with Memory() as building:
        data = module()
        data.setup("fit")
    seconds = time.perf_counter() - started
    size = sum(part.stat().st_size for part in data.folder.glob("*.bin"))
    print(
        f"{size / 1e9:.2f} GB of maps built in {seconds:.0f} s, at most {building.most / 1e9:.2f} GB RssAnon",
        flush=True,
    )
    checked = check(data, rows)
    del data

    forget(path.with_name(f"{path.name}.mapped"))
    data, timed = module(), Timed()
    trainer = Trainer(
        max_steps=steps,
        limit_val_batches=10,
        num_sanity_val_steps=0,
        accelerator="cpu",
        devices=1,
        callbacks=[timed],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    started = time.perf_counter()
    with Memory() as training:
        trainer.fit(ForecastingModule(BACKBONE, warmup_steps=10), datamodule=data)
    fit_seconds = time.perf_counter() - started
    batches = data.train_dataloader()
    iterator, started = iter(batches), time.perf_counter()
    for _ in range(steps):
        next(iterator)
    loader_seconds = time.perf_counter() - started
    most = max(building.most, training.most)
    return {
        "series": SERIES,
        "rows": rows * SERIES,
        "channels": CHANNELS,
        "values_gb": 4 * rows * SERIES * CHANNELS / 1e9,
        "parquet_gb": path.stat().st_size / 1e9,
        "maps_gb": size / 1e9,
        "training_windows": len(data.windows("train")),
        "windows_checked": checked,
        "rss_anon_gb_before": before / 1e9,
        "build": {"seconds": seconds, "max_rss_anon_gb": building.most / 1e9},
        "training": {
            "backbone": BACKBONE,
            "context_length": CONTEXT,
            "prediction_length": HORIZON,
            "batch_size": BATCH,
            "steps": trainer.global_step,
            "seconds_with_opening_the_map": fit_seconds,
            "batches_a_second": (len(timed.times) - 1) / (timed.times[-1] - timed.times[0]),
            "final_train_loss": float(trainer.callback_metrics["train_loss"]),
            "max_rss_anon_gb": training.most / 1e9,
            "rss_file_gb_at_the_end": Memory.now("RssFile") / 1e9,
        },
        "loader_batches_a_second": steps / loader_seconds,
        "max_rss_anon_gb": most / 1e9,
        "at_most_gb": AT_MOST_GB,
        "met": most / 1e9 <= AT_MOST_GB,
    }


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder to write into")
    parser.add_argument("--folder", type=Path, help="where to write series and map (default: a temporary folder)")
    parser.add_argument("--gigabytes", type=float, default=6.0, help="size of the values as float32")
    parser.add_argument("--steps", type=int, default=500, help="training steps")
    options = parser.parse_args(words)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="larger_than_memory", dir=options.folder) as folder:
        result = measured(Path(folder), options.gigabytes, options.steps)
    training = result["training"]
    print(
        f"{training['steps']} steps at {training['batches_a_second']:.1f} batches of {BATCH} a second (the loader "
        f"alone: {result['loader_batches_a_second']:.0f}), at most {training['max_rss_anon_gb']:.2f} GB RssAnon"
    )
    print(
        f"{result['values_gb']:.2f} GB of series in at most {AT_MOST_GB} GB of anonymous memory: "
        f"{result['max_rss_anon_gb']:.2f} GB, {'met' if result['met'] else 'NOT MET'}"
    )
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": 1,
        "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
    }
    versions = {name: version(name) for name in ("torch", "lightning", "numpy", "pyarrow", "tsattn")}
    command = f"python benchmarks/larger_than_memory.py --gigabytes {options.gigabytes:g} --steps {options.steps}"
    report = {"command": command, "seed": 0, "machine": machine, "versions": versions, **result}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "larger_than_memory.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
