"""Studies: who runs which trial, what happens to those of dead processes, and how often."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from tests.processes import wait_for
from tests.tuning.cases import SEARCH, states, toy
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.tuning import Budget, open_storage, open_study, read_search, run_study
from tsattn.tuning import storage as storage_module
from tsattn.tuning import study as study_module
from tsattn.tuning import worker as worker_module
from tsattn.tuning.search import Search
from tsattn.tuning.worker import GRACE, RETRIES, claimed, retry_dead_trials

UNREAD: Any = None  # experiment and data of trials that cost nothing
URLS = pytest.mark.parametrize("url", [None, "sqlite:///{folder}/study.db"])


@pytest.fixture
def search(tmp_path: Path) -> Search:
    return toy(tmp_path).search({"pruner": "none", "parameters": {"x": {"type": "float", "low": -1, "high": 1}}})


def opened(folder: Path, search: Search, url: str | None = None, **more: Any) -> tuple[optuna.Study, Any]:
    storage = open_storage(None if url is None else url.format(folder=folder), folder)
    config = {"data": {"init_args": {}}, "model": {"backbone": {"kind": "patchtst"}, "learning_rate": 0.1}}
    arguments: dict[str, Any] = {"identity": {"config": config}, "first": [], "seed": 1, **more}
    return open_study(storage, "one", search, **arguments), storage


def run(study: optuna.Study, storage: Any, search: Search, trials: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a study whose trials cost nothing: the square of what they take."""
    said: list[str] = []
    monkeypatch.setattr(study_module, "run_trial", lambda trial, base, taken, **_: [taken["x"] ** 2])
    run_study(
        study,
        storage,
        UNREAD,
        search=search,
        held=UNREAD,
        folds=0,
        budget=Budget(trials),
        say=said.append,
    )
    return said


