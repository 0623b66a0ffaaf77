from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from tsattn.batch import Batch
from tsattn.data import FrameDataModule, MappedDataModule
from tsattn.data.mapped import build as mapped_build
from tsattn.data.mapped import source as mapped_source
from tsattn.data.mapped import store as mapped_store
from tsattn.errors import UserError
from tsattn.forecaster import future_frame
from tsattn.scaler import Scaler
from tsattn.training import ForecastingModule

SIZES: dict[str, Any] = {"context_length": 24, "prediction_length": 6, "eval_batch_size": 50}
LONG: dict[str, Any] = {"target": ["y", "z"], **SIZES}


def long_frame(*, gaps: bool, tz: str | None = None) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for number, rows in enumerate([260, 400, 40, 333]):
        values = rng.standard_normal((rows, 2)) * (number + 1) + 10 * number
        if gaps:
            values[rng.random((rows, 2)) < 0.2] = np.nan
            values[:7, 0] = np.nan
            values[-3:, 1] = np.nan
        time = pd.date_range(f"2020-03-{25 + number}", periods=rows, freq="h", tz=tz)
        parts.append(pd.DataFrame({"unique_id": f"s{number}", "ds": time, "y": values[:, 0], "z": values[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def wide_frame(*, gaps: bool) -> pd.DataFrame:
    frame = long_frame(gaps=gaps).query("unique_id == 's1'").drop(columns="unique_id")
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


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tsattn")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_source, "_CELLS", 128)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(long_frame(gaps=True), tmp_path / "series.parquet")


def assert_same_batches(ours: DataLoader[Batch], theirs: DataLoader[Batch], atol: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for field in fields(Batch):
            left, right = getattr(one, field.name), getattr(other, field.name)
            assert (left is None) == (right is None), field.name
            if left is not None:
                torch.testing.assert_close(left, right, rtol=0, atol=atol, msg=field.name)


SPLITS: dict[str, dict[str, Any]] = {
    "default": {},
    "fractions": {"train_fraction": 0.5, "val_fraction": 0.2},
    "rows": {"val_rows": 20, "test_rows": 30},
    "dates": {"val_from": "2020-04-03 07:00", "test_from": "2020-04-05"},
}


@pytest.mark.parametrize("scaling", ["global", "series"])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("split", SPLITS)
def test_every_batch_is_that_of_a_frame(tmp_path: Path, split: str, is_wide: bool, gaps: bool, scaling: str) -> None:
    frame = wide_frame(gaps=gaps) if is_wide else long_frame(gaps=gaps)
    options = {**(SIZES if is_wide else LONG), "scaling": scaling, **SPLITS[split]}
    theirs = in_memory(frame, **options)
    ours = mapped(saved(frame, tmp_path / "frame.parquet"), **options)
    assert (ours.series.observed is None) == (not gaps)
    assert ours.splits == theirs.splits
    assert ours.task is not None
    assert theirs.task is not None
    for name in ("channels", "frequency", "season_length"):
        assert getattr(ours.task, name) == getattr(theirs.task, name), name
    for name in ("ids", "scaling"):
        assert getattr(ours.scaler, name) == getattr(theirs.scaler, name), name
    for name in ("mean", "scale", "series_mean", "series_scale"):
        np.testing.assert_allclose(getattr(ours.scaler, name), getattr(theirs.scaler, name), rtol=1e-12)
    for part in ("train", "val", "test"):
        assert_same_batches(ours.eval_dataloader(part), theirs.eval_dataloader(part), atol=1e-6)
    assert_same_batches(ours.predict_dataloader(), theirs.predict_dataloader(), atol=1e-6)
    # with the same scale they are the same to the last bit
    obeying = MappedDataModule(str(tmp_path / "frame.parquet"), **options)
    obeying.task, obeying.scaler = theirs.task, theirs.scaler
    obeying.setup("test")
    assert obeying.task is theirs.task
    assert obeying.scaler is theirs.scaler
    for part in ("train", "val", "test"):
        assert_same_batches(obeying.eval_dataloader(part), theirs.eval_dataloader(part), atol=0)


def test_time_zone_and_split_by_date_across_a_change_of_clocks(tmp_path: Path) -> None:
    frame = long_frame(gaps=False, tz="Europe/Berlin")  # clocks changed on 2020-03-29
    options = {**LONG, "val_from": "2020-03-30 12:00", "test_from": "2020-04-02"}
    ours = mapped(saved(frame, tmp_path / "a.parquet"), **options)
    theirs = in_memory(frame, **options)
    assert ours.splits == theirs.splits
    assert_same_batches(ours.eval_dataloader("test"), theirs.eval_dataloader("test"), atol=1e-6)
    assert ours.panel is not None
    assert theirs.panel is not None
    for number in range(4):
        assert ours.panel.future_time(number, 6).equals(theirs.panel.future_time(number, 6))


@pytest.mark.parametrize("frequency", ["h", "15min", "D", "B", "W-SUN", "MS", "QE-DEC"])
def test_regular_stamps_of_any_frequency(tmp_path: Path, frequency: str) -> None:
    time = pd.date_range("1990-01-01", periods=300, freq=frequency)
    frame = pd.DataFrame({"date": time, "a": np.arange(300.0)})
    data = mapped(saved(frame, tmp_path / "a.parquet"), **SIZES)
    assert data.task is not None
    assert data.task.frequency == frequency
    assert data.panel is not None
    assert data.panel.future_time(0, 1)[0] == pd.date_range(time[-1], periods=2, freq=frequency)[1]


def test_folder_of_files_and_arrow_files_hold_the_same_series(tmp_path: Path) -> None:
    frame = long_frame(gaps=True)
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
    frame = long_frame(gaps=False)
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
    frame = long_frame(gaps=False).assign(y=0.1)
    frame["z"] = 1e9 + rng.standard_normal(len(frame))
    data = mapped(saved(frame, tmp_path / "a.parquet"), **LONG)
    assert data.scaler is not None
    assert data.scaler.scale[0] == 1
    train = np.concatenate([frame["z"][start : start + split.train_end] for start, split in _spans(data)])
    assert data.scaler.scale[1] == pytest.approx(np.std(train - 1e9), rel=1e-6)
    assert (data.series.values[:, 0] == 0).all()


def _spans(data: MappedDataModule) -> list[tuple[int, Any]]:
    return list(zip(data.series.starts[:-1].tolist(), data.splits, strict=True))


def test_map_is_used_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = mapped(path, **LONG)
    files = {file.name: file.stat().st_mtime_ns for file in first.folder.iterdir()}
    again = mapped(path, verify=True, **{**LONG, "context_length": 12})  # lengths are no matter of the map
    assert again.scaler is not None
    assert first.scaler is not None
    assert again.scaler.series_mean == first.scaler.series_mean
    assert again.splits == first.splits
    trained = MappedDataModule(str(path), **LONG)
    trained.task, trained.scaler = first.task, Scaler.from_dict(json.loads(json.dumps(first.scaler.to_dict())))
    trained.setup("test")
    first.setup("test")
    assert builds(caplog) == ["there is none"]
    assert {file.name: file.stat().st_mtime_ns for file in first.folder.iterdir()} == files


def test_source_that_is_only_written_again_is_not_built_again(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped(path, **LONG)
    reads = []
    checksums = mapped_source.TableSource.checksums
    monkeypatch.setattr(mapped_source.TableSource, "checksums", lambda self: reads.append(1) or checksums(self))
    for time in (10**9, 2 * 10**9):
        os.utime(path, ns=(time, time))
        mapped(path, **LONG)
        mapped(path, **LONG)
    assert len(builds(caplog)) == 1
    assert len(reads) == 2  # and then the new time stamp is known


def test_map_in_a_folder_that_cannot_be_written_to_is_used(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = mapped(path, **LONG)

    def refuse(self: object, timeout: float | None = None) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(mapped_store.FileLock, "acquire", refuse)
    os.utime(path, ns=(1, 1))
    assert torch.equal(mapped(path, **LONG).series.values, data.series.values)
    assert "cannot be noted: the map in" in caplog.text
    with pytest.raises(UserError, match="cannot be written: Permission denied; name another folder"):
        mapped(path, **{**LONG, "target": "y"})


def test_source_that_changed_is_built_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = path.stat().st_size
    old = mapped(path, **LONG)
    before = old.series.values.clone()
    frame = long_frame(gaps=True)
    plain = {"compression": None, "use_dictionary": False, "index": False}
    frame.to_parquet(path, **plain)
    mapped(path, **LONG)
    frame.loc[500, "y"] = 77.0
    frame.to_parquet(path, **plain)
    assert path.stat().st_size != size
    new = mapped(path, **LONG)
    place = new.series.values[500, 0].double() * new.series.scale[1, 0] + new.series.mean[1, 0]
    assert place.item() == pytest.approx(77, rel=1e-6)
    assert builds(caplog) == ["there is none", "the source changed", "the source changed, though not its size"]
    assert torch.equal(old.series.values, before)  # what is open stays as it was
    assert len(list(new.folder.glob("*-values.bin"))) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"target": ["z", "y"]}, "target is ['y', 'z'] there, not ['z', 'y']"),
        ({"target": "y"}, "target is ['y', 'z'] there, not ['y']"),
        ({"scaling": "global"}, "scaling is series there, not global"),
        ({"val_rows": 10, "test_rows": 10}, "split is {'fractions': [0.7, 0.1]} there, not {'rows': [10, 10]}"),
    ],
)
def test_other_options_are_built_anew(
    path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any], reason: str
) -> None:
    mapped(path, **LONG)
    other = mapped(path, **{**LONG, **change})
    fresh = mapped(path, folder=str(path.parent / "fresh"), **{**LONG, **change})
    assert torch.equal(other.series.values, fresh.series.values)
    assert builds(caplog) == ["there is none", reason, "there is none"]


def test_scale_of_a_trained_model_is_obeyed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame(gaps=True)
    frame["y"] *= 3
    theirs = in_memory(frame[frame["unique_id"] != "s3"], **LONG)  # one series is new to the model
    fitted = mapped(path, **LONG)
    data = MappedDataModule(str(path), **LONG)
    data.task, data.scaler = theirs.task, theirs.scaler
    data.setup("test")
    expected = FrameDataModule(long_frame(gaps=True), **LONG)
    expected.task, expected.scaler = theirs.task, theirs.scaler
    expected.setup("test")
    torch.testing.assert_close(data.series.values, expected.series.values, rtol=0, atol=1e-6)
    assert torch.equal(data.series.values[:700], expected.series.values[:700])
    again = mapped(path, **LONG)
    assert torch.equal(again.series.values, fitted.series.values)
    assert builds(caplog) == [
        "there is none",
        "it has the scale of another model",
        "it has the scale of a trained model",
    ]


def values_file(data: MappedDataModule) -> Path:
    (file,) = data.folder.glob("*-values.bin")
    return file


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 4)


def scribble(file: Path) -> None:
    with file.open("r+b") as raw:
        raw.seek(40)
        raw.write(b"\xff\xff")


def test_damaged_maps_are_built_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harms: list[tuple[Callable[[MappedDataModule], None], str]] = [
        (lambda data: truncate(values_file(data)), "bytes, not"),
        (lambda data: values_file(data).unlink(), "is not there"),
        (lambda data: (data.folder / "index.json").unlink(), "there is none"),
        (lambda data: truncate(data.folder / "index.json"), "its index is damaged"),
        (lambda data: (data.folder / "index.json").write_text("{}"), "its index is damaged"),
        (lambda data: scribble(data.folder / "index.json"), "its index is damaged"),
    ]
    expected = mapped(path, **LONG).series.values.clone()
    for harm, reason in harms:
        caplog.clear()
        harm(mapped(path, **LONG))
        assert torch.equal(mapped(path, **LONG).series.values, expected)
        (message,) = builds(caplog)
        assert reason in message


def test_verify_compares_checksums(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = mapped(path, **LONG)
    expected = first.series.values.clone()
    scribble(values_file(first))
    assert not torch.equal(mapped(path, **LONG).series.values, expected)
    assert torch.equal(mapped(path, verify=True, **LONG).series.values, expected)
    assert builds(caplog)[1:] == [f"the checksum of {first.series.build} is wrong"]  # type: ignore[attr-defined]


def test_older_format_is_built_again(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped(path, **LONG)
    monkeypatch.setattr(mapped_store, "FORMAT", mapped_store.FORMAT + 1)
    mapped(path, **LONG)
    assert builds(caplog)[1:] == [f"it has format {mapped_store.FORMAT - 1}, not {mapped_store.FORMAT}"]


@pytest.mark.parametrize("stage", ["time", "values", "index"])
def test_build_that_was_killed_leaves_nothing_that_is_taken_for_whole(
    path: Path, caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    process = multiprocessing.get_context("fork").Process(target=_killed_build, args=(path, stage))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    folder = path.with_name("series.parquet.mapped")
    left = {file.name for file in folder.glob("*.bin")}
    assert left
    data = mapped(path, **LONG)
    assert builds(caplog) == ["there is none"]
    assert not left & {file.name for file in folder.iterdir()}
    assert torch.equal(data.series.values, mapped(path, folder=str(path.parent / "x"), **LONG).series.values)


def _killed_build(path: Path, stage: str) -> None:
    def kill(*args: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if stage == "time":
        mapped_build.Keys.splits = kill  # type: ignore[assignment,method-assign]
    elif stage == "values":
        mapped_build._filled = kill  # type: ignore[assignment]
    else:
        mapped_store.Path.replace = kill  # type: ignore[assignment,method-assign]
    mapped(path, **LONG)


def test_build_that_fails_keeps_the_map_before_it(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = mapped(path, **LONG)
    files = {file.name for file in data.folder.iterdir()}
    with pytest.raises(UserError, match="does not fit frequency"):
        mapped(path, frequency="D", **LONG)
    assert {file.name for file in data.folder.iterdir()} == files
    mapped(path, **LONG)
    assert len(builds(caplog)) == 2


def test_source_that_changes_while_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = mapped_build._write_values

    def touch(*args: Any, **kwargs: Any) -> None:
        write(*args, **kwargs)
        os.utime(path, ns=(1, 1))

    monkeypatch.setattr(mapped_build, "_write_values", touch)
    with pytest.raises(UserError, match="was changed while it was read"):
        mapped(path, **LONG)
    assert not list(path.with_name("series.parquet.mapped").glob("*.bin"))


def test_two_processes_build_once(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        first, second = pool.map(_build_of, [str(path)] * 2)
    assert first == second


def _build_of(path: str) -> str:
    build: str = mapped(Path(path), **LONG).series.build  # type: ignore[attr-defined]
    return build


def altered(change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> pd.DataFrame:
    frame = long_frame(gaps=False)
    result = change(frame)
    return frame if result is None else result


BAD: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "missing stamp": (lambda f: f.drop(index=300), r"row 301: time stamp .* of series s1 comes .* does not fit"),
    "stamp twice": (lambda f: f.iloc[[*range(301), *range(300, 1033)]], r"row 302: .* of series s1 is there twice"),
    "unsorted stamps": (
        lambda f: f.iloc[[*range(270), 271, 270, *range(272, 1033)]],
        "row 272: .* of series s1 comes behind 2020",
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


def test_errors_of_order_name_the_way_out(tmp_path: Path) -> None:
    path = saved(long_frame(gaps=False).drop(index=300), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="CSVDataModule and FrameDataModule sort rows and fill gaps, in memory"):
        mapped(path, **LONG)


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
    frame = long_frame(gaps=False)
    saved(frame[:300], tmp_path / "a.parquet")
    saved(frame[300:].drop(columns="z"), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet has no column z, which a\.parquet has"):
        mapped(tmp_path, folder=str(tmp_path / "map"), **LONG)
    saved(long_frame(gaps=False, tz="UTC")[300:], tmp_path / "b.parquet")
    with pytest.raises(UserError, match="another time zone"):
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


def test_short_series_are_refused_before_values_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_build, "_values", lambda *args: pytest.fail("values were read"))
    with pytest.raises(UserError, match="no series is long enough"):
        mapped(path, **{**LONG, "context_length": 1000})


def test_splits_in_the_wrong_order(path: Path) -> None:
    with pytest.raises(UserError, match="must start before the test part"):
        mapped(path, val_from="2020-05-02", test_from="2020-05-01", **LONG)
    with pytest.raises(UserError, match="split in one way"):
        MappedDataModule(str(path), train_fraction=0.5, val_rows=3, **LONG)


def test_series_pickles_as_the_name_of_its_folder(path: Path) -> None:
    data = mapped(path, **LONG)
    packed = pickle.dumps(data)
    assert len(packed) < data.series.values.numel() * 4 / 3
    copy = pickle.loads(packed)
    for name in ("values", "observed", "time", "starts", "mean", "scale"):
        assert torch.equal(getattr(copy.series, name), getattr(data.series, name))
    values_file(data).rename(data.folder / "gone")
    with pytest.raises(FileNotFoundError):
        pickle.loads(packed)
    mapped(path, **{**LONG, "target": "y"})
    with pytest.raises(UserError, match="was built anew while it was in use"):
        pickle.loads(packed)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_loader_processes_share_the_map(path: Path, start: str) -> None:
    data = mapped(path, **LONG)
    windows = data.windows("test")
    loader = DataLoader(windows, 50, num_workers=1, collate_fn=_as_is, multiprocessing_context=start)
    assert_same_batches(loader, data.test_dataloader(), atol=0)


def _as_is(batch: Any) -> Any:
    return batch


def test_maps_are_read_only_and_shared(path: Path) -> None:
    data = mapped(path, **LONG)
    name = data.series.build  # type: ignore[attr-defined]
    (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if name in line]
    assert line.split()[1] == "r--s"


def test_no_list_of_windows_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = mapped(path, **LONG)
    monkeypatch.setattr("tsattn.data.loading._PERMUTED", 10)
    loader = data.train_dataloader()
    monkeypatch.setattr(torch, "randperm", lambda *args, **kwargs: pytest.fail("all windows were listed"))
    assert sum(len(batch) for batch in loader) == len(data.windows("train"))


def test_trains_and_forecasts_as_from_a_frame(path: Path) -> None:
    frame = long_frame(gaps=True)
    forecasts = []
    for data in (MappedDataModule(str(path), **LONG), FrameDataModule(frame, **LONG)):
        torch.manual_seed(0)
        model = ForecastingModule({"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2})
        trainer = Trainer(
            max_steps=3,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, datamodule=data)
        predicted: Any = trainer.predict(model, data)
        assert model.task is not None
        assert data.panel is not None
        forecasts.append(future_frame(predicted, model.task, model.output, data.panel))
    pd.testing.assert_frame_equal(forecasts[0], forecasts[1], rtol=1e-4, check_dtype=False)


def test_panel_is_the_last_row_of_each_series(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = mapped(path, **LONG)
    last = long_frame(gaps=True).groupby("unique_id").tail(1)
    assert data.panel is not None
    np.testing.assert_allclose(data.panel.values, last[["y", "z"]], rtol=1e-5)
    np.testing.assert_array_equal(data.panel.time, last["ds"])
    caplog.clear()
    assert data.predict_dataloader()
    assert "fewer rows than context_length" not in caplog.text  # than the series have, not the panel


def test_forecasts_from_another_file(path: Path, tmp_path: Path) -> None:
    trained = mapped(path, **LONG)
    frame = long_frame(gaps=False)
    data = MappedDataModule(str(path), **LONG)
    data.task, data.scaler = trained.task, trained.scaler
    data.forecast_from(saved(frame[:260], tmp_path / "other.parquet"))
    data.setup("predict")
    (batch,) = data.predict_dataloader()
    assert trained.task is not None
    np.testing.assert_allclose(
        batch.past[0].double() * trained.series.scale[0] + trained.series.mean[0], frame[["y", "z"]][236:260], atol=1e-5
    )


@pytest.mark.slow
def test_benchmark_of_memory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(__file__).parents[3] / "benchmarks" / "larger_than_memory.py"
    spec = importlib.util.spec_from_file_location("larger_than_memory", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(mapped_source, "_CELLS", 1 << 20)
    words = ["--gigabytes", "0.05", "--steps", "5", "--out", str(tmp_path), "--folder", str(tmp_path)]
    module.main(words)  # other tests of this process have memory of their own: the size is not looked at
    report = json.loads((tmp_path / "larger_than_memory.json").read_text())
    assert report["values_gb"] == pytest.approx(0.05, rel=0.01)
    assert report["training"]["steps"] == 5
    assert report["max_rss_anon_gb"] > 0
    assert [file.name for file in tmp_path.iterdir()] == ["larger_than_memory.json"]
