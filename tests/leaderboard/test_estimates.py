"""How long what is left is said to take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tsattn.experiments import Experiment
from tsattn.leaderboard.estimates import Estimates
from tsattn.leaderboard.plan import Entry, StudyEntry
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.tuning import Search

MEMBER = Entry("co2", 8, "patchtst", "swa", 1, key="member")
RIDGE = Entry("co2", 8, "ridge", "", None, key="ridge")
MIX = Entry("co2", 8, "patchtst+ridge", "swa", 1, key="mix", members=("member", "ridge"), is_mix=True)


def folder_of(place: Path, seconds: dict[Entry, float]) -> WorkingFolder:
    """One that knows entries which were done elsewhere."""
    folder = WorkingFolder(place)
    for entry, taken in seconds.items():
        folder.remember(Record.of({**entry.labels, "key": entry.key, "status": "done", "seconds": taken}))
    return folder


def study_of(dataset: str, attention: str, folds: int = 3) -> StudyEntry:
    experiment = Experiment.of({"data": "CO2DataModule", "model": {"backbone": "seasonal_naive"}})
    name = f"{dataset}-{attention}"
    return StudyEntry(name, dataset, "patchtst", attention, experiment, Search("", {}), 12, folds)


def content_of(*seconds: float | None, state: str = "complete") -> dict[str, Any]:
    return {"status": "done", "trials": [{"state": state, "seconds": one} for one in seconds]}


def seconds_of(place: Path, study: StudyEntry, done: Iterable[tuple[StudyEntry, dict[str, Any]]]) -> float | None:
    """What is expected of a study where an entry took 100 s."""
    return Estimates(folder_of(place, {MEMBER: 100.0}), [MEMBER], done).of_study(study, 8)


def test_a_mix_takes_no_time_for_the_members_that_are_entries_of_their_own(tmp_path: Path) -> None:
    done = {MEMBER: 100.0, RIDGE: 7.0, MIX: 110.0}
    estimates = Estimates(folder_of(tmp_path, done), done, [])
    assert estimates.of(replace(MEMBER, seed=2)) == 100.0
    assert estimates.of(replace(MIX, seed=2)) == 3.0
    assert estimates.of(replace(MIX, dataset="another")) == 3.0


def test_what_is_trained_takes_as_long_as_what_was_trained(tmp_path: Path) -> None:
    """Closed forms and mixes are many, and take no time beside it."""
    done = {MEMBER: 100.0, RIDGE: 7.0, MIX: 110.0, replace(MIX, seed=2, key="second"): 112.0}
    estimates = Estimates(folder_of(tmp_path, done), done, [])
    for dataset in ("co2", "another"):
        assert estimates.of(replace(MEMBER, dataset=dataset, predictor="new")) == 100.0
        assert estimates.of(replace(RIDGE, dataset=dataset, predictor="new")) == 7.0
        assert estimates.of(replace(MIX, dataset=dataset, predictor="new")) == 4.0
    assert estimates.of_study(replace(study_of("another", "mlr"), predictor="new"), 8) == 100.0 * 12 * 3


def test_a_study_takes_as_long_as_the_trials_of_the_studies_that_are_most_like_it(tmp_path: Path) -> None:
    study = study_of("co2", "mlr")
    assert seconds_of(tmp_path, study, []) == 100.0 * 12 * 3, "of entries, where there is no study"
    other = (study_of("ili", "mlr", folds=2), content_of(40.0, 60.0))
    assert seconds_of(tmp_path, study, [other]) == 25.0 * 12 * 3
    like = (study_of("co2", "swa"), content_of(30.0, 33.0, 36.0))
    assert seconds_of(tmp_path, study, [other, like]) == 11.0 * 12 * 3
    assert seconds_of(tmp_path, replace(study, predictor="another"), [other, like]) == 100.0 * 12 * 3


@pytest.mark.parametrize("content", [content_of(1.0, state="pruned"), content_of(None), {"status": "failed"}])
def test_trials_of_which_no_time_is_known_say_nothing(content: dict[str, Any], tmp_path: Path) -> None:
    study = study_of("co2", "mlr")
    assert seconds_of(tmp_path, study, [(study_of("co2", "swa"), content)]) == 100.0 * 12 * 3