def dead_process() -> dict[str, Any]:
    """What a trial says of a process on this machine that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return {"host": worker_module._host(), "pid": process.pid, "started": "1"}


@URLS
def test_a_study_has_exactly_its_trials_however_often_it_is_run(
    url: str | None, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trials in (3, 5, 5):
        run(*opened(tmp_path, search, url), search, trials, monkeypatch)
    study, _ = opened(tmp_path, search, url)
    assert states(study.trials) == {"COMPLETE": 5}


def test_going_on_draws_what_would_have_been_drawn(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name, budgets in (("whole", [14]), ("parts", [3, 12, 14])):
        (tmp_path / name).mkdir()
        for trials in budgets:
            run(*opened(tmp_path / name, search), search, trials, monkeypatch)
        taken.append([trial.params["x"] for trial in opened(tmp_path / name, search)[0].trials])
    assert taken[0] == taken[1]
    assert len(set(taken[0])) == 14


@pytest.mark.parametrize("has_drawn", [True, False])
def test_going_on_after_an_interruption_draws_what_would_have_been_drawn(
    has_drawn: bool, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name in ("whole", "interrupted"):
        (tmp_path / name).mkdir()
        study, storage = opened(tmp_path / name, search)
        if name == "interrupted":
            for _ in range(2):
                run(study, storage, search, 2, monkeypatch)
                trial = study.ask()
                if has_drawn:
                    trial.suggest_float("x", -1, 1)
                worker_module.give_back(study, storage, study.trials[trial.number], "interrupted", counts=False)
        run(study, storage, search, 14, monkeypatch)
        taken.append([trial.params["x"] for trial in study.trials if trial.state == TrialState.COMPLETE])
    assert taken[0] == taken[1]
    assert len(set(taken[0])) == 14


def test_progress_names_trial_best_and_what_is_left(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(*opened(tmp_path, search, first=[{"x": 0.5}, {"x": 0.1}]), search, 3, monkeypatch)
    assert said[0].startswith("trial   0  validation MSE 0.2500; best 0.2500 (trial 0); 1 of 3 done, ")
    assert said[1].startswith("trial   1  validation MSE 0.0100; best 0.0100 (trial 1); 2 of 3 done, ")
    assert said[2].endswith("3 of 3 done, 0 s left")


@URLS
def test_trials_of_dead_processes_are_failed_and_run_again(
    url: str | None, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, storage = opened(tmp_path, search, url)
    here, elsewhere = study.ask(), study.ask()
    for trial in (here, elsewhere):
        trial.suggest_float("x", -1, 1)
    here.set_user_attr("worker", dead_process())
    here.set_user_attr("alive", time.time())
    elsewhere.set_user_attr("worker", {"host": "another machine", "pid": os.getpid(), "started": "1"})
    elsewhere.set_user_attr("alive", time.time() - GRACE - 1)
    said = run(study, storage, search, 3, monkeypatch)
    assert said[:2] == [f"trial {number}: its process died, it is tried again" for number in (0, 1)]
    trials = study.trials
    assert states(trials) == {"COMPLETE": 3, "FAIL": 2}
    assert [trial.user_attrs["reason"] for trial in trials[:2]] == ["its process died"] * 2
    for old, new in zip(trials[:2], trials[2:4], strict=True):
        assert new.user_attrs["retry_of"] == old.number
        assert new.params == old.params


@URLS
def test_trials_of_living_processes_are_left_alone(url: str | None, search: Search, tmp_path: Path) -> None:
    study, storage = opened(tmp_path, search, url)
    here, elsewhere, fresh = (study.ask() for _ in range(3))
    elsewhere.set_user_attr("worker", {"host": "another machine", "pid": 1, "started": "1"})
    elsewhere.set_user_attr("alive", time.time() - GRACE / 2)
    with claimed(here):
        assert retry_dead_trials(study, storage) == []
    assert fresh.user_attrs == {}  # its process has not said who it is yet
    assert states(study.trials) == {"RUNNING": 3}


def test_a_later_process_with_the_number_of_a_dead_one_is_not_taken_for_it(search: Search, tmp_path: Path) -> None:
    study, storage = opened(tmp_path, search)
    trial = study.ask()
    trial.set_user_attr("worker", {"host": worker_module._host(), "pid": os.getpid(), "started": "an earlier time"})
    assert retry_dead_trials(study, storage) == [0]


def test_signs_of_life_are_given_while_a_trial_runs(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "BEAT", 0.02)
    study, _ = opened(tmp_path, search)
    trial, before = study.ask(), threading.active_count()
    with claimed(trial):
        first = study.trials[0].user_attrs["alive"]
        wait_for(lambda: study.trials[0].user_attrs["alive"] > first)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before, "nothing gives signs of life any more"


def test_a_trial_that_ends_every_process_is_given_up(search: Search, tmp_path: Path) -> None:
    study, storage = opened(tmp_path, search)
    for number in range(RETRIES + 1):
        trial = study.ask()
        assert trial.number == number
        trial.suggest_float("x", -1, 1)
        trial.set_user_attr("worker", dead_process())
        assert retry_dead_trials(study, storage) == [number]
    assert states(study.trials) == {"FAIL": RETRIES + 1}
    assert len({trial.params["x"] for trial in study.trials}) == 1


@URLS
def test_only_one_process_takes_over(url: str | None, search: Search, tmp_path: Path) -> None:
    study, _ = opened(tmp_path, search, url)
    study.ask().set_user_attr("worker", dead_process())
    both = [opened(tmp_path, search, url) for _ in range(2)]
    frozen = both[1][0].trials[0]
    assert retry_dead_trials(*both[0]) == [0]
    assert not worker_module.give_back(*both[1], frozen, "its process died")
    assert states(study.trials) == {"FAIL": 1, "WAITING": 1}


def test_the_later_of_two_last_trials_gives_way(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, storage = opened(tmp_path, search)
    other = study.ask()
    with claimed(other):
        trial = study.ask()
        assert study_module._is_surplus(study, trial, 1)
        assert not study_module._is_surplus(study, trial, 2)
        assert not study_module._is_surplus(study, other, 1)
        study.tell(trial, state=TrialState.FAIL)
    study.tell(other, 0.5)
    run(study, storage, search, 2, monkeypatch)
    assert states(study.trials) == {"COMPLETE": 2, "FAIL": 1}


@URLS
def test_the_later_of_two_last_trials_leaves_its_values_in_the_queue(
    url: str | None, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, storage = opened(tmp_path, search, url, first=[{"x": 0.1}, {"x": 0.2}, {"x": 0.3}])
    ask = study.ask
    others: list[optuna.Trial] = []

    def ask_beside_another() -> optuna.Trial:
        if not others:  # another process was a moment faster
            others.append(ask())
        return ask()

    def poll(_: float) -> None:
        study.tell(others[0], others[0].suggest_float("x", -1, 1))

    monkeypatch.setattr(study, "ask", ask_beside_another)
    monkeypatch.setattr(time, "sleep", poll)
    run(study, storage, search, 1, monkeypatch)
    assert states(study.trials) == {"COMPLETE": 1, "FAIL": 1, "WAITING": 2}
    assert study.trials[1].user_attrs["reason"] == "another process ran the last one"
    run(study, storage, search, 3, monkeypatch)
    done = [trial.params["x"] for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert sorted(done) == [0.1, 0.2, 0.3]


def test_a_process_taken_for_dead_changes_nothing_any_more(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, storage = opened(tmp_path, search)
    done = []

    def slow(trial: optuna.Trial, base: object, taken: dict[str, float], **_: object) -> list[float]:
        if not done:
            done.append(trial.number)
            frozen = study.trials[trial.number]
            assert worker_module.give_back(study, storage, frozen, "its process died")
        return [taken["x"] ** 2]

    monkeypatch.setattr(study_module, "run_trial", slow)
    run_study(study, storage, UNREAD, search=search, held=UNREAD, folds=0, budget=Budget(1), say=lambda _: None)
    assert states(study.trials) == {"FAIL": 1, "COMPLETE": 1}
    assert study.trials[0].params == study.trials[1].params


def test_a_storage_that_is_lost_says_so(search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from optuna.exceptions import StorageInternalError

    def lost(*_: object, **__: object) -> list[float]:
        raise StorageInternalError("an error") from OSError("server closed the connection")

    study, storage = opened(tmp_path, search)
    monkeypatch.setattr(study_module, "run_trial", lost)
    said = "the storage was lost in trial 0, which will be tried again: server closed the connection; start `tune` once"
    with pytest.raises(UserError, match=said):
        run_study(study, storage, UNREAD, search=search, held=UNREAD, folds=0, budget=Budget(1), say=lambda _: None)


def test_the_time_ends_a_study(search: Search, tmp_path: Path) -> None:
    study, storage = opened(tmp_path, search)
    budget = Budget(None, 0.0)
    run_study(study, storage, UNREAD, search=search, held=UNREAD, folds=0, budget=budget, say=lambda _: None)
    assert study.trials == []


def test_a_study_of_something_else_is_refused(search: Search, tmp_path: Path) -> None:
    model = {"learning_rate": 0.1, "backbone": {"kind": "patchtst"}}
    identity = {"config": {"data": {"init_args": {}}, "model": model, "trainer": {}}, "cv": 0}
    opened(tmp_path, search, identity=identity)
    for other, said in (
        ({**identity, "cv": 2}, "its cv is 0, but 2 is asked for"),
        (
            {**identity, "config": {**identity["config"], "model": {**model, "learning_rate": 0.2}}},
            "its config model.learning_rate is 0.1, but 0.2 is asked for",
        ),
        (
            {**identity, "config": {**identity["config"], "trainer": {"max_steps": 2}}},
            "its config trainer.max_steps is not there, but 2 is asked for",
        ),
        (
            {**identity, "config": {**identity["config"], "data": {"init_args": {"transform": "log"}}}},
            "its config data.init_args.transform is not there, but log is asked for",
        ),
    ):
        with pytest.raises(UserError, match=said):
            opened(tmp_path, search, identity=other)


def test_a_study_of_an_earlier_version_goes_on(search: Search, tmp_path: Path) -> None:
    """Options that have come since are as everything was before them."""
    content = Experiment.read(toy(tmp_path).folder / "config.yaml").to_dict()
    before = copy.deepcopy(content)
    del before["data"]["init_args"]["transform"], before["model"]["calibrate"]
    assert before != content
    study, _ = opened(tmp_path, search, identity={"config": before}, first=[{"x": 0.5}])
    again, _ = opened(tmp_path, search, identity={"config": content, "fingerprint": "f", "results": 1})
    assert [trial.number for trial in again.trials] == [trial.number for trial in study.trials] == [0]
    assert Experiment.of(before).to_dict() == content


def test_a_study_whose_maker_died_is_filled(search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "_PATIENCE", 0.1)
    optuna.create_study(study_name="one", storage=open_storage(None, tmp_path), directions=["minimize"])
    study, _ = opened(tmp_path, search, first=[{"x": 0.5}])
    assert [trial.system_attrs["fixed_params"] for trial in study.trials] == [{"x": 0.5}]
    assert opened(tmp_path, search, first=[{"x": 0.5}])[0].trials[0].number == 0


@URLS
def test_numbers_that_are_close_are_not_one(
    url: str | None, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = [{"x": 0.5}, {"x": 0.500001}, {"x": 0.500002}]
    study, storage = opened(tmp_path, search, url, first=close)
    assert [trial.system_attrs["fixed_params"] for trial in study.trials] == close
    # as if its maker had died over them
    monkeypatch.setattr(storage_module, "_READY", "another word")
    monkeypatch.setattr(storage_module, "_PATIENCE", 0.1)
    study, storage = opened(tmp_path, search, url, first=[*close, {"x": 0.500003}])
    run(study, storage, search, 4, monkeypatch)
    assert [trial.params["x"] for trial in study.trials] == [0.5, 0.500001, 0.500002, 0.500003]


def test_a_journal_that_was_cut_off_is_mended(search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*opened(tmp_path, search), search, 2, monkeypatch)
    with (tmp_path / "journal.log").open("a") as journal:
        journal.write('{"op_code":4,"worker_id":"a","stu')
    run(*opened(tmp_path, search), search, 3, monkeypatch)
    assert states(opened(tmp_path, search)[0].trials) == {"COMPLETE": 3}


def test_conditions_hold_for_drawn_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy(tmp_path)
    search = read_search(made.folder / "search.yaml")
    study, storage = opened(tmp_path, search)
    monkeypatch.setattr(study_module, "run_trial", lambda trial, base, taken, **_: [taken["model.learning_rate"]])
    budget = Budget(20)
    run_study(study, storage, UNREAD, search=search, held=UNREAD, folds=0, budget=budget, say=lambda _: None)
    kind, ranks = "model.backbone.attention.kind", "model.backbone.attention.ranks"
    assert {trial.params[kind] for trial in study.trials} == set(SEARCH["parameters"]["attention.kind"])
    assert all((ranks in trial.params) == (trial.params[kind] == "mlr") for trial in study.trials)
