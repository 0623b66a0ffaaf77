"""Processes that are killed or interrupted in the middle of a trial."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.processes import Worker
from tests.tuning.cases import RATES, states, toy
from tsattn.tuning.storage import JOURNAL, open_storage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]


def test_killed_and_started_again(tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True)
    worker = made.start("--trials", "2")
    made.waiting(1, [worker])
    worker.kill()
    (tmp_path / "gate").unlink()
    (killed,) = made.trials()
    assert killed.state == TrialState.RUNNING  # nothing could be said any more
    assert made.tune("--trials", "2") == 0
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 2, "FAIL": 1}
    assert trials[0].user_attrs["reason"] == "its process died"
    assert trials[1].user_attrs["retry_of"] == 0
    assert trials[1].params == killed.params
    assert made.summary()["trials"] == {"complete": 2, "fail": 1}


def test_two_share_a_journal_and_one_is_killed(tmp_path: Path) -> None:
    made = toy(tmp_path, gate=True)
    one, other = workers = [made.start("--trials", "4") for _ in range(2)]
    assert len(made.waiting(2, workers)) == 2
    one.kill()
    (tmp_path / "gate").unlink()
    assert other.end() == 0, other.said()
    assert "its process died, it is tried again" in other.said()
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 4, "FAIL": 1}
    (lost,) = [trial for trial in trials if trial.state == TrialState.FAIL]
    assert [t.params for t in trials if t.user_attrs.get("retry_of") == lost.number] == [lost.params]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_started_again(number: signal.Signals, tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True)
    worker = made.start("--trials", "2")
    made.waiting(1, [worker])
    assert worker.process.pid is not None
    os.kill(worker.process.pid, number)
    if number == signal.SIGTERM:  # Lightning ends a training at the end of a step
        (tmp_path / "gate").unlink()
    assert worker.end() == 130, worker.said()
    assert "interrupted: go on with `tsattn tune --config " in worker.said()
    assert "Traceback" not in worker.said()
    (tmp_path / "gate").unlink(missing_ok=True)
    left = made.trials()
    assert states(left) == {"WAITING": 1, "FAIL": 1}
    assert left[0].user_attrs["reason"] == "interrupted"
    assert made.tune("--trials", "2") == 0
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 2, "FAIL": 1}
    assert trials[1].user_attrs["retry_of"] == 0
    assert trials[1].params == left[0].params


def killed_while_writing(folder: Path, number: int) -> None:
    """From now on this process works in a folder, and is killed as it writes there so often: it then holds a lock."""
    os.chdir(folder)
    sync, calls = os.fsync, itertools.count(1)

    def killed(handle: int) -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(handle)

    os.fsync = killed


@pytest.mark.parametrize("number", [1, 5], ids=["before the first trial", "as a trial begins"])
def test_killed_while_it_writes_and_started_again(number: int, tmp_path: Path) -> None:
    words = toy(tmp_path, RATES, backbone="dlinear").words("--trials", "1", "--study", "study")
    killed = Worker(words, tmp_path, partial(killed_while_writing, tmp_path, number))
    assert killed.end() == -signal.SIGKILL, killed.said()
    again = Worker(words, tmp_path, partial(os.chdir, tmp_path))
    assert again.end() == 0, again.said()
    assert "1 of 1 done" in again.said()


def test_one_is_killed_while_it_writes_and_the_other_goes_on(tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True)
    words = made.words("--trials", "2", "--study", "study")
    other = Worker(words, tmp_path, partial(os.chdir, tmp_path))
    made.waiting(1, [other])
    killed = Worker(words, tmp_path, partial(killed_while_writing, tmp_path, 2))
    assert killed.end() == -signal.SIGKILL, killed.said()
    (tmp_path / "gate").unlink()
    assert other.end() == 0, other.said()
    assert states(made.trials())["COMPLETE"] == 2


def test_a_link_that_dangles_is_no_lock(tmp_path: Path) -> None:
    """As a worker that was killed in a relative folder left it."""
    (tmp_path / JOURNAL).touch()
    (tmp_path / f"{JOURNAL}.lock").symlink_to("study/journal.log")
    opened = multiprocessing.get_context("fork").Process(target=open_storage, args=(None, tmp_path))
    opened.start()
    opened.join(60)
    opened.kill()
    opened.join()
    assert opened.exitcode == 0
