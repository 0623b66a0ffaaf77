"""Studies: how many trials there are, what they draw, and what happens to those of dead processes."""

import itertools
import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.trial import TrialState
from sqlalchemy import Engine, event

from tests.cli.toy_run import interrupted
from tests.processes import Worker, limit_files
from tests.tuning.cases import OLD_SIGNS, RATES, states, toy
from tsattn.errors import UserError
from tsattn.tuning import Search, open_storage, open_study, run_study
from tsattn.tuning import study as study_module
from tsattn.tuning.study import DIED, FILE, RETRIES, StudyStorage, reason, retries


@pytest.fixture
def search(tmp_path: Path) -> Search:
    return toy(tmp_path).search({"pruner": "none", "parameters": {"x": {"type": "float", "low": -1, "high": 1}}})


def opened(folder: Path, search: Search, **more: Any) -> tuple[optuna.Study, StudyStorage]:
    storage = open_storage(None, folder)
    arguments: dict[str, Any] = {"identity": {"config": {}}, "first": [], "seed": 1, **more}
    return open_study(storage, "one", search, **arguments), storage


def square(trial: optuna.Trial) -> list[float]:
    return [trial.suggest_float("x", -1, 1) ** 2]


def run(study: optuna.Study, storage: StudyStorage, trials: int | None, objective: Any = square) -> list[str]:
    said: list[str] = []
    run_study(study, storage, objective, trials=trials, say=said.append)
    return said


def values(study: optuna.Study) -> list[float]:
    return [trial.params["x"] for trial in study.trials if trial.state == TrialState.COMPLETE]


def begun_and_dead(study: optuna.Study, storage: StudyStorage, draws: bool = True) -> optuna.Trial:
    """A running trial whose process has given a sign of life, long ago."""
    trial = study.ask()
    if draws:
        trial.suggest_float("x", -1, 1)
    storage.record_heartbeat(trial._trial_id)
    with storage.engine.begin() as connection:
        connection.exec_driver_sql(OLD_SIGNS)
    return trial


def test_a_study_has_exactly_its_trials_however_often_it_is_run(search: Search, tmp_path: Path) -> None:
    folder = tmp_path / "50% of {it}? #1 @home"
    folder.mkdir()
    run_study(*opened(folder, search), square, trials=None, seconds=0.0, say=lambda _: None)
    assert opened(folder, search)[0].trials == [], "the time ends a study, too"
    for trials in (3, 5, 5):
        run(*opened(folder, search), trials)
    assert states(opened(folder, search)[0].trials) == {"COMPLETE": 5}
    assert [path.name for path in folder.iterdir()] == ["study.db"]


def test_going_on_draws_what_would_have_been_drawn(search: Search, tmp_path: Path) -> None:
    """Whether a study is run in parts, its process is interrupted, or dies before or after it has drawn."""
    (tmp_path / "whole").mkdir()
    whole, storage = opened(tmp_path / "whole", search)
    run(whole, storage, 13)
    for trials in (3, 11, 12, 13):
        study, storage = opened(tmp_path, search)
        if trials < 12:
            begun_and_dead(study, storage, draws=trials == 3)
        elif trials == 12:
            with pytest.raises(KeyboardInterrupt):
                run(study, storage, trials, interrupted)
        run(study, storage, trials)
    assert states(study.trials) == {"COMPLETE": 13, "FAIL": 3}
    assert values(study) == values(whole)
    assert len(set(values(study))) == 13


def test_progress_names_trial_best_and_what_is_left(search: Search, tmp_path: Path) -> None:
    said = run(*opened(tmp_path, search, first=[{"x": 0.5}, {"x": 0.1}]), 3)
    assert said[0].startswith("trial   0  validation MSE 0.2500; best 0.2500 (trial 0); 1 of 3 done, ")
    assert said[1].startswith("trial   1  validation MSE 0.0100; best 0.0100 (trial 1); 2 of 3 done, ")
    assert said[2].endswith("3 of 3 done, 0 s left")


def test_trials_of_dead_processes_are_failed_and_run_again(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "GRACE", 1)
    study, storage = opened(tmp_path, search)
    begun_and_dead(study, storage)
    study.ask().suggest_float("x", -1, 1)  # its process was killed before its first sign of life
    said = run(study, storage, 3)
    assert [line for line in said if "died" in line] == [
        f"trial {n}: its process died; trying it again" for n in (0, 1)
    ]
    trials = study.trials
    assert states(trials) == {"COMPLETE": 3, "FAIL": 2}
    assert [study_module.reason(trial) for trial in trials[:2]] == [DIED] * 2
    for old in trials[:2]:
        (new,) = [trial for trial in trials if retries(trial) == [old.number]]
        assert new.params == old.params
        assert "reason" not in new.user_attrs


def test_trials_of_living_processes_are_left_alone(search: Search, tmp_path: Path) -> None:
    study, storage = opened(tmp_path, search)
    storage.record_heartbeat(study.ask()._trial_id)
    run(study, storage, 0)
    assert states(study.trials) == {"RUNNING": 1}


