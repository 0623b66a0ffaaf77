"""Invented records: windows of one data set have common errors, so that a model is so many percent above another."""

import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import yaml

from tsattn.leaderboard.records import Records

LEVEL = 0.4  # the MSE of what is shifted by 0 %
WINDOWS = 200  # stretches of the test part
FINISHED = datetime(2026, 11, 20, tzinfo=UTC)


def row(
    dataset: str,
    horizon: int,
    predictor: str,
    attention: str = "",
    seed: int | None = None,
    *,
    shift: float = 0.0,
    windows: int = WINDOWS,
    backbone: Mapping[str, Any] | None = None,
    **changed: Any,
) -> dict[str, Any]:
    """A run whose MSE is `shift` percent above `LEVEL`, and a little more or less by its seed."""
    common = np.random.default_rng(zlib.crc32(f"{dataset} {horizon}".encode())).gamma(8, 1 / 8, windows)
    by_seed = 0.0 if seed is None else 0.002 * (-1) ** seed
    mse = LEVEL * (1 + shift / 100) * (1 + by_seed)
    counts = np.full(windows, 700)
    squared = counts * mse * common / common.mean()
    described = backbone or {"kind": predictor, **({"attention": {"kind": attention}} if attention else {})}
    made = {
        **{"suite": "invented", "dataset": dataset, "horizon": horizon, "predictor": predictor, "attention": attention},
        **{"seed": seed, "key": f"{dataset}-{horizon}-{predictor}-{attention}-{seed}", "status": "done"},
        **{"mse": mse, "mae": 0.6 * mse, "mase": 2 * mse, "validation_mse": mse, "validation_mae": 0.6 * mse},
        **{"context_length": 336, "parameters": 40_000 if seed else 0, "seconds": 60.0 if seed else 0.5},
        "windows": 8 * windows,
        "experiment": yaml.safe_dump({"model": {"backbone": described}}),
        **{"origin": np.arange(windows).tolist(), "count": counts.tolist()},
        **{"squared": squared.tolist(), "absolute": (0.6 * squared).tolist()},
        **{"git": "0123456789abcdef", "versions": '{"tsattn": "0.1.0", "torch": "2.13.0"}', "cpu": "AMD EPYC"},
        **{"threads": 1, "command": "tsattn benchmark --suite invented", "finished": FINISHED},
    }
    return {**made, **changed}


def rows(
    dataset: str, horizon: int, shifts: Mapping[str, float] | None = None, seeds: Iterable[int] = (1, 2), **changed: Any
) -> list[dict[str, Any]]:
    """A ridge 4 % above, naive forecasts far above, and PatchTST with each attention.

    Args:
        dataset: its name.
        horizon: in steps.
        shifts: of the MSE by attention, in percent.
        seeds: of PatchTST.
        changed: of every run.
    """
    moved = {"standard": 0.0, "swa": 0.0, "mlr": -3.0} if shifts is None else shifts
    found = [row(dataset, horizon, "ridge", shift=4.0, **changed)]
    found += [row(dataset, horizon, name, shift=150.0, **changed) for name in ("persistence", "seasonal_naive")]
    for name, shift in moved.items():
        found += [row(dataset, horizon, "patchtst", name, seed, shift=shift, **changed) for seed in seeds]
    return found


def board(datasets: Iterable[str] = ("ETTh1",), horizons: Iterable[int] = (24, 48), **changed: Any) -> Records:
    return Records.of(one for name in datasets for horizon in [*horizons] for one in rows(name, horizon, **changed))
