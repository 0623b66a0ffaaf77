"""A map is used again as long as its source and options are the same, and is built anew otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data.mapped.tables_to_map import LONG, builds, long_frame, mapped, values_file
from tsattn.data import MappedDataModule
from tsattn.data.mapped import source as mapped_source
from tsattn.data.mapped import store as mapped_store
from tsattn.errors import UserError
from tsattn.scaler import Scaler


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
    frame = long_frame(missing=True)
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
