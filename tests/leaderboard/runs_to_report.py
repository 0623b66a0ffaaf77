"""Runs on toy data, as small as they can be: a network of quantiles and a ridge on the same windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsattn.experiments import run

SIZES = {"context_length": 48, "prediction_length": 12, "batch_size": 64, "eval_batch_size": 50}
PATCHTST = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "attention": "mlr"}


def toy_file(path: Path, missing: bool = True) -> Path:
    """400 hours of two channels, one with values that are missing."""
    hours = np.arange(400)
    noise = 0.3 * np.random.default_rng(5).standard_normal((2, 400))
    wave, drift = 10 + 3 * np.sin(2 * np.pi * hours / 24) + noise[0], 0.02 * hours + noise[1]
    if missing:
        wave[370:374] = np.nan
    index = pd.date_range("2021-03-01", periods=400, freq="h", name="date")
    pd.DataFrame({"wave": wave, "<b>drift": drift}, index=index).to_csv(path)
    return path


def content(csv: Path, backbone: Any, **model: Any) -> dict[str, Any]:
    return {
        "seed_everything": 1,
        "data": {"class_path": "CSVDataModule", "init_args": {**SIZES, "path": str(csv)}},
        "model": {"backbone": backbone, **model},
        "trainer": {"max_steps": 3, "val_check_interval": 1, "accelerator": "cpu", "log_every_n_steps": 1},
    }


def made_runs(folder: Path) -> tuple[Path, Path, Path]:
    """A network, a ridge, and a ridge that was not tested."""
    csv = toy_file(folder / "toy.csv")
    network, ridge, untested = (folder / name for name in ("network", "ridge", "untested"))
    run(content(csv, PATCHTST, quantiles=[0.1, 0.5, 0.9]), network)
    run(content(csv, {"kind": "ridge", "context_length": 24}), ridge)
    run(content(csv, {"kind": "ridge", "context_length": 24}), untested, test=False)
    return network, ridge, untested
