"""A row for each series, origin and channel, in memory or in a file; scores of groups and their sums."""

import os
from collections.abc import Iterator
from dataclasses import replace
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
from tsattn.evaluation import error_table, window_errors
from tsattn.evaluation.error_table import METADATA, ErrorTable, scores_by
from tsattn.evaluation.measure import measure
from tsattn.evaluation.reductions import scores_of

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
    assert len(frame) == len(cases.series) * len(cases.channels)
    wanted = expected(cases)[list(frame.columns)]
    frame, wanted = (part.sort_values(KEYS, ignore_index=True) for part in (frame, wanted))
    pd.testing.assert_frame_equal(frame, wanted, check_dtype=False, rtol=1e-10, atol=1e-12)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are taken together, and written, a few at a time."""
    monkeypatch.setattr(error_table, "_PART", 5)


@pytest.mark.parametrize(("levels", "sizes"), [((), ()), (LEVELS, (4, 2))], ids=str)
def test_rows_and_scores_are_those_of_the_definitions(
    levels: tuple[float, ...], sizes: tuple[int, ...], small_parts: None
) -> None:
    cases = drawn(0, levels=levels)
    table = measured(cases, *sizes, seasonal_errors=cases.seasonal)
    assert_rows(table, cases)
    assert table.scores() == pytest.approx(oracle.scores(cases), rel=1e-10, nan_ok=True)
    assert (table.levels, table.channels, table.path) == (levels, ("a", "b", "c"), None)


def test_a_file_holds_the_same_rows(tmp_path: Path, small_parts: None) -> None:
    cases = drawn(2, levels=LEVELS)
    path = tmp_path / "new" / "errors.parquet"
    table = measured(cases, 2, 2, seasonal_errors=cases.seasonal, path=path)
    assert table.path == path
    assert_rows(table, cases)
    assert pq.read_metadata(path).num_row_groups > 2, "written as they came"
    read = ErrorTable.read(path)
    pd.testing.assert_frame_equal(read.frame(), table.frame())
    in_memory = measured(cases, 2, 2, seasonal_errors=cases.seasonal)
    assert str(read.scores()) == str(table.scores()) == str(in_memory.scores()), "to the last digit, NaN too"
    assert (read.levels, read.channels) == (LEVELS, cases.channels)
    assert [file.name for file in path.parent.iterdir()] == ["errors.parquet"]


def test_rows_that_are_too_many_are_not_kept_but_scored(small_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_table, "MEMORY_LIMIT", 2000)
    cases = drawn(3, levels=LEVELS)
    table = measured(cases, 2, 2, seasonal_errors=cases.seasonal)
    assert table.scores() == pytest.approx(oracle.scores(cases), rel=1e-10, nan_ok=True)
    for ask in (table.frame, lambda: table.scores_by("series")):
        with pytest.raises(
            UserError, match=r"the rows of this table are too many for memory\. Measure with `path=FILE`"
        ):
            ask()


def test_ids_keep_their_type_or_become_text(tmp_path: Path) -> None:
    cases = drawn(4)
    several: list[tuple[Any, ...]] = [(7, 11), ("a", 1), (("a", 1), ("b", 2)), (2**63, 2**64 - 1)]
    for ids in several:
        table = measured(cases, ids=ids, path=tmp_path / "errors.parquet")
        kept = ids in several[:1]
        names = [ids[s] if kept else str(ids[s]) for s in cases.series.repeat(3)]
        for one in (table, ErrorTable.read(tmp_path / "errors.parquet")):
            assert one.frame().unique_id.tolist() == names
        groups_of = measured(cases, ids=ids).scores_by("series").index
        assert {*map(str, groups_of)} == {str(ids[number]) for number in cases.series}


def test_steps_are_no_time_stamps(tmp_path: Path) -> None:
    cases = drawn(5)
    table = measured(cases, counts_steps=True, path=tmp_path / "errors.parquet")
    for one in (table, ErrorTable.read(tmp_path / "errors.parquet")):
        assert one.frame().origin.tolist() == [cases.origin(n) for n in range(7) for _ in range(3)]


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
        measure(forecast, [batch for batch, _ in pairs], **options, path=path)
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
    with pytest.raises(UserError, match=r"errors.parquet does not exist"):
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
    with pytest.raises(UserError, match=r"cannot be read: it has rows of an unknown channel"):
        ErrorTable.read(path)


QUARTERS = (0.25, 0.5, 0.75)
GROUPS = ("series", "step", "origin", "channel")


def whole_numbers() -> Cases:
    """Cases whose sums are exact in whatever order they are added: all that is multiplied is a power of two."""
    cases, rng = drawn(5, windows=9, T=5, C=2, S=3, levels=QUARTERS, share=0.8), np.random.default_rng(5)
    shape = cases.target.shape
    return replace(
        cases,
        forecast=np.sort(8.0 * rng.integers(-1, 2, (*shape, 3))),
        target=8.0 * rng.integers(-1, 2, shape),
        mean=np.zeros_like(cases.mean),
        scale=2.0 ** rng.integers(-2, 3, cases.scale.shape),
        seasonal=2.0 ** rng.integers(-2, 3, cases.seasonal.shape),
    )


def groups(cases: Cases, key: str) -> Iterator[tuple[Any, Cases]]:
    if key == "series":
        for number in np.unique(cases.series):
            yield cases.ids[number], cases.take(np.flatnonzero(cases.series == number))
    elif key == "origin":
        for window in range(len(cases.series)):
            yield pd.Timestamp(cases.origin(window), unit="s"), cases.take(np.array([window]))
    elif key == "step":
        for step in range(cases.target.shape[1]):
            part = np.s_[:, step : step + 1]
            yield (
                step + 1,
                replace(cases, forecast=cases.forecast[part], target=cases.target[part], observed=cases.observed[part]),
            )
    else:
        for number, channel in enumerate(cases.channels):
            part = np.s_[:, :, number : number + 1]
            own = {name: getattr(cases, name)[part] for name in ("forecast", "target", "observed")}
            units = {name: getattr(cases, name)[:, number : number + 1] for name in ("mean", "scale", "seasonal")}
            yield channel, replace(cases, **own, **units)


@pytest.mark.parametrize(("key", "levels"), [("series", LEVELS), ("step", LEVELS), ("origin", ()), ("channel", LEVELS)])
def test_the_scores_of_a_group_are_those_of_its_windows_alone(
    key: str, levels: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_errors, "_AT_ONCE", 1)  # a step at a time
    cases = drawn(3, windows=8, T=4, C=2, S=3, levels=levels, share=0.9)
    found = measured(cases, 3, 1, seasonal_errors=cases.seasonal, by_step=True).scores_by(key)
    alone = {label: oracle.scores(part) for label, part in groups(cases, key)}
    assert {*found.index} == {*alone}
    assert key == "series" or found.index.tolist() == [*alone]
    for label, scores in alone.items():
        assert {*found} == {*scores}
        for name, value in scores.items():
            assert found.loc[label, name] == pytest.approx(value, rel=1e-12, nan_ok=True), (label, name)


@pytest.mark.parametrize("key", GROUPS)
def test_the_sums_of_all_groups_are_exactly_those_of_the_whole(key: str) -> None:
    cases = whole_numbers()
    table = measured(cases, 4, seasonal_errors=cases.seasonal, by_step=True)
    names, totals = table.totals_by(key)
    added = totals.transpose(0, 1).squeeze(0) if key == "channel" else totals.sum(0)
    if key == "step":
        added[:, 0] = added[:, 0] / len(names)  # each window counts at every step
    assert scores_of(added, QUARTERS) == table.scores()


@pytest.mark.parametrize("key", ["series", "step", "origin"])
def test_the_order_of_the_windows_and_where_the_rows_lie_decide_nothing(key: str, tmp_path: Path) -> None:
    cases = whole_numbers()
    order = np.random.default_rng(0).permutation(len(cases.series))
    one = measured(cases, seasonal_errors=cases.seasonal, by_step=True).totals_by(key)
    shuffled = cases.take(order)
    pairs = shuffled.batches(2, 3)
    for (batch, _), part in zip(pairs, np.split(order, [2, 5]), strict=True):
        batch.time += torch.tensor(3600 * part - batch.time[:, 0].numpy())[:, None]
    forecasts = {id(batch): forecast for batch, forecast in pairs}
    options: dict[str, Any] = {"ids": cases.ids, "channels": cases.channels, "levels": QUARTERS, "units": cases.units}
    table = measure(
        lambda batch: forecasts[id(batch)],
        [batch for batch, _ in pairs],
        **options,
        seasonal_errors=cases.seasonal,
        by_step=True,
        path=tmp_path / "errors.parquet",
    )
    names, totals = table.totals_by(key)
    places = [names.tolist().index(name) for name in one[0]]
    assert len(names) == len(one[0])
    assert torch.equal(totals[places], one[1])
    if key != "step":
        read = ErrorTable.read(tmp_path / "errors.parquet").totals_by(key)
        assert read[0].equals(names)
        assert torch.equal(read[1], totals)


def test_groups_that_are_not_there_are_refused() -> None:
    cases = drawn(3, levels=LEVELS)
    with pytest.raises(UserError, match="measure again with by_step=True"):
        measured(cases).scores_by("step")
    with pytest.raises(UserError, match="one of series, origin, channel, step, not horizon"):
        measured(cases).totals_by("horizon")
    panel: Any = None
    with pytest.raises(UserError, match="one of series, step, origin, not week"):
        scores_by({}, "week", panel)


def test_origins_are_in_the_time_zone_of_the_panel() -> None:
    cases = drawn(2, windows=4, S=1)
    stamps = pd.date_range("1970-01-01", periods=9, freq="h", tz="Asia/Tokyo")
    panel: Any = type("Toy", (), {"is_wide": False, "time": stamps, "id_name": "shop"})()
    found = scores_by({"mine": measured(cases)}, "origin", panel)
    assert found.index.names == ["forecaster", "origin"]
    assert found.loc["mine"].index[0] == pd.Timestamp("1970-01-01 03:00", tz="Asia/Tokyo")
    assert scores_by({"mine": measured(cases)}, "series", panel).index.names == ["forecaster", "shop"]
