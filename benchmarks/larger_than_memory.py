"""Peak memory and speed of training on series that are larger than memory.

    python benchmarks/larger_than_memory.py              # 6 GB of values in 100 long series: within 1.5 GB
    python benchmarks/larger_than_memory.py --shape m5   # 30,490 series of 1,941 days, read to forecast: within 3 GB

Writes seeded synthetic series as one Parquet file and converts it. Of the long series, the page cache of the arrays is
emptied, and a small PatchTST is trained on windows drawn at random. Those of M5's shape are read, trained on for 200
steps and forecast 28 days ahead by `Forecaster`. A thread samples RssAnon of /proc/self/status, the memory that no file
backs: pages of the arrays do not count, as the system takes them back when it needs them. `VmHWM` counts both. Writes
`larger_than_memory.json` or `m5_shape.json`, and removes the series and the arrays.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.parquet
import torch
from lightning.pytorch import Trainer
from measuring import about, new_parser, parse, write_record

from tsattn import Forecaster
from tsattn.data import MappedDataModule
from tsattn.data.mapped import convert
from tsattn.data.table_options import TableOptions
from tsattn.training import ForecastingModule

CHANNELS, SERIES, CONTEXT, HORIZON, BATCH = 16, 100, 336, 96, 32
M5_SERIES, M5_DAYS, M5_CONTEXT, M5_HORIZON = 30_490, 1_941, 112, 28
AT_MOST_GB = {"few": 1.5, "m5": 3.0}
BACKBONE = {"kind": "patchtst", "d_model": 32, "num_layers": 1, "num_heads": 4}
NAMES = [f"c{number}" for number in range(CHANNELS)]


def resident(field: str = "RssAnon") -> int:
    return 1024 * int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0])


class Memory:
    """The most anonymous memory of this process, sampled by a thread, and the seconds."""

    def __init__(self) -> None:
        self.most, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._end.wait(0.01):
            self.most = max(self.most, resident())

    def __enter__(self) -> Memory:
        pa.default_memory_pool().release_unused()
        self.seconds = -time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        self.seconds += time.perf_counter()

    @property
    def facts(self) -> dict[str, float]:
        return {"seconds": self.seconds, "max_rss_anon_gb": self.most / 1e9}


def made(number: int, rows: int) -> np.ndarray:
    """Make a series `(rows, CHANNELS)` float32: a daily wave and noise, at a level of its own."""
    values = np.random.default_rng((0, number)).standard_normal((rows, CHANNELS), dtype=np.float32)
    values += (2 * np.sin(2 * np.pi * np.arange(rows) / 96)).astype(np.float32)[:, None]
    return values + np.float32(number)


def writer(path: Path, names: list[str]) -> tuple[pa.Schema, Any]:
    columns = [("unique_id", pa.string()), ("ds", pa.timestamp("s")), *((name, pa.float32()) for name in names)]
    return pa.schema(columns), pa.parquet.ParquetWriter(path, pa.schema(columns), use_dictionary=["unique_id"])


def write_few(path: Path, rows: int) -> None:
    stamps = pa.array(pd.date_range("2000-01-01", periods=rows, freq="15min", unit="s"))
    schema, file = writer(path, NAMES)
    with file:
        for number in range(SERIES):
            ids = pa.repeat(f"series {number:03}", rows)
            values = [pa.array(column) for column in made(number, rows).T]
            file.write_table(pa.table([ids, stamps, *values], schema=schema), row_group_size=rows)


def write_m5(path: Path, series: int) -> None:
    """Write daily counts in the order of days, as a shop does: all series of one day, then those of the next."""
    names = pa.array([f"item {number:05}" for number in range(series)])
    level = np.random.default_rng(0).gamma(0.5, 2.0, series)
    days, together = pd.date_range("2011-01-29", periods=M5_DAYS, freq="D", unit="s"), max(1, 1_000_000 // series)
    schema, file = writer(path, ["y"])
    with file:
        for first in range(0, M5_DAYS, together):
            stamps = days[first : first + together]
            week = 1 + 0.3 * np.sin(2 * np.pi * stamps.day_of_week.to_numpy() / 7)
            counts = np.random.default_rng((1, first)).poisson(level[None] * week[:, None]).astype(np.float32)
            ids = names.take(pa.array(np.tile(np.arange(series), len(stamps))))
            values = [ids, pa.array(stamps.repeat(series)), pa.array(counts.ravel())]
            file.write_table(pa.table(values, schema=schema))


def arrays(folder: Path) -> float:
    """Ask the system to drop its copy of the arrays, so that windows come from the disk; return their gigabytes."""
    for path in folder.glob("*.npy"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return sum(path.stat().st_size for path in folder.glob("*.npy")) / 1e9


def measured_few(folder: Path, gigabytes: float, steps: int) -> dict[str, Any]:
    rows, path = int(gigabytes * 1e9) // (4 * CHANNELS * SERIES), folder / "series.parquet"
    write_few(path, rows)
    before, sizes = resident(), {"context_length": CONTEXT, "prediction_length": HORIZON}
    with Memory() as conversion:
        data = MappedDataModule(str(path), target=NAMES, **sizes, batch_size=BATCH)
        data.setup("fit")
    size = arrays(data.folder)
    data = MappedDataModule(str(path), target=NAMES, **sizes, batch_size=BATCH)
    without = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    limits = {"max_steps": steps, "limit_val_batches": 10, "num_sanity_val_steps": 0}
    trainer = Trainer(accelerator="cpu", devices=1, **limits, **dict.fromkeys(without, False))
    with Memory() as training:
        trainer.fit(ForecastingModule(BACKBONE, warmup_steps=10), datamodule=data)
    facts = {"batches_a_second": steps / training.seconds}
    facts["final_train_loss"] = float(trainer.callback_metrics["train_loss"])
    return {
        **{"series": SERIES, "rows": rows * SERIES, "channels": CHANNELS, "arrays_gb": size},
        "values_gb": 4 * rows * SERIES * CHANNELS / 1e9,
        **{"training_windows": len(data.windows("train")), "rss_anon_gb_before": before / 1e9},
        **{"conversion": conversion.facts, "training": {**sizes, "steps": steps, **training.facts, **facts}},
        "max_rss_anon_gb": max(conversion.most, training.most) / 1e9,
    }


def measured_m5(folder: Path, share: float, steps: int) -> dict[str, Any]:
    series = max(2, round(share * M5_SERIES))
    write_m5(folder / "m5.parquet", series)
    before, sizes = resident(), {"context_length": M5_CONTEXT, "prediction_length": M5_HORIZON}
    with Memory() as conversion:
        convert(folder / "m5.parquet", folder / "m5.panel", TableOptions())
    options = {"max_steps": steps, "data": {"batch_size": BATCH}, "accelerator": "cpu", "seed": 0, "quantiles": None}
    forecaster = Forecaster(BACKBONE, **sizes, **options)
    with Memory() as training:
        forecaster.fit(folder / "m5.panel")
    with Memory() as forecast:
        rows = sum(len(frame) for frame in forecaster.predict_batches())
    assert rows == series * M5_HORIZON, f"{rows} forecasts of {series} series"
    return {
        **{"series": series, "rows": series * M5_DAYS, "values_gb": 4 * series * M5_DAYS / 1e9},
        **{"arrays_gb": arrays(folder / "m5.panel"), "rss_anon_gb_before": before / 1e9},
        **{"conversion": conversion.facts, "training": {**sizes, "steps": steps, **training.facts}},
        **{"forecast": {"rows": rows, **forecast.facts}, "max_rss_gb": resident("VmHWM") / 1e9},
        "max_rss_anon_gb": max(part.most for part in (conversion, training, forecast)) / 1e9,
    }


def main(words: list[str] | None = None) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--folder", type=Path, help="where to write series and arrays (default: a temporary folder)")
    parser.add_argument("--shape", choices=("few", "m5"), default="few", help="few long series, or many short ones")
    parser.add_argument("--gigabytes", type=float, default=6.0, help="of few series, size of the values as float32")
    parser.add_argument("--share", type=float, default=1.0, help="of M5's series")
    parser.add_argument("--steps", type=int, help="training steps (default: 500, of M5 200)")
    options = parse(parser, words)
    warnings.filterwarnings("ignore", module="lightning")
    torch.manual_seed(0)
    is_m5 = options.shape == "m5"
    with tempfile.TemporaryDirectory(prefix="larger_than_memory", dir=options.folder) as place:
        needed, free = 2.6 * options.gigabytes, shutil.disk_usage(place).free / 1e9
        if is_m5:
            result = measured_m5(Path(place), options.share, options.steps or 200)
        elif needed > free:
            parser.error(f"{needed:.1f} GB of disk are needed in {place}, {free:.1f} are free: name a --folder")
        else:
            result = measured_few(Path(place), options.gigabytes, options.steps or 500)
    # of M5's shape all that is resident counts, pages of files too
    most, used = AT_MOST_GB[options.shape], result["max_rss_gb" if is_m5 else "max_rss_anon_gb"]
    result |= {"at_most_gb": most, "met": used <= most}
    kind, word = "" if is_m5 else "anonymous ", "met" if result["met"] else "NOT MET"
    print(f"{result['values_gb']:.2f} GB of series in at most {most} GB of {kind}memory: {used:.2f} GB, {word}")
    memory = psutil.virtual_memory().total / 1e9
    record = {**about("lightning", "numpy", "pyarrow"), "seed": 0, "memory_gb": memory, "backbone": BACKBONE, **result}
    write_record(options.output / ("m5_shape.json" if is_m5 else "larger_than_memory.json"), record)
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
