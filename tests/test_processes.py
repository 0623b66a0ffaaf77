"""Processes of tests start as forks, and have what new processes would have."""

import json
import multiprocessing
import os
import random
import sys
import time
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes import Worker

FORKS = multiprocessing.get_context("forkserver")


def write_state(path: Path, of_a_fork: Path | None = None) -> None:
    """Write what this process is like, and what one is like that it starts in a folder with a variable of its own."""
    state = {
        **{"environment": dict(os.environ), "folder": os.getcwd(), "words": sys.argv, "zone": time.tzname[0]},
        "drawn": [random.random(), np.random.random()],  # noqa: NPY002  # of the generator that all share
    }
    path.write_text(json.dumps(state))
    if of_a_fork is not None:
        os.environ["TSATTN_DATA"] = "of the fork"
        os.chdir(path.parents[1])
        process = FORKS.Process(target=write_state, args=(of_a_fork,))
        process.start()
        process.join()


@pytest.mark.slow
def test_a_fork_has_the_environment_of_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    monkeypatch.setenv("TSATTN_DATA", "of an earlier test")
    monkeypatch.setenv("TSATTN_EARLIER", "1")
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.chdir(folder)
    FORKS.set_forkserver_preload(["json"])
    forkserver.ensure_running()  # as a command does that is run in this process

    states: dict[str, Any] = {}
    for name in ("first", "second"):
        monkeypatch.delenv("TSATTN_EARLIER", raising=False)
        monkeypatch.setenv("TSATTN_DATA", name)
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        expected = dict(os.environ)
        files = folder / f"{name}.json", folder / f"{name}_fork.json"
        worker = Worker(["--version"], tmp_path, partial(write_state, *files))
        assert worker.end() == 0, worker.said()
        one, other = (json.loads(file.read_text()) for file in files)
        assert one["environment"] == expected
        assert other["environment"] == {**expected, "TSATTN_DATA": "of the fork"}
        assert (one["folder"], other["folder"]) == (str(folder), str(tmp_path))
        assert one["words"] == ["tsattn", "--version"]
        assert one["zone"] == other["zone"] == "JST"
        states |= {name: one, f"{name} fork": other}
    for draws in zip(*(state["drawn"] for state in states.values()), strict=True):
        assert len({*draws}) == len(states), "each draws numbers of its own"
