"""Panels in files: shared by processes, read-only, and never listed window by window."""

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from torch.utils.data import DataLoader

from tests.data.mapped.tables_to_map import (
    LONG,
    ROLES,
    assert_same_batches,
    assert_same_panel,
    converted,
    full_frame,
    long_frame,
    mapped,
    saved,
)
from tsattn.data import MappedDataModule, TableReader, panel_from_frame, read_table
from tsattn.data import mapped as mapped_tables
from tsattn.data.mapped import TableSource, open_panel
from tsattn.data.table_options import TableOptions
from tsattn.errors import UserError


def test_panel_and_series_pickle_as_the_names_of_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.row_ranges._IN_MEMORY", 100)  # scaled series lie in files, too
    data = mapped(saved(full_frame(tz="Europe/Berlin"), tmp_path / "t.parquet"), **LONG, **ROLES)
    packed = pickle.dumps(data)
    assert len(packed) < data.panel.values.nbytes / 2
    copy = pickle.loads(packed)
    assert_same_panel(copy.panel, data.panel)
    assert copy.panel.is_mapped
    part = data.panel.select(channels=("z",)).take(np.array([1, 2]))
    assert_same_panel(pickle.loads(pickle.dumps(part)), part)
    assert torch.equal(copy.series.values, data.series.values)
    # a process that is spawned, not forked, gets its windows pickled
    windows = pickle.loads(pickle.dumps(data.windows("test")))
    loader = DataLoader(windows, 50, num_workers=1, collate_fn=lambda batch: batch, multiprocessing_context="fork")
    assert_same_batches(loader, data.test_dataloader())
    (data.folder / "values.npy").write_bytes(b"x")
    with pytest.raises(UserError, match=r"values\.npy was rewritten while it was in use; start again"):
        pickle.loads(packed)


def test_files_are_read_only_and_shared_and_windows_not_listed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = mapped(path, **LONG)
    (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if f"{data.folder}/values.npy" in line]
    assert line.split()[1] == "r--s"
    with pytest.raises(ValueError, match="read-only"):
        data.panel.values[0] = 1
    monkeypatch.setattr("tsattn.data.windows._PERMUTED", 10)
    loader = data.train_dataloader()
    monkeypatch.setattr(torch, "randperm", lambda *args, **kwargs: pytest.fail("all windows were listed"))
    assert sum(len(batch) for batch in loader) == len(data.windows("train"))


def test_folders_that_are_no_panels_are_refused(path: Path, tmp_path: Path) -> None:
    folder = mapped(path, **LONG).folder
    index = json.loads((folder / "panel.json").read_text())
    for text, message in {
        json.dumps({**index, "format": 99}): "has format 99; this version reads",
        "{": "is damaged; convert the table again",
        "[]": "is damaged; convert the table again",
    }.items():
        (folder / "panel.json").write_text(text)
        with pytest.raises(UserError, match=message):
            open_panel(folder)
    with pytest.raises(UserError, match=r"has no panel\.json; convert a table with `datasets convert`"):
        open_panel(tmp_path)


def test_static_categories_do_not_depend_on_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_tables, "_CELLS", 480)
    monkeypatch.setenv("HOME", str(tmp_path))
    days = pd.date_range("2020", periods=60)
    kinds = {"a": "01", "b": "2.0", "c": "01", "d": "A1", "e": "true", "f": "TRUE", "g": "2.50", "h": "2"}
    series = [pd.DataFrame({"unique_id": one, "ds": days, "y": range(60), "kind": kind}) for one, kind in kinds.items()]
    pd.concat(series).to_csv(tmp_path / "t.csv", index=False)
    ours = MappedDataModule("~/t.csv", static=["kind"], context_length=8, prediction_length=2)
    ours.setup("fit")
    for panel in (ours.panel, TableReader(static=("kind",)).read(tmp_path / "t.csv")):
        assert panel.static_categories == (("01", "2", "2.5", "A1", "True"),)
        assert panel.static.ravel().tolist() == [0, 1, 0, 3, 4, 4, 2, 1]