def test_a_sign_of_life_that_cannot_be_written_ends_nothing(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise StorageInternalError

    monkeypatch.setattr(RDBStorage, "record_heartbeat", lost)
    study, storage = opened(tmp_path, search)
    run(study, storage, 1)
    assert states(study.trials) == {"COMPLETE": 1}


def test_a_trial_that_ends_every_process_is_given_up(search: Search, tmp_path: Path) -> None:
    study, storage = opened(tmp_path, search)
    for number in range(RETRIES + 1):
        assert begun_and_dead(study, storage).number == number
        fail_stale_trials(study)
        assert study_module._queue_again(study) == ([number] if number < RETRIES else [])
    assert states(study.trials) == {"FAIL": RETRIES + 1}
    assert len({trial.params["x"] for trial in study.trials}) == 1


def test_only_one_process_takes_over(search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, storage = opened(tmp_path, search)
    begun_and_dead(study, storage)
    fail_stale_trials(study)
    there = study.get_trials()
    study_module._queue_again(study)
    with monkeypatch.context() as patched:  # as another process sees it, which looked before that
        patched.setattr(study, "get_trials", lambda **_: there)
        study_module._queue_again(study)
    assert states(study.trials) == {"FAIL": 1, "WAITING": 2}
    run(study, storage, 3)
    assert states(study.trials) == {"COMPLETE": 3, "FAIL": 2}
    assert study.trials[2].user_attrs["reason"] == "another process repeats the same one"
    assert len({trial.params["x"] for trial in study.trials if trial.params}) == 3


def test_the_later_of_two_last_trials_leaves_its_values(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [{"x": 0.1}, {"x": 0.2}, {"x": 0.3}]
    study, storage = opened(tmp_path, search, first=first)
    other, _ = opened(tmp_path, search, first=first)
    ask = study.ask
    others: list[optuna.Trial] = []

    def ask_beside_another() -> optuna.Trial:
        if not others:  # another process was a moment faster
            others.append(other.ask())
        return ask()

    def poll(_: float) -> None:
        other.tell(others[0], square(others[0]))

    with monkeypatch.context() as patched:
        patched.setattr(study, "ask", ask_beside_another)
        patched.setattr(time, "sleep", poll)
        run(study, storage, 1)
    assert states(study.trials) == {"COMPLETE": 1, "FAIL": 1}
    assert study.trials[1].user_attrs["reason"] == "another process ran the last one"
    run(study, storage, 3)
    assert sorted(values(study)) == [0.1, 0.2, 0.3]


def test_a_process_taken_for_dead_changes_nothing_any_more(search: Search, tmp_path: Path) -> None:
    study, storage = opened(tmp_path, search)

    def slow(trial: optuna.Trial) -> list[float]:
        error = square(trial)
        if trial.number == 0:
            study.tell(0, state=TrialState.FAIL)
            with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
                trial.set_user_attr("error", error)
        if trial.number == 1:
            study.tell(1, state=TrialState.FAIL)
            trial.set_user_attr("error", error)
        return error

    said = run(study, storage, 1, slow)
    assert said[0].startswith("trial   0  fail: its process died")
    assert states(study.trials) == {"FAIL": 2, "COMPLETE": 1}
    assert len({trial.params["x"] for trial in study.trials}) == 1


def test_a_study_of_something_else_is_refused(search: Search, tmp_path: Path) -> None:
    model = {"learning_rate": 0.1, "backbone": {"kind": "patchtst"}}
    identity = {"config": {"model": model, "trainer": {}}, "cv": 0}
    opened(tmp_path, search, identity=identity)
    for other, said in (
        ({"cv": 2}, "its cv is 0, not 2"),
        ({"config": {"model": {**model, "learning_rate": 0.2}}}, "its config.model.learning_rate is 0.1, but 0.2 is"),
        ({"config": {"model": model, "trainer": {"max_steps": 2}}}, "its config.trainer.max_steps is None, but 2 is"),
    ):
        with pytest.raises(UserError, match=f"the study one cannot be resumed: {said}.*; name a new --study"):
            opened(tmp_path, search, identity={**identity, **other})


def test_a_study_whose_maker_died_is_described(search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "_PATIENCE", 0.1)
    optuna.create_study(study_name="one", storage=open_storage(None, tmp_path), directions=["minimize"])
    study, storage = opened(tmp_path, search, first=[{"x": 0.5}])
    run(study, storage, 1)
    assert values(study) == [0.5]
    assert study.user_attrs["identity"] == {"config": {}}


def test_numbers_that_are_close_are_not_one(search: Search, tmp_path: Path) -> None:
    close = [0.5, 0.500001, 0.500002, 0.500003]
    study, storage = opened(tmp_path, search, first=[{"x": x} for x in close])
    run(study, storage, 4)
    assert values(study) == close


FIRST = [{"x": place / 10} for place in range(8)]
FORK = multiprocessing.get_context("fork")


def part(folder: Path, search: Search, killed_at: int = 0) -> None:
    """What a process does of a study of eight trials; it may be killed at one of its statements to the database."""
    count = itertools.count(1)

    def kill(*_: object) -> None:
        if next(count) == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", kill)
    event.listen(Engine, "commit", kill)
    run(*opened(folder, search, first=FIRST), len(FIRST))


def assert_whole(study: optuna.Study) -> None:
    assert sorted(values(study)) == [one["x"] for one in FIRST]
    repeated = [retries(trial)[-1] for trial in study.trials if retries(trial) and trial.state != TrialState.FAIL]
    assert len(repeated) == len(set(repeated))
    assert set(states(study.trials)) <= {"COMPLETE", "FAIL"}


def test_two_processes_share_a_file(search: Search, tmp_path: Path) -> None:
    workers = [FORK.Process(target=part, args=(tmp_path, search)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert_whole(opened(tmp_path, search)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "beside"), [(1, False), (62, False), (101, False), (40, True), (75, True)])
def test_killed_at_any_statement_and_run_again(
    statement: int, beside: bool, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "GRACE", 2)
    monkeypatch.setattr(study_module, "BEAT", 1)
    monkeypatch.setattr(study_module, "_PATIENCE", 1.0)
    workers = [FORK.Process(target=part, args=(tmp_path, search, statement))]
    workers += [FORK.Process(target=part, args=(tmp_path, search))] if beside else []
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == ([-signal.SIGKILL, 0] if beside else [-signal.SIGKILL])
    before = {} if statement < 60 and not beside else {t.number: t for t in opened(tmp_path, search)[0].trials}
    if before and not beside:
        with opened(tmp_path, search)[1].engine.begin() as connection:
            connection.exec_driver_sql(OLD_SIGNS)  # so that nobody waits until they are
    part(tmp_path, search)
    study, _ = opened(tmp_path, search)
    assert all(study.trials[n] == trial for n, trial in before.items() if trial.state == TrialState.COMPLETE)
    assert_whole(study)


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True, backbone="dlinear")
    worker = made.start("--trials", "2")
    made.waiting(1, [worker])
    worker.kill()
    (tmp_path / "gate").unlink()
    made.signs_of_life_are_old()
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


@pytest.mark.slow
def test_two_share_a_study_and_one_is_killed(tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True, backbone="dlinear")
    one, other = workers = [made.start("--trials", "4") for _ in range(2)]
    assert len(made.waiting(2, workers)) == 2
    one.kill()
    made.signs_of_life_are_old(living=1)
    (tmp_path / "gate").unlink()
    assert other.end() == 0, other.said()
    assert "its process died; trying it again" in other.said()
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 4, "FAIL": 1}
    (lost,) = [trial for trial in trials if trial.state == TrialState.FAIL]
    assert [trial.params for trial in trials if retries(trial) == [lost.number]] == [lost.params]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_started_again(number: signal.Signals, tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True, backbone="dlinear")
    worker = made.start("--trials", "2")
    made.waiting(1, [worker])
    os.kill(worker.process.pid, number)
    if number == signal.SIGTERM:  # Lightning ends a training at the end of a step
        (tmp_path / "gate").unlink()
    assert worker.end() == 130, worker.said()
    assert "interrupted: resume with `tsattn tune --config " in worker.said()
    assert "Traceback" not in worker.said()
    (tmp_path / "gate").unlink(missing_ok=True)
    (left,) = made.trials()
    assert (left.state, reason(left)) == (TrialState.FAIL, "interrupted")
    assert made.tune("--trials", "2") == 0
    trials = made.trials()
    assert states(trials) == {"COMPLETE": 2, "FAIL": 1}
    assert retries(trials[1]) == [0]
    assert trials[1].params == left.params


@pytest.mark.slow
def test_a_full_disk_loses_no_finished_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    assert made.tune("--trials", "1") == 0
    size, (done,) = (made.study / FILE).stat().st_size, made.trials()
    full = Worker(made.words("--trials", "40"), tmp_path, partial(limit_files, size // 2))
    assert full.end() == 2, full.said()
    assert "error: the study cannot be read or written: " in full.said()
    assert "Traceback" not in full.said()
    made.signs_of_life_are_old()
    monkeypatch.setattr(study_module, "GRACE", 1)  # of a trial whose first sign of life found no place
    assert made.tune("--trials", str(len(made.trials()) + 1)) == 0
    assert made.trials()[0] == done
    assert set(states(made.trials())) <= {"COMPLETE", "PRUNED", "FAIL"}


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    (tmp_path / "other" / FILE).mkdir(parents=True)
    assert made.tune("--trials", "1", "--study", str(tmp_path / "other")) == 2
    assert f"{FILE} cannot be reached: " in capsys.readouterr().err
