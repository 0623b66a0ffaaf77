"""What Lightning, the disk or the terminal would answer with a traceback: one sentence, and no folder that stays."""

import errno
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.cli.toy_run import TINY, refusal
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.experiments.run_folder import RunFolder
from tsattn.forecaster.forecast_files import write_figure, write_frame
from tsattn.predictors.fitted import forecast_batches


def test_a_disk_that_is_full_when_a_run_begins_leaves_no_folder(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: RunFolder, file: Path, content: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(RunFolder, "write_json", full)
    run = tmp_path / "run"
    assert main(["fit", *TINY, f"--data.path={toy_csv}", f"--run={run}"]) == 2
    assert f"error: {run / 'versions.json'}: No space left on device" in capsys.readouterr().err
    assert not run.exists()


def read_only(self: Path, *args: Any, **options: Any) -> Any:
    raise OSError(errno.EROFS, "Read-only file system", str(self))


def test_a_read_only_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("touch", "unlink", "replace"):  # on such a disk even what is not there cannot be unlinked
        monkeypatch.setattr(Path, method, read_only)
    frame = pd.DataFrame({"a": [1]})
    for write, name in ((partial(write_frame, frame), "out.parquet"), (partial(write_figure, Figure()), "out.png")):
        with pytest.raises(UserError, match=rf"{name} cannot be written: Read-only file system"):
            write(tmp_path / name)


def test_a_read_only_disk_is_found_before_anything_is_computed(
    trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "touch", read_only)
    monkeypatch.setattr("tsattn.cli.trained_run.reopened", lambda *args, **options: pytest.fail("it was computed"))
    message = refusal(["predict", "--run", str(trained[1]), "--output", str(tmp_path / "out.csv")], capsys)
    assert message.endswith("out.csv cannot be written: Read-only file system")


def test_files_of_others_beside_an_output_stay(
    trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of a name like that of what is written, and one that appears while the forecast is made."""
    (tmp_path / "out.csv.partial").write_text("mine")
    words = ["predict", "--run", str(trained[1]), "--output", str(tmp_path / "out.csv"), "--figure=false"]
    assert main(words) == 0
    capsys.readouterr()
    (tmp_path / "out.csv").unlink()

    def late(*given: Any) -> Any:
        (tmp_path / "out.csv").write_text("mine")
        return forecast_batches(*given)

    monkeypatch.setattr("tsattn.cli.trained_run.forecast_batches", late)
    assert "out.csv was made by another process meanwhile" in refusal(words, capsys)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "out.csv": "mine",
        "out.csv.partial": "mine",
    }


def test_too_little_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def greedy(words: list[str]) -> int:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("tsattn.cli.without_experiment.cost", greedy)
    assert "error: out of memory; reduce --tokens" in refusal(["cost"], capsys)


def unread() -> Any:
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "w")


def test_a_fit_whose_output_is_no_longer_read_ends_its_work(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", unread())
    assert main(["fit", *TINY, f"--data.path={toy_csv}", f"--run={tmp_path / 'run'}"]) == 0
    assert (tmp_path / "run" / "metrics.json").exists()


def test_a_list_that_is_no_longer_read_ends_without_a_word() -> None:
    words = [sys.executable, "-m", "tsattn", "datasets", "list"]
    ended = subprocess.run(words, stdout=unread(), stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_cannot_be_written_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "tsattn", "--help"]
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "error: the operating system reports: No space left on device\n"
