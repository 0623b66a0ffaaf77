"""Every test of converted tables reads small batches and sees what is logged."""

import logging
from pathlib import Path

import pytest

from tests.data.mapped.tables_to_map import long_frame, saved
from tsattn.data import assembly, mapped


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tsattn")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "_CELLS", 1000)
    monkeypatch.setattr(assembly, "_BLOCK", 100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(long_frame(missing=True), tmp_path / "series.parquet")
