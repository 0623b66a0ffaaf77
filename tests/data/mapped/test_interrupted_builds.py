"""What is killed, fails or runs twice at once leaves nothing that is taken for a whole map."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data.mapped.tables_to_map import LONG, builds, mapped
from tsattn.data.mapped import build as mapped_build
from tsattn.data.mapped import store as mapped_store
from tsattn.errors import UserError


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
        mapped_build.SeriesKeys.splits = kill  # type: ignore[assignment,method-assign]
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
