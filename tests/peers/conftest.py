"""An environment of peers that holds stand-ins for the libraries, run by the worker that runs the real ones."""

import sys
from pathlib import Path

import pytest

from tests.pictures import empty_pictures
from tsattn.peers.predictors import VARIABLE

__all__ = ["empty_pictures", "fake_peers", "fake_python"]

LIBRARIES = Path(__file__).parent / "fake_libraries"


@pytest.fixture(scope="session")
def fake_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A python that finds them: that of the tests, which is asked to be isolated and is not."""
    python = tmp_path_factory.mktemp("peers") / "python"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONSAFEPATH=1 PYTHONPATH="{LIBRARIES}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def fake_peers(fake_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(fake_python))
