"""Training on series larger than memory: how much of it is held while a table is converted and a model trains on it.

    python benchmarks/larger_than_memory.py              # 100 long series, 6 GB of values: within 1.5 GB
    python benchmarks/larger_than_memory.py --shape m5   # 30,490 series of 1,941 days, read to forecast: within 3 GB

Writes seeded synthetic series as one Parquet file and converts it with `MappedDataModule`. Of the long series, windows
drawn at random are checked against the series as they were made, the page cache of the arrays is emptied, and a small
PatchTST is trained under the Trainer on windows drawn at random. Those of M5's shape are read, trained on for 200 steps
and forecast 28 days ahead by `Forecaster`. A thread samples RssAnon of /proc/self/status, the memory of the process
that no file backs: pages of the arrays do not count, for the system takes them back when it needs them; those of both
together are `VmHWM`. Writes `larger_than_memory.json` or `m5_shape.json` (with hardware and versions) into the output
folder, and removes the series and the arrays.
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

from tsattn import Forecaster
from tsattn.data import MappedDataModule
from tsattn.data.mapped import convert
from tsattn.data.table_options import TableOptions
from tsattn.training import ForecastingModule

CHANNELS, SERIES, CONTEXT, HORIZON, BATCH = 16, 100, 336, 96, 32
M5_SERIES, M5_DAYS, M5_HORIZON, M5_STEPS = 30_490, 1_941, 28, 200
AT_MOST_GB = {"few": 1.5, "m5": 3.0}
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


def write_m5(path: Path, series: int) -> None:
    """Daily counts in the order of days, as a shop writes them: all series of one day, then those of the next."""
    schema = pa.schema([("unique_id", pa.string()), ("ds", pa.timestamp("s")), ("y", pa.float32())])
    names = pa.array([f"item {number:05}" for number in range(series)])
    level = np.random.default_rng(0).gamma(0.5, 2.0, series)
    days = pd.date_range("2011-01-29", periods=M5_DAYS, freq="D", unit="s")
    together = max(1, 1_000_000 // series)
    with pa.parquet.ParquetWriter(path, schema, use_dictionary=["unique_id"]) as writer:
        for first in range(0, M5_DAYS, together):
            stamps = days[first : first + together]
            rng = np.random.default_rng((1, first))
            week = 1 + 0.3 * np.sin(2 * np.pi * stamps.day_of_week.to_numpy() / 7)
            counts = rng.poisson(level[None] * week[:, None]).astype(np.float32)
            ids = names.take(pa.array(np.tile(np.arange(series), len(stamps))))
            columns = [ids, pa.array(stamps.repeat(series)), pa.array(counts.ravel())]
            writer.write_table(pa.table(columns, schema=schema))


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
    """Ask the system to drop its copy of the arrays, so that windows come from the disk."""
    for path in folder.glob("*.npy"):
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
    size = sum(part.stat().st_size for part in data.folder.glob("*.npy"))
    print(
        f"{size / 1e9:.2f} GB of arrays written in {seconds:.0f} s, at most {building.most / 1e9:.2f} GB RssAnon",
        flush=True,
    )
    checked = check(data, rows)
    del data

    forget(path.with_name(f"{path.name}.panel"))
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
        "arrays_gb": size / 1e9,
        "training_windows": len(data.windows("train")),
        "windows_checked": checked,
        "rss_anon_gb_before": before / 1e9,
        "conversion": {"seconds": seconds, "max_rss_anon_gb": building.most / 1e9},
        "training": {
            "backbone": BACKBONE,
            "context_length": CONTEXT,
            "prediction_length": HORIZON,
            "batch_size": BATCH,
            "steps": trainer.global_step,
            "seconds_with_opening_the_arrays": fit_seconds,
            "batches_a_second": (len(timed.times) - 1) / (timed.times[-1] - timed.times[0]),
            "final_train_loss": float(trainer.callback_metrics["train_loss"]),
            "max_rss_anon_gb": training.most / 1e9,
            "rss_file_gb_at_the_end": Memory.now("RssFile") / 1e9,
        },
        "loader_batches_a_second": steps / loader_seconds,
        "max_rss_anon_gb": most / 1e9,
    }


def measured_m5(folder: Path, share: float, steps: int) -> dict[str, Any]:
    """The same of M5's shape, from the table to forecasts."""
    series = max(2, round(share * M5_SERIES))
    path, seconds = folder / "m5.parquet", {}
    write_m5(path, series)
    pa.default_memory_pool().release_unused()
    before = Memory.now()
    started = time.perf_counter()
    with Memory() as building:
        convert(path, folder / "m5.panel", TableOptions())
    seconds["conversion"] = time.perf_counter() - started
    size = sum(part.stat().st_size for part in (folder / "m5.panel").glob("*.npy"))
    print(f"{size / 1e9:.2f} GB of arrays written in {seconds['conversion']:.0f} s", flush=True)
    options = {"max_steps": steps, "batch_size": BATCH, "accelerator": "cpu", "seed": 0}
    forecaster = Forecaster(BACKBONE, context_length=112, prediction_length=M5_HORIZON, quantiles=None, **options)
    started = time.perf_counter()
    with Memory() as training:
        forecaster.fit(folder / "m5.panel")
    seconds["fit"] = time.perf_counter() - started
    started = time.perf_counter()
    with Memory() as forecasting:
        rows = sum(len(frame) for frame in forecaster.predict_batches())
    seconds["forecast"] = time.perf_counter() - started
    assert rows == series * M5_HORIZON, f"{rows} forecasts of {series} series"
    parts = {"conversion": building, "training": training, "forecast": forecasting}
    return {
        "series": series,
        "rows": series * M5_DAYS,
        "values_gb": 4 * series * M5_DAYS / 1e9,
        "parquet_gb": path.stat().st_size / 1e9,
        "arrays_gb": size / 1e9,
        "rss_anon_gb_before": before / 1e9,
        "conversion": {"seconds": seconds["conversion"], "max_rss_anon_gb": building.most / 1e9},
        "training": {
            "backbone": BACKBONE,
            "context_length": 112,
            "prediction_length": M5_HORIZON,
            "batch_size": BATCH,
            "steps": steps,
            "seconds": seconds["fit"],
            "max_rss_anon_gb": training.most / 1e9,
        },
        "forecast": {"rows": rows, "seconds": seconds["forecast"], "max_rss_anon_gb": forecasting.most / 1e9},
        "max_rss_gb": Memory.now("VmHWM") / 1e9,
        "max_rss_anon_gb": max(part.most for part in parts.values()) / 1e9,
    }


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder to write into")
    parser.add_argument("--folder", type=Path, help="where to write series and arrays (default: a temporary folder)")
    parser.add_argument(
        "--shape", choices=("few", "m5"), default="few", help="few long series, or M5's many short ones"
    )
    parser.add_argument("--gigabytes", type=float, default=6.0, help="of few series, size of the values as float32")
    parser.add_argument("--share", type=float, default=1.0, help="of M5's series")
    parser.add_argument("--steps", type=int, help=f"training steps (default: 500, of M5 {M5_STEPS})")
    options = parser.parse_args(words)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    is_m5 = options.shape == "m5"
    steps = options.steps or (M5_STEPS if is_m5 else 500)
    with tempfile.TemporaryDirectory(prefix="larger_than_memory", dir=options.folder) as folder:
        if is_m5:
            result = measured_m5(Path(folder), options.share, steps)
        else:
            result = measured(Path(folder), options.gigabytes, steps)
    training, most = result["training"], AT_MOST_GB[options.shape]
    # of M5's shape all that is resident counts, pages of files too
    used = result["max_rss_gb" if is_m5 else "max_rss_anon_gb"]
    result |= {"at_most_gb": most, "met": used <= most}
    if not is_m5:
        print(
            f"{steps} steps at {training['batches_a_second']:.1f} batches of {BATCH} a second (the loader alone: "
            f"{result['loader_batches_a_second']:.0f}), at most {training['max_rss_anon_gb']:.2f} GB RssAnon"
        )
    print(
        f"{result['values_gb']:.2f} GB of series in at most {most} GB of {'' if is_m5 else 'anonymous '}memory: "
        f"{used:.2f} GB, {'met' if result['met'] else 'NOT MET'}"
    )
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": 1,
        "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
    }
    versions = {name: version(name) for name in ("torch", "lightning", "numpy", "pyarrow", "tsattn")}
    size = f"--shape m5 --share {options.share:g}" if is_m5 else f"--gigabytes {options.gigabytes:g}"
    command = f"python benchmarks/larger_than_memory.py {size} --steps {steps}"
    report = {"command": command, "seed": 0, "machine": machine, "versions": versions, **result}
    options.out.mkdir(parents=True, exist_ok=True)
    name = "m5_shape.json" if is_m5 else "larger_than_memory.json"
    (options.out / name).write_text(json.dumps(report, indent=2) + "\n")
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
