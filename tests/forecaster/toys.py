"""What the tests of the Forecaster share: sizes, frames and small helpers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsattn.saved_folders import CHECKSUMS, write_checksums

L, T = 48, 12
SMALL: dict[str, Any] = {
    "backbone": {"kind": "patchtst", "d_model": 16, "num_layers": 1, "num_heads": 2, "patch_len": 8},
    "context_length": L,
    "prediction_length": T,
    "max_steps": 30,
    "accelerator": "cpu",
}
LENGTHS = {"small": 260, "large": 200, "late": 150, "short": 40}


def frame_of(lengths: dict[str, int] = LENGTHS, more: int = 0, seed: int = 0) -> pd.DataFrame:
    """Hourly daily waves, each ten times the one before; with `more`, the rows after those of the same seed."""
    parts = []
    for number, (name, rows) in enumerate(lengths.items()):
        rng = np.random.default_rng([seed, number])
        hours = np.arange(rows + more)
        wave = 10.0**number * (5 + np.sin(2 * np.pi * hours / 24) + 0.1 * rng.standard_normal(1000)[: len(hours)])
        stamps = pd.date_range("2024-01-01", periods=len(hours), freq="h")
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": wave})[rows if more else 0 :])
    return pd.concat(parts, ignore_index=True)


def promotions(rows: int, seed: int = 0) -> pd.DataFrame:
    """Two shops whose sales jump with a promotion that is known ahead; one shop is twice the other."""
    parts = []
    for number, shop in enumerate(["north", "south"]):
        rng = np.random.default_rng([seed, number])
        promotion = (rng.random(rows) < 0.3).astype(float)
        sales = (number + 1) * (10 + 5 * promotion + 0.1 * rng.standard_normal(rows))
        stamps = pd.date_range("2023-01-01", periods=rows, freq="D")
        parts.append(
            pd.DataFrame({"unique_id": shop, "ds": stamps, "y": sales, "promotion": promotion, "region": shop[0]})
        )
    return pd.concat(parts, ignore_index=True)


def zoned(zone: str | None, frame: pd.DataFrame, frequency: str = "h") -> pd.DataFrame:
    """With time stamps from 2024 on, by the clock of a zone."""
    rows = frame.groupby("unique_id").cumcount()
    stamps = pd.date_range("2024-03-25", periods=rows.max() + 1, freq=frequency, tz=zone)
    return frame.assign(ds=stamps[rows.to_numpy()])


def entries(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def set_in_json(folder: Path, **fields: Any) -> None:
    """Change forecaster.json, and the checksums with it."""
    path = folder / "forecaster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    seal(folder)


def seal(folder: Path) -> None:
    write_checksums(folder, [path for path in sorted(folder.iterdir()) if path.name != CHECKSUMS])