@pytest.mark.slow
def test_benchmark_of_memory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import larger_than_memory

    monkeypatch.setattr(mapped_tables, "_CELLS", 1 << 20)
    # other tests of this process have memory of their own: the size is not looked at
    sizes = ["--shape", "m5", "--share", "0.002", "--steps", "5"]
    larger_than_memory.main([*sizes, "--out", str(tmp_path), "--folder", str(tmp_path)])
    report = json.loads((tmp_path / "m5_shape.json").read_text())
    assert report["training"]["steps"] == 5
    assert report["max_rss_anon_gb"] > 0
    assert [file.name for file in tmp_path.iterdir()] == ["m5_shape.json"]


FULL: dict[str, Any] = {"target": ["y", "z"], **ROLES}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_format_says_what_a_file_is(tmp_path: Path, kind: str) -> None:
    frame, path = long_frame(missing=False).round({"y": 3, "z": 3}), tmp_path / "table.dat"
    getattr(frame, f"to_{kind}")(path, index=False)
    with pytest.raises(UserError, match=r"table.dat cannot be converted; valid are .*\.csv"):
        converted(path, tmp_path / "out")
    panel = converted(path, tmp_path / "out", target=["y", "z"], format=kind)
    np.testing.assert_array_equal(panel.values, panel_from_frame(frame, target=["y", "z"]).values)


def test_folder_of_files_of_every_kind_holds_the_same_series(tmp_path: Path) -> None:
    frame = full_frame().round(dict.fromkeys("yzpf", 3))  # which the parser of every pandas reads exactly
    folder = tmp_path / "parts"
    folder.mkdir()
    saved(frame[:300], folder / "a.parquet")
    pyarrow.feather.write_feather(pa.Table.from_pandas(frame[300:500], preserve_index=False), folder / "b.arrow")
    frame[500:700].to_csv(folder / "c.csv", index=False)
    frame[:0].to_csv(folder / "d.csv", index=False)
    frame[700:].to_csv(folder / "e.csv", index=False)
    assert_same_panel(converted(folder, tmp_path / "out", **FULL), panel_from_frame(frame, **FULL))
    (folder := tmp_path / "mixed").mkdir()
    numbers = frame.assign(unique_id=frame["unique_id"].str[1:].astype("int64"))  # text in a CSV file
    for name, rows in {"a": numbers[:0], "b": numbers[:300]}.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
    with pytest.raises(UserError, match=r"column unique_id of .* is named as id and as static"):
        TableReader(static=("unique_id",)).read(folder / "b.csv")
    saved(numbers[300:].astype({"unique_id": float}), folder / "c.parquet")  # as missing ids would make them
    assert_same_panel(converted(folder, tmp_path / "numbers", **FULL), panel_from_frame(numbers, **FULL))
    frame = full_frame().astype({"y": "float32", "f": "float32"}).assign(z=np.arange(len(frame), dtype="int16") % 100)
    panel = converted(saved(frame, tmp_path / "a.parquet"), tmp_path / "narrow", **FULL)
    assert panel.values.dtype == np.float32, "single precision stays where it loses nothing"
    assert panel.past_covariates.dtype == np.float64
    assert_same_panel(panel, panel_from_frame(frame, **FULL))


