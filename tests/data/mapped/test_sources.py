"""Tables that can be mapped: their files, ids, time stamps and values."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch

from tests.data.mapped.tables_to_map import LONG, SIZES, long_frame, mapped, saved
from tsattn.data import MappedDataModule
from tsattn.data.mapped import source as mapped_source


@pytest.mark.parametrize("frequency", ["15min", "B", "MS"])
def test_regular_stamps_of_any_frequency(tmp_path: Path, frequency: str) -> None:
    time = pd.date_range("1990-01-01", periods=300, freq=frequency)
    frame = pd.DataFrame({"date": time, "a": np.arange(300.0)})
    data = mapped(saved(frame, tmp_path / "a.parquet"), **SIZES)
    assert data.task is not None
    assert data.task.frequency == frequency
    assert data.panel is not None
    assert data.panel.future_time(0, 1)[0] == pd.date_range(time[-1], periods=2, freq=frequency)[1]


def test_folder_of_files_and_arrow_files_hold_the_same_series(tmp_path: Path) -> None:
    frame = long_frame(missing=True)
    whole = mapped(saved(frame, tmp_path / "whole.parquet"), **LONG)
    folder = tmp_path / "parts"
    folder.mkdir()
    saved(frame[:300], folder / "a.parquet")  # a series goes on in the next file
    pyarrow.feather.write_feather(pa.Table.from_pandas(frame[300:], preserve_index=False), folder / "b.arrow")
    parts = mapped(folder, **LONG)
    for name in ("values", "observed", "time", "starts", "mean", "scale"):
        # sums of other batches of rows: the last digit of a mean may differ
        torch.testing.assert_close(getattr(parts.series, name), getattr(whole.series, name), rtol=0, atol=1e-6)
    assert parts.folder == tmp_path / "parts.mapped"


def test_ids_are_texts_or_whole_numbers_with_or_without_a_dictionary(tmp_path: Path) -> None:
    frame = long_frame(missing=False)
    numbered = frame.assign(unique_id=frame["unique_id"].str[1:].astype(int))
    assert mapped(saved(numbered, tmp_path / "a.parquet"), **LONG).series.starts.diff().tolist() == [260, 400, 40, 333]
    coded = mapped(saved(frame.astype({"unique_id": "category"}), tmp_path / "b.parquet"), **LONG)
    assert coded.scaler is not None
    assert coded.scaler.ids == ("s0", "s1", "s2", "s3")


def test_index_of_time_stamps_is_the_time(tmp_path: Path, toy_frame: pd.DataFrame) -> None:
    toy_frame.index.name = None
    toy_frame.to_parquet(tmp_path / "a.parquet")
    data = mapped(tmp_path / "a.parquet", **SIZES)
    assert data.task is not None
    assert data.task.channels == ("wave", "drift")
    assert data.panel is not None
    assert data.panel.time_name == "ds"
    assert data.panel.time[0] == toy_frame.index[-1]


def test_constants_and_large_levels_are_scaled_well(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = long_frame(missing=False).assign(y=0.1)
    frame["z"] = 1e9 + rng.standard_normal(len(frame))
    data = mapped(saved(frame, tmp_path / "a.parquet"), **LONG)
    assert data.scaler is not None
    assert data.scaler.scale[0] == 1
    train = np.concatenate([frame["z"][start : start + split.train_end] for start, split in _spans(data)])
    assert data.scaler.scale[1] == pytest.approx(np.std(train - 1e9), rel=1e-6)
    assert (data.series.values[:, 0] == 0).all()


def _spans(data: MappedDataModule) -> list[tuple[int, Any]]:
    return list(zip(data.series.starts[:-1].tolist(), data.splits, strict=True))


def test_row_group_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(2_000_000)
    table = pa.table({"date": pd.date_range("2000", periods=len(values), freq="min"), "a": values})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=len(values))
    del table
    before = pa.total_allocated_bytes()
    source = mapped_source.TableSource(tmp_path / "a.parquet")
    for batches in (source.stamps(), source.targets()):
        most = max(pa.total_allocated_bytes() - before for _ in itertools.islice(batches, 100))
        assert most < 8 * len(values) / 2
