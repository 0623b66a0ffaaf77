"""Invented records, whose errors move together as those of real runs do."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.signal import lfilter

from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import Record

CHANNELS = 7
LEVELS = {"ETTh1": 0.40, "ETTm1": 0.33, "weather": 0.22}
ATTENTIONS = ("standard", "swa", "btt", "mlr")
ABLATIONS = ("identity", "uniform", "fixed_mixing")


def rng_of(*names: Any) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(str(name).encode()) for name in names])


def overlapping(windows: int, horizon: int, rng: np.random.Generator, memory: float = 0.9) -> NDArray[np.float64]:
    """`(windows,)` means over a horizon of steps that remember each other."""
    steps = lfilter([1.0], [1.0, -memory], rng.standard_normal(windows + horizon - 1 + 100))
    sums = np.concatenate([[0.0], np.cumsum(steps[100:])])
    return (sums[horizon:] - sums[:-horizon]) / horizon


def windows_of(squared: NDArray[np.float64], absolute: NDArray[np.float64], horizon: int) -> pa.Table:
    number = np.arange(len(squared))
    count = np.full(len(squared), horizon * CHANNELS)
    columns = {"window": number, "origin": 3600 * number, "squared": squared * count, "absolute": absolute * count}
    return pa.table({**columns, "count": count})


def record(
    dataset: str,
    horizon: int,
    predictor: str,
    attention: str,
    seed: int | None,
    *,
    shift: float = 0.0,
    windows: int = 1200,
    **changed: Any,
) -> Record:
    """A run that is done; its MSE is that of the data set, `shift` percent of it above."""
    level = LEVELS[dataset] * (1 + horizon / 2000)
    base = 1 + 0.5 * overlapping(windows, horizon, rng_of(dataset, horizon))
    # runs of one seed are alike, whatever their attention
    pair = dataset, horizon, predictor, bool(attention), seed
    own = 0.02 * overlapping(windows, horizon, rng_of(*pair))
    own += 0.006 * overlapping(windows, horizon, rng_of(*pair, attention))
    lucks = [rng_of("luck", *names).standard_normal() for names in (pair, (*pair, attention))]
    luck = (0.002 * lucks[0] + 0.0005 * lucks[1]) * (seed is not None)
    squared = np.maximum(level * (base + own + luck + shift / 100), 1e-3)
    absolute = np.sqrt(squared) * 0.6
    table = windows_of(squared, absolute, horizon)
    parameters = 0 if not attention else 40_000 + 8000 * (attention == "btt")
    row: dict[str, Any] = {
        "suite": "invented",
        **{"dataset": dataset, "horizon": horizon, "predictor": predictor, "attention": attention, "seed": seed},
        **{"status": "done", "reason": "", "key": f"{dataset}-{horizon}-{predictor}-{attention}-{seed}"},
        **{"mse": float(squared.mean()), "mae": float(absolute.mean())},
        **{"validation_mse": float(squared.mean() * 1.5), "validation_mae": float(absolute.mean() * 1.3)},
        **{"windows": windows, "context_length": 512, "season_length": 24, "parameters": parameters},
        "flops": float(10 ** (6 + len(attention) / 4)) if attention else 1e5,
        "seconds": 60.0 + 10 * len(attention) if attention else 0.7,
        **{"peak_memory": 500_000_000, "weight": 0.0 if not attention else 0.5 if "+" in predictor else 1.0},
        **{"trained_windows": "each 4th" if dataset != "ETTh1" else "all", "experiment": "data: {}\n"},
        **{"git": "0123456789abcdef", "versions": json.dumps({"tsattn": "0.1.0", "torch": "2.13.0"})},
        **{"cpu": "AMD EPYC", "device": "cpu", "threads": 1, "command": "python -m tsattn benchmark --suite invented"},
        "finished": datetime(2026, 11, 20, tzinfo=UTC) + timedelta(minutes=zlib.crc32(f"{seed}".encode()) % 999),
        **changed,
    }
    return Record.of(row, table)


def refused(dataset: str, horizon: int, predictor: str, attention: str, status: str, reason: str) -> Record:
    done = record(dataset, horizon, predictor, attention, 1, windows=200)
    nothing = ("mse", "mae", "validation_mse", "validation_mae", "flops", "seconds", "parameters", "weight", "windows")
    row = {**done.row, **dict.fromkeys(nothing), "status": status, "reason": reason}
    return Record.of({**row, "key": "" if status == "does not apply" else row["key"]})


def records(
    datasets: Sequence[str] = ("ETTh1", "ETTm1"),
    horizons: Sequence[int] = (24, 48),
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
    shifts: Mapping[str, float] | None = None,
    windows: int = 1200,
) -> Records:
    """A board: by default MLR 3 percent below standard attention, uniform averaging 8 percent above, all else alike.

    Args:
        datasets: keys of `LEVELS`.
        horizons: of each; ablations and the iTransformer are at the first alone.
        seeds: of what is trained.
        shifts: of the MSE by attention, in percent.
        windows: of each test.
    """
    moved = {"mlr": -3.0, "uniform": 8.0} if shifts is None else shifts
    found = []
    for dataset in datasets:
        for horizon in horizons:
            own = {"windows": windows}
            for name, shift in (("ridge", 5.0), ("persistence", 150.0), ("seasonal_naive", 40.0)):
                found.append(record(dataset, horizon, name, "", None, shift=shift, **own))
            for seed in seeds:
                for kind in ATTENTIONS:
                    for name in ("patchtst", "patchtst+ridge"):
                        part = 1.0 if name == "patchtst" else 0.5
                        shift = part * moved.get(kind, 0.0) + (0 if part == 1 else -1.0)
                        found.append(record(dataset, horizon, name, kind, seed, shift=shift, **own))
                if horizon == horizons[0] and seed in seeds[:2]:
                    for kind in ABLATIONS:
                        found.append(record(dataset, horizon, "patchtst", kind, seed, shift=moved.get(kind, 0), **own))
                    for kind in ("standard", "btt"):
                        found.append(record(dataset, horizon, "itransformer", kind, seed, shift=6.0, **own))
    words = "a window of neighbours makes no sense where tokens are channels, which have no order"
    found.append(refused(datasets[0], horizons[0], "itransformer", "swa", "does not apply", words))
    words = "the loss is not a number after step 12 <script>alert(1)</script>"
    found.append(refused(datasets[0], horizons[0], "itransformer", "mlbtc", "failed", words))
    return Records.of(found)
