"""What all tests share: real files, found or loudly missed, and toy files."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pandas as pd

os.environ["RAY_AUTH_MODE"] = "disabled"  # a cluster that one test starts leaves no token that the next would ask for

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

REAL_ROOT = os.environ.get("TSATTN_DATA")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not getattr(config.option, "tx", None):
        _prepare()  # else this process gives tests to others, and need not import anything
    # started in the background, it would ignore Ctrl-C, and so would the processes that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _prepare() -> None:
    import torch

    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when a Triton kernel is defined


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = _slow_files_first(items)
    import torch

    has_gpu = torch.cuda.is_available()
    for item in items:
        if item.get_closest_marker("real_data") and not (REAL_ROOT and Path(REAL_ROOT).is_dir()):
            reason = "TSATTN_DATA names no folder that is there, so the real files are not tested"
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("gpu") and not has_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device, so the GPU path is not tested"))


def _slow_files_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Both halves, one for each of two workers, begin with files of slow tests: the last tests are short ones."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    slow = [path for path in files if any(item.get_closest_marker("slow") for item in files[path])]
    slow.sort(key=lambda path: path.name != "test_processes.py")  # it stops a server of forks that is there before
    others = [path for path in files if path not in slow]
    return [
        item for part in (slow[::2], others[::2], slow[1::2], others[1::2]) for path in part for item in files[path]
    ]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are made and saved, but empty: for tests that make many and look at none."""
    from tests.pictures import save_empty

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save_empty)


@pytest.fixture
def short_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ridge beside a model has a short context: for tests of large data that do not look at its errors."""
    monkeypatch.setattr("tsattn.ridge.closed_form.CONTEXTS", (24,))


@pytest.fixture
def toy_frame() -> pd.DataFrame:
    from tests.toy_windows import toy_table

    return toy_table()


@pytest.fixture
def toy_csv(tmp_path: Path, toy_frame: pd.DataFrame) -> Path:
    path = tmp_path / "toy.csv"
    toy_frame.to_csv(path)
    return path


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file of one daily wave, and the folder of a finished run on it, which no test changes."""
    import numpy as np
    import pandas as pd

    from tsattn.cli import main

    folder = tmp_path_factory.mktemp("toy_run")
    hours = pd.date_range("2020-01-01", periods=300, freq="h", name="date")
    pd.DataFrame({"a": np.arange(300) % 24 + 0.5}, index=hours).to_csv(folder / "toy.csv")
    data = ["--data=CSVDataModule", f"--data.path={folder / 'toy.csv'}", "--data.context_length=24"]
    words = [*data, "--data.prediction_length=4", "--model.backbone.d_model=16", "--trainer.accelerator=cpu"]
    assert main(["fit", *words, "--trainer.max_steps=2", f"--run={folder / 'run'}"]) == 0
    return folder / "toy.csv", folder / "run"
