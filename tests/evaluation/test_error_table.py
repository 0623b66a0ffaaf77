"""A row for each series, origin and channel, in memory or in a file, whatever the batches and their order."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.evaluation import oracle
from tests.evaluation.oracle import Cases, drawn
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.evaluation import error_table
from tsattn.evaluation.error_table import METADATA, ErrorTable
from tsattn.evaluation.measure import measure
from tsattn.scaler import Units

LEVELS = (0.1, 0.5, 0.9)
KEYS = ["unique_id", "origin", "channel"]


def measured(cases: Cases, *sizes: int, **options: Any) -> ErrorTable:
    pairs = cases.batches(*sizes)
    forecasts = {id(batch): forecast for batch, forecast in pairs}
    return measure(
        lambda batch: forecasts[id(batch)],
        [batch for batch, _ in pairs],
        **{"units": cases.units, "levels": cases.levels, "ids": cases.ids, "channels": cases.channels, **options},
    )


def expected(cases: Cases) -> pd.DataFrame:
    rows = []
    for (n, c), sums in oracle.rows(cases).items():
        origin = pd.Timestamp(cases.origin(n), unit="s")
        rows.append({"unique_id": cases.ids[cases.series[n]], "origin": origin, "channel": cases.channels[c], **sums})
    return pd.DataFrame(rows)


def assert_rows(table: ErrorTable, cases: Cases) -> None:
    frame = table.frame()
    assert list(frame.columns[:3]) == KEYS
    assert frame.origin.dtype.kind == "M"
    assert len(table) == len(frame) == len(cases.series) * len(cases.channels)
    wanted = expected(cases)[list(frame.columns)]
    frame, wanted = (part.sort_values(KEYS, ignore_index=True) for part in (frame, wanted))
    pd.testing.assert_frame_equal(frame, wanted, check_dtype=False, rtol=1e-10, atol=1e-12)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are taken together, and written, a few at a time."""
    monkeypatch.setattr(error_table, "_PART", 5)


@pytest.mark.parametrize("levels", [(), LEVELS], ids=str)
@pytest.mark.parametrize("sizes", [(), (4, 2), (1, 1, 1, 1, 1, 1)], ids=str)
def test_rows_and_scores_are_those_of_the_definitions(
    levels: tuple[float, ...], sizes: tuple[int, ...], small_parts: None
) -> None:
    cases = drawn(0, levels=levels)
    table = measured(cases, *sizes, seasonal_errors=cases.seasonal)
    assert_rows(table, cases)
    assert table.scores() == pytest.approx(oracle.scores(cases), rel=1e-10, nan_ok=True)
    assert (table.levels, table.channels, table.path, table.has_rows) == (levels, ("a", "b", "c"), None, True)


