"""A conversion that is killed starts again; what fails, or runs twice at once, leaves nothing taken for whole."""

import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.data.mapped.tables_to_map import (
    LONG,
    ROLES,
    converted,
    full_frame,
    long_frame,
    mapped,
    saved,
    with_categories,
)
from tsattn.data import assembly
from tsattn.data import mapped as mapped_tables
from tsattn.data.assembly import Survey
from tsattn.data.table_options import TableOptions
from tsattn.errors import UserError

FULL: dict[str, Any] = {"target": ["y", "z"], **ROLES, "weight_column": "w"}
STAGES: dict[str, tuple[Any, str]] = {
    "counting": (Survey, "add"),
    "writing": (assembly._Places, "write"),
    "report": (assembly._Places, "_log_missing"),
    "end": (mapped_tables, "write_text"),
    "moving": (mapped_tables, "put_folder"),
}


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def killed(path: Path, folder: Path, stage: str) -> None:
    owner, name = STAGES[stage]
    whole, calls = getattr(owner, name), iter(range(100))

    def some(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == (4 if stage in ("counting", "writing") else 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*args, **kwargs)

    setattr(owner, name, some)
    converted(path, folder, **FULL)


def kill_conversion(path: Path, stage: str) -> None:
    process = multiprocessing.get_context("fork").Process(target=killed, args=(path, path.parent / "out", stage))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (path.parent / "out").exists()
    assert (path.parent / "out.partial").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    path = saved(with_categories(full_frame()).assign(w=0.5), folder / "t.parquet")
    converted(path, folder / "expected", **FULL)
    return folder


@pytest.mark.parametrize("stage", STAGES)
def test_what_was_killed_begins_anew_and_ends_with_the_same_bytes(
    whole: Path, tmp_path: Path, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(shutil.copy2(whole / "t.parquet", tmp_path))
    kill_conversion(path, stage)
    converted(path, tmp_path / "out", **FULL)
    assert "was left by an interrupted conversion; starting again" in caplog.text
    assert bytes_of(tmp_path / "out") == bytes_of(whole / "expected")
    assert {file.name for file in tmp_path.iterdir()} == {"t.parquet", "out"}


def test_a_table_that_changed_since_is_read_as_it_is_now(tmp_path: Path) -> None:
    frame = full_frame().assign(w=1.0)
    path = saved(frame, tmp_path / "t.parquet")
    kill_conversion(path, "writing")
    frame["y"] *= 2
    saved(frame, path)
    converted(path, tmp_path / "out", **FULL)
    converted(path, tmp_path / "expected", **FULL)
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("changed", "was changed while it was read"),
        ("full", "out cannot be written: .*; name another folder"),
        ("small", r"needs 0\.00 GB, but only 0\.00 GB are free there"),
    ],
)
def test_a_table_that_changes_or_a_full_disk_is_one_sentence(
    path: Path, harm: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = assembly._Places._log_missing

    def touch(*args: Any) -> Any:
        os.utime(path, ns=(1, 1))
        return finished(*args)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    if harm == "changed":
        monkeypatch.setattr(assembly._Places, "_log_missing", touch)
    elif harm == "full":
        monkeypatch.setattr(mapped_tables.os, "posix_fallocate", full)
    else:
        monkeypatch.setattr(mapped_tables.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=said):
        converted(path, path.parent / "out", target=["y", "z"])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("overwrite", [False, True])
def test_folders_of_others_stay(path: Path, overwrite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that appears in the place of the arrays while they are written, and one of a name like theirs."""
    folder, options = path.parent, TableOptions(target=["y", "z"])
    for name in ("out", "out.old"):
        (folder / name).mkdir()
        (folder / name / "thesis.tex").write_text("years of work")
    (folder / "out").rename(folder / "hidden")
    finished = assembly._Places._log_missing
    monkeypatch.setattr(
        assembly._Places,
        "_log_missing",
        lambda *given: ((folder / "hidden").rename(folder / "out"), finished(*given))[1],
    )
    with pytest.raises(UserError, match=r"out .*is not (overwritten|replaced)"):
        mapped_tables.convert(path, folder / "out", options, overwrite=overwrite)
    for name in ("out", "out.old"):
        assert [file.name for file in (folder / name).iterdir()] == ["thesis.tex"]
    monkeypatch.undo()
    (folder / "new.partial").mkdir()
    (folder / "new.partial" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"new\.partial is in the way, and no conversion made it"):
        mapped_tables.convert(path, folder / "new", options)
    assert (folder / "new.partial" / "thesis.tex").exists()


def test_what_is_there_is_not_replaced_unasked(path: Path) -> None:
    out = path.parent / "out"
    converted(path, out, target=["y", "z"])
    before = bytes_of(out)
    with pytest.raises(UserError, match="out exists already; name another folder, or add --overwrite"):
        converted(path, out, target=["y"])
    assert bytes_of(out) == before
    options = TableOptions(target=["y"])
    mapped_tables.convert(path, out, options, overwrite=True)
    assert mapped_tables.open_panel(out).channels == ("y",)
    (path.parent / "mine").mkdir()
    with pytest.raises(UserError, match="because it is no converted table"):
        mapped_tables.convert(path, path.parent / "mine", options, overwrite=True)


def test_two_processes_convert_once(path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        first, second = pool.map(written_at, [str(path)] * 2)
    assert first == second


def written_at(path: str) -> int:
    return (mapped(Path(path), **LONG).folder / "values.npy").stat().st_mtime_ns


def conversions(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.getMessage().startswith("converting") for record in caplog.records)


def test_a_converted_table_is_used_again_until_it_changes(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = mapped(path, **LONG)
    values = first.series.values
    mapped(path, verify=True, **{**LONG, "context_length": 12, "val_rows": 10, "test_rows": 10})
    os.utime(path, ns=(1, 1))  # written again with the same content
    mapped(path, **LONG)
    assert conversions(caplog) == 1
    mapped(path, **{**LONG, "target": "y"})
    assert conversions(caplog) == 2
    saved(long_frame(missing=False), path)
    new = mapped(path, **LONG)
    assert new.series.observed is None
    assert conversions(caplog) == 3
    assert torch.equal(first.series.values, values)  # what is open stays as it was
    for harm in (lambda file: os.truncate(file, file.stat().st_size - 8), Path.unlink):
        harm(new.folder / "time.npy")
        assert torch.equal(mapped(path, **LONG).series.values, new.series.values)
    assert conversions(caplog) == 5
    with (new.folder / "values.npy").open("r+b") as raw:
        raw.seek(400)
        raw.write(b"\xff\x00")
    mapped(path, **LONG)
    assert conversions(caplog) == 5
    mapped(path, verify=True, **LONG)
    assert conversions(caplog) == 6
    assert "the checksum of values.npy is wrong" in caplog.text
    shutil.rmtree(new.folder)
