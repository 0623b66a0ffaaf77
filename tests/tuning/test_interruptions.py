"""Processes that are killed or interrupted in the middle of a trial, and disks that take nothing."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.processes import Worker, limit_files
from tests.tuning.cases import RATES, states, toy
from tsattn.tuning.study import FILE, reason, retries

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]


def test_killed_and_started_again(tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True)
    worker = made.start("--trials", "2")
    made.waiting(1, [worker])
    worker.kill()
    (tmp_path / "gate").unlink()
    (killed,) = made.trials()
    assert killed.state == TrialState.RUNNING  # nothing could be said any more
    again = made.start("--trials", "2")
    assert again.end() == 0, again.said()
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 2, "FAIL": 1}
    assert reason(trials[0]) == "its process died"
    (repeated,) = [trial for trial in trials if retries(trial) == [0]]
    assert repeated.params == killed.params
    assert made.summary()["trials"] == {"complete": 2, "fail": 1}


def test_two_share_a_study_and_one_is_killed(tmp_path: Path) -> None:
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
    assert [trial.params for trial in trials if retries(trial) == [lost.number]] == [lost.params]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_started_again(number: signal.Signals, tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True)
    worker = made.start("--trials", "2")
    made.waiting(1, [worker])
    os.kill(worker.process.pid, number)
    if number == signal.SIGTERM:  # Lightning ends a training at the end of a step
        (tmp_path / "gate").unlink()
    assert worker.end() == 130, worker.said()
    assert "interrupted: go on with `tsattn tune --config " in worker.said()
    assert "Traceback" not in worker.said()
    (tmp_path / "gate").unlink(missing_ok=True)
    (left,) = made.trials()
    assert (left.state, reason(left)) == (TrialState.FAIL, "interrupted")
    assert made.tune("--trials", "2") == 0
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 2, "FAIL": 1}
    assert retries(trials[1]) == [0]
    assert trials[1].params == left.params


def test_a_full_disk_loses_no_finished_trial(tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    assert made.tune("--trials", "1") == 0
    size, (done,) = (made.study / FILE).stat().st_size, made.trials()
    full = Worker(made.words("--trials", "40"), tmp_path, partial(limit_files, size // 2))
    assert full.end() == 2, full.said()
    assert "error: the study cannot be read or written: " in full.said()
    assert "Traceback" not in full.said()
    last = made.start("--trials", str(len(made.trials()) + 1))
    assert last.end() == 0, last.said()
    assert made.trials()[0] == done
    assert set(states(made.trials())) <= {"COMPLETE", "PRUNED", "FAIL"}


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    (tmp_path / "other" / FILE).mkdir(parents=True)
    assert made.tune("--trials", "1", "--study", str(tmp_path / "other")) == 2
    assert f"{FILE} cannot be reached: " in capsys.readouterr().err