def test_the_order_of_windows_changes_nothing() -> None:
    cases = drawn(1, levels=LEVELS)
    order = np.random.default_rng(0).permutation(len(cases.series))
    one, other = measured(cases), measured(cases.take(order), 3)
    columns = [name for name in one.frame().columns if name != "origin"]  # which follows the order here
    sort = ["unique_id", "channel", "squared_scaled"]
    frames = [table.frame()[columns].sort_values(sort, ignore_index=True) for table in (one, other)]
    pd.testing.assert_frame_equal(*frames)
    assert other.scores() == pytest.approx(one.scores(), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("limit", [0, 500, 10**6])
def test_a_file_holds_the_same_rows(tmp_path: Path, limit: int, small_parts: None) -> None:
    cases = drawn(2, levels=LEVELS)
    path = tmp_path / "new" / "errors.parquet"
    table = measured(cases, 2, 2, seasonal_errors=cases.seasonal, path=path, limit=limit)
    assert table.path == path
    assert_rows(table, cases)
    read = ErrorTable.read(path)
    pd.testing.assert_frame_equal(read.frame(), table.frame())
    assert str(read.scores()) == str(table.scores())
    in_memory = measured(cases, 2, 2, seasonal_errors=cases.seasonal)
    assert str(read.scores()) == str(in_memory.scores()), "to the last digit, NaN too"
    assert (read.levels, read.channels, read.nbytes, len(read)) == (LEVELS, cases.channels, table.nbytes, len(table))
    assert [file.name for file in path.parent.iterdir()] == ["errors.parquet"]
    for written in (table, read, in_memory):
        written.to_parquet(tmp_path / "copy.parquet")
        pd.testing.assert_frame_equal(ErrorTable.read(tmp_path / "copy.parquet").frame(), table.frame())
        written.to_parquet(path)


def test_rows_that_are_too_many_are_not_kept_but_scored(small_parts: None) -> None:
    cases = drawn(3, levels=LEVELS)
    table = measured(cases, seasonal_errors=cases.seasonal, limit=100)
    assert table.scores() == pytest.approx(oracle.scores(cases), rel=1e-10, nan_ok=True)
    assert not table.has_rows
    assert len(table) == 21
    said = "the 21 rows of this table were not kept, as they take 0 MB: measure with a path, and they are written"
    for ask in (table.frame, lambda: table.to_parquet("never.parquet")):
        with pytest.raises(UserError, match=re.escape(said)):
            ask()
    assert not Path("never.parquet").exists()


def test_the_size_is_that_of_the_rows_in_memory() -> None:
    table = measured(drawn(3, levels=LEVELS))
    (rows,) = table._rows
    columns = [column.chunk(0) for column in rows.columns]
    assert table.nbytes == sum((column.indices if hasattr(column, "indices") else column).nbytes for column in columns)


@pytest.mark.parametrize("ids", [("a", "b"), (7, 11), (1.5, 2.0), ("a", 1), (("a", 1), ("b", 2))], ids=str)
def test_ids_keep_their_type_or_become_text(ids: tuple[Any, ...], tmp_path: Path) -> None:
    cases = drawn(4)
    table = measured(cases, ids=ids, path=tmp_path / "errors.parquet")
    kept = type(ids[0]) is type(ids[1]) and not isinstance(ids[0], tuple)
    names = [ids[s] if kept else str(ids[s]) for s in cases.series.repeat(3)]
    for one in (table, ErrorTable.read(tmp_path / "errors.parquet")):
        assert one.frame().unique_id.tolist() == names


def test_steps_are_no_time_stamps(tmp_path: Path) -> None:
    cases = drawn(5)
    table = measured(cases, counts_steps=True, path=tmp_path / "errors.parquet")
    for one in (table, ErrorTable.read(tmp_path / "errors.parquet")):
        assert one.frame().origin.tolist() == [cases.origin(n) for n in range(7) for _ in range(3)]


def test_rows_in_a_file_may_be_put_in_any_order(tmp_path: Path) -> None:
    """As another program may do, which keeps what the file says of itself."""
    cases = drawn(6, levels=LEVELS)
    path = tmp_path / "errors.parquet"
    table = measured(cases, seasonal_errors=cases.seasonal, path=path)
    order = np.random.default_rng(0).permutation(len(table))
    pq.write_table(pq.read_table(path).take(order), path)
    assert ErrorTable.read(path).scores() == pytest.approx(table.scores(), rel=1e-12, nan_ok=True)


def test_an_error_leaves_what_was_there(tmp_path: Path, small_parts: None) -> None:
    cases = drawn(7)
    path = tmp_path / "errors.parquet"
    path.write_text("before")
    pairs = cases.batches(*[1] * 6)

    def forecast(batch: Batch) -> torch.Tensor:
        if batch is pairs[5][0]:
            assert path.with_name("errors.parquet.partial").exists(), "some was written"
            raise RuntimeError("no memory")
        return batch.target

    options: dict[str, Any] = {"units": cases.units, "levels": (), "ids": cases.ids, "channels": cases.channels}
    with pytest.raises(RuntimeError, match="no memory"):
        measure(forecast, [batch for batch, _ in pairs], **options, path=path, limit=0)
    assert [file.name for file in tmp_path.iterdir()] == ["errors.parquet"]
    assert path.read_text() == "before"


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = drawn(8)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"file/errors.parquet cannot be written: "):
        measured(cases, path=tmp_path / "file" / "errors.parquet")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"errors.parquet cannot be written: No space left on device$"):
        measured(cases, path=tmp_path / "errors.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "errors.parquet"
    with pytest.raises(UserError, match=r"errors.parquet is not there: no such file"):
        ErrorTable.read(path)
    path.write_text("date,value\n")
    with pytest.raises(UserError, match=r"errors.parquet cannot be read: "):
        ErrorTable.read(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(UserError, match=r"cannot be read: it is no error table"):
        ErrorTable.read(path)
    measured(drawn(9), path=path)
    whole = pq.read_table(path)
    pq.write_table(whole.drop_columns(["count"]), path)
    with pytest.raises(UserError, match=r"cannot be read: its columns are not those of an error table"):
        ErrorTable.read(path)
    text = whole.schema.metadata[METADATA].decode()
    pq.write_table(whole.replace_schema_metadata({METADATA: text.replace('"format": 1', '"format": 9')}), path)
    with pytest.raises(UserError, match=r"cannot be read: it was written by a newer version of tsattn"):
        ErrorTable.read(path)
    pq.write_table(whole.replace_schema_metadata({METADATA: text.replace('"b"', '"z"')}), path)
    with pytest.raises(UserError, match=r"cannot be read: it has rows of a channel that it does not name"):
        ErrorTable.read(path)


def test_units_of_one_row_serve_all_series() -> None:
    cases = drawn(10)
    cases.mean[:], cases.scale[:] = cases.mean[0], cases.scale[0]
    table = measured(cases, units=Units(cases.mean[:1], cases.scale[:1]), seasonal_errors=torch.tensor(cases.seasonal))
    assert_rows(table, cases)