GERMAN = {"separator": ";", "decimal": ",", "encoding": "utf-16"}
CSV: dict[str, tuple[Any, dict[str, Any]]] = {
    "semicolons": (lambda f: f, GERMAN),
    "ids with zeros": (lambda f: f.assign(unique_id="0" + f["unique_id"].str[1:]), {}),
    "integers as dates": (lambda f: f.assign(ds=f["ds"].dt.strftime("%Y%m%d%H%M")), {}),
    "steps": (lambda f: f.assign(ds=(f["ds"] - pd.Timestamp("2020")) // pd.Timedelta("1h")), {}),
    "given format": (lambda f: f.assign(ds=f["ds"].dt.strftime("%m/%d/%y %Hh")), {"date_format": "%m/%d/%y %Hh"}),
    "zones": (lambda f: f.assign(ds=f["ds"].dt.strftime("%Y-%m-%dT%H:%M:%S+02:00")), {}),
}


@pytest.mark.parametrize("case", CSV)
def test_csv_is_read_as_in_memory(tmp_path: Path, case: str) -> None:
    (change, read), path = CSV[case], tmp_path / "t.csv"
    written = {"sep": ";", "decimal": ",", "encoding": "utf-16"} if read is GERMAN else {}
    change(full_frame()).to_csv(path, index=False, **written)
    text = TableOptions(**read)
    expected = panel_from_frame(read_table(path, text=text), **read, **FULL)
    assert_same_panel(converted(path, tmp_path / "out", **read, **FULL), expected)


def test_wide_tables_leave_out_saved_indexes_and_empty_columns(tmp_path: Path, toy_frame: pd.DataFrame) -> None:
    toy_frame.assign(nothing=np.nan).reset_index(names="date").to_csv(tmp_path / "b.csv")
    panel = converted(tmp_path / "b.csv", tmp_path / "b")
    assert_same_panel(panel, panel_from_frame(read_table(tmp_path / "b.csv")))
    assert panel.channels == ("wave", "drift")


def test_row_group_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_tables, "_CELLS", 1 << 12)
    values = np.random.default_rng(0).random(2_000_000)
    table = pa.table({"date": pd.date_range("2000", periods=len(values), freq="min"), "a": values})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=len(values))
    del table
    before = pa.total_allocated_bytes()
    source = TableSource(tmp_path / "a.parquet", TableOptions())
    most = max(pa.total_allocated_bytes() - before for _ in itertools.islice(source.parts(), 100))
    assert most < 8 * len(values) / 2


OFF = pd.Timedelta(7, "min")
BAD: list[tuple[Any, str]] = [
    (lambda f: f.iloc[[*range(301), *range(300, 1033)]], r"row 302: .* of series s1 is there twice.*row 301"),
    (lambda f: pd.concat([f, f[:1]]), r"row 1034: .* of series s0 is there twice"),
    (lambda f: f.assign(y=f["y"].where(f.index != 500, np.inf)), "row 501: the value of y is infinite"),
    (lambda f: f.assign(ds=f["ds"].where(f.index != 400)), "row 401: .* is not a date"),
    (lambda f: f.assign(ds=f["ds"].where(f.index != 300, f["ds"] + OFF)), "row 301: .* is not on the grid of .* 'h'"),
    (lambda f: f[(f.index < 270) | (f.index > 650)], "more than max_filled 0.5 allows"),
    (lambda f: f[:0].astype({"unique_id": "string"}), "has no rows"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_table_that_cannot_be_converted_is_refused_in_one_sentence(tmp_path: Path, change: Any, message: str) -> None:
    path = saved(change(long_frame(missing=False)), tmp_path / "bad.parquet")
    with pytest.raises(UserError, match=rf"^[^\n]*bad\.parquet.*{message}[^\n]*$"):
        converted(path, tmp_path / "out", target=["y", "z"])
    assert [file.name for file in tmp_path.iterdir()] == ["bad.parquet"]


def test_rows_are_named_by_the_line_of_their_own_file(tmp_path: Path) -> None:
    folder, frame = tmp_path / "parts", full_frame()
    folder.mkdir()
    frame[:400].to_csv(folder / "a.csv", index=False)
    for cell, said in (
        ("strange", r"kind changes within series s\d, to strange"),
        (np.nan, "category in static column kind is missing"),
    ):
        frame.loc[450, ["kind", "y"]] = cell, 1.0
        frame[400:].to_csv(folder / "b.csv", index=False)
        with pytest.raises(UserError, match=rf"b\.csv, line 52: .*{said}"):
            converted(folder, tmp_path / "out", **FULL)
    saved(frame[:50].drop(columns="p"), folder / "c.parquet")
    with pytest.raises(UserError, match=r"c\.parquet has no column p, which a\.csv has"):
        converted(folder, tmp_path / "out", target=["y", "z"], past_covariates=["p"])


def test_paths_that_cannot_be_converted(tmp_path: Path, path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, content, message in (
        ("none.parquet", None, "does not exist"),
        ("empty", None, "has no .csv"),
        ("junk.parquet", b"PAR1 no such thing", "is damaged or cut"),
        ("cut.parquet", path.read_bytes()[:-100], "is damaged or cut"),
        ("cut.arrow", b"ARROW1", "is damaged or cut"),
        ("a.xlsx", b"", "cannot be converted; valid are"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            converted(tmp_path / name, tmp_path / "out")
