"""Tables to map, and what the tests of mapped tables share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

from tests.toy_windows import tensors_of
from tsattn.batch import Batch
from tsattn.data import FrameDataModule, MappedDataModule

SIZES: dict[str, Any] = {"context_length": 24, "prediction_length": 6, "eval_batch_size": 50}
LONG: dict[str, Any] = {"target": ["y", "z"], **SIZES}


def long_frame(*, missing: bool, tz: str | None = None) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for number, rows in enumerate([260, 400, 40, 333]):
        values = rng.standard_normal((rows, 2)) * (number + 1) + 10 * number
        if missing:
            values[rng.random((rows, 2)) < 0.2] = np.nan
            values[:7, 0] = np.nan
            values[-3:, 1] = np.nan
        time = pd.date_range(f"2020-03-{25 + number}", periods=rows, freq="h", tz=tz)
        parts.append(pd.DataFrame({"unique_id": f"s{number}", "ds": time, "y": values[:, 0], "z": values[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def wide_frame(*, missing: bool) -> pd.DataFrame:
    frame = long_frame(missing=missing).query("unique_id == 's1'").drop(columns="unique_id")
    return frame.rename(columns={"ds": "date"}).reset_index(drop=True)


def saved(frame: pd.DataFrame, path: Path, rows: int = 70) -> Path:
    """A file of row groups that series do not end with."""
    frame.to_parquet(path, row_group_size=rows, index=False)
    return path


def mapped(path: Path, **options: Any) -> MappedDataModule:
    data = MappedDataModule(str(path), **options)
    data.setup("fit")
    return data


def in_memory(frame: pd.DataFrame, **options: Any) -> FrameDataModule:
    data = FrameDataModule(frame, **options)
    data.setup("fit")
    return data


def builds(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why maps were built."""
    return [r.getMessage().split(": ", 1)[1] for r in caplog.records if r.getMessage().startswith("building the map")]


def values_file(data: MappedDataModule) -> Path:
    (file,) = data.folder.glob("*-values.bin")
    return file


def assert_same_batches(ours: DataLoader[Batch], theirs: DataLoader[Batch], atol: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        left, right = tensors_of(one), tensors_of(other)
        assert left.keys() == right.keys()
        for name in left:
            torch.testing.assert_close(left[name], right[name], rtol=0, atol=atol, msg=name)
