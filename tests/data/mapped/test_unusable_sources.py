"""Tables and folders that cannot be mapped are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.data.mapped.tables_to_map import LONG, long_frame, mapped, saved
from tsattn.data import MappedDataModule
from tsattn.data.mapped import moments as mapped_moments
from tsattn.data.mapped import store as mapped_store
from tsattn.errors import UserError


def altered(change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> pd.DataFrame:
    frame = long_frame(missing=False)
    result = change(frame)
    return frame if result is None else result


BAD: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "missing stamp": (
        lambda f: f.drop(index=300),
        r"row 301: time stamp .* of series s1 comes .* does not fit .*FrameDataModule sort rows and fill gaps",
    ),
    "stamp twice": (lambda f: f.iloc[[*range(301), *range(300, 1033)]], r"row 302: .* of series s1 is there twice"),
    "unsorted stamps": (
        lambda f: f.iloc[[*range(270), 271, 270, *range(272, 1033)]],
        "row 272: .* of series s1 comes after 2020",
    ),
    "series again": (lambda f: f.iloc[[*range(100), *range(660, 700), *range(100, 260)]], "row 141: series s0 comes"),
    "inf": (lambda f: f.__setitem__("y", f["y"].where(f.index != 500, np.inf)), "row 501: the value of y is infinite"),
    "no id": (lambda f: f.__setitem__("unique_id", f["unique_id"].where(f.index != 400)), "row 401: the id in column"),
    "no stamp": (lambda f: f.__setitem__("ds", f["ds"].where(f.index != 400)), "row 401: .* is not a date"),
    "text stamps": (lambda f: f.__setitem__("ds", f["ds"].astype(str)), "needs time stamps or dates there"),
    "text values": (lambda f: f.__setitem__("y", f["y"].astype(str) + "x"), "row 1: .* is not a number"),
    "bools": (lambda f: f.__setitem__("y", f["y"] > 0), "row 1: True in column y is not a number"),
    "no values": (
        lambda f: f.__setitem__("y", f["y"].where(f["unique_id"] != "s2")),
        "every value of y of series s2 is missing",
    ),
    "float ids": (lambda f: f.__setitem__("unique_id", 1.5), "ids are texts or whole numbers"),
    "other frequency": (
        lambda f: pd.concat([f[:260], f[260:660].assign(ds=pd.date_range("2020", periods=400, freq="D"))]),
        "row 262: .* of series s1 comes 1 days 00:00:00 after the row before, which does not fit frequency 'h'",
    ),
    "no column": (lambda f: f.drop(columns="z"), "has no target column z"),
    "no rows": (lambda f: f[:0].astype({"unique_id": "string"}), "has no rows"),  # pandas 2 writes no type for objects
    "two rows": (lambda f: f.groupby("unique_id").head(2), "give the frequency"),
}


@pytest.mark.parametrize("case", BAD)
def test_table_that_cannot_be_mapped(tmp_path: Path, case: str) -> None:
    change, message = BAD[case]
    path = saved(altered(change), tmp_path / "bad.parquet")
    with pytest.raises(UserError, match=message) as caught:
        mapped(path, **LONG)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("bad.parquet.mapped/*.bin"))


def test_paths_that_cannot_be_mapped(tmp_path: Path, path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 no such thing")
    (tmp_path / "cut.parquet").write_bytes(path.read_bytes()[:-100])
    (tmp_path / "cut.arrow").write_bytes(b"ARROW1")
    for name, message in {
        "none.parquet": "is not there",
        "toy.csv": "is not there",
        "empty": "has no .parquet",
        "junk.parquet": "is damaged or cut",
        "cut.parquet": "is damaged or cut",
        "cut.arrow": "is damaged or cut",
    }.items():
        with pytest.raises(UserError, match=message):
            mapped(tmp_path / name, **LONG)
    (tmp_path / "toy.csv").write_text("a,b\n")
    with pytest.raises(UserError, match=r"CSVDataModule reads \.csv files"):
        mapped(tmp_path / "toy.csv", **LONG)


def test_files_of_a_folder_must_be_alike(tmp_path: Path) -> None:
    frame = long_frame(missing=False)
    saved(frame[:300], tmp_path / "a.parquet")
    saved(frame[300:].drop(columns="z"), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet has no column z, which a\.parquet has"):
        mapped(tmp_path, folder=str(tmp_path / "map"), **LONG)
    saved(long_frame(missing=False, tz="UTC")[300:], tmp_path / "b.parquet")
    with pytest.raises(UserError, match="another time zone"):
        mapped(tmp_path, folder=str(tmp_path / "map"), **LONG)


def test_rows_are_named_by_their_own_file(tmp_path: Path) -> None:
    frame = long_frame(missing=False)
    frame.loc[470, "y"] = np.inf
    saved(frame[:300], tmp_path / "a.parquet")
    saved(frame[300:], tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet, row 171: the value of y is infinite"):
        mapped(tmp_path, folder=str(tmp_path / "map"), **LONG)


def test_folder_that_cannot_be_written_to(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written: .*; name another folder"):
        mapped(path, folder=str(tmp_path / "file" / "map"), **LONG)
    monkeypatch.setattr(mapped_store.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(UserError, match=r"needs 0\.00 GB, but only 0\.00 GB are free there"):
        mapped(path, **LONG)


def test_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped_store.os, "fsync", full)
    with pytest.raises(UserError, match="cannot be written: No space left on device; name another folder"):
        mapped(path, **LONG)
    assert not list(path.with_name("series.parquet.mapped").glob("*.bin"))


def test_short_series_are_refused_before_values_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_moments, "target_values", lambda *args: pytest.fail("values were read"))
    with pytest.raises(UserError, match="no series is long enough"):
        mapped(path, **{**LONG, "context_length": 1000})


def test_splits_in_the_wrong_order(path: Path) -> None:
    with pytest.raises(UserError, match="must start before the test part"):
        mapped(path, val_from="2020-05-02", test_from="2020-05-01", **LONG)
    with pytest.raises(UserError, match="split in one way"):
        MappedDataModule(str(path), train_fraction=0.5, val_rows=3, **LONG)
