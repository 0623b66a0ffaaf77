"""What studies have chosen: taken once, from where it is known, and made again where it failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tsattn.leaderboard.chosen_values import ChosenValues
from tsattn.leaderboard.working_folder import WorkingFolder

GOOD = {"status": "done", "values": {"model.learning_rate": 0.001}}
BAD = {"status": "failed", "reason": "it ran out of memory"}


@pytest.fixture
def folder(tmp_path: Path) -> WorkingFolder:
    made = WorkingFolder(tmp_path / "work")
    made.make()
    return made


def test_a_study_is_taken_when_it_has_ended(folder: WorkingFolder, tmp_path: Path) -> None:
    values = ChosenValues(folder, tmp_path)
    values.read()
    assert not values.take(["first", "second"])
    folder.keep_selected("first", GOOD)
    assert values.take(["first", "second"])
    assert not values.take(["first", "second"]), "once"
    folder.keep_selected("second", BAD)
    assert values.take(["first", "second"])
    assert values.chosen == {"first": GOOD["values"]}
    assert values.failed == {"second": "no values were chosen: it ran out of memory"}
    assert values.ended("first")
    assert values.ended("second")


def test_what_is_written_beside_the_records_is_known_elsewhere(folder: WorkingFolder, tmp_path: Path) -> None:
    folder.keep_selected("first", GOOD)
    folder.keep_selected("second", BAD)
    ChosenValues(folder, tmp_path).write(["second", "first", "third"])
    assert [*json.loads((tmp_path / "selected.json").read_text())] == ["first", "second"]
    elsewhere = WorkingFolder(tmp_path / "elsewhere")
    elsewhere.make()
    values = ChosenValues(elsewhere, tmp_path)
    values.read()
    assert values.known("first") == GOOD
    assert values.known("second") is None, "what failed there is made again"
    assert values.take(["first", "second"])
    assert not values.failed


def test_what_failed_is_forgotten_unless_another_process_is_at_it(folder: WorkingFolder, tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder.keep_selected(name, BAD)
    values = ChosenValues(folder, tmp_path)
    values.take(["first", "second"])
    with folder.held("second"):
        values.retry()
    assert [*values.failed] == ["second"]
    assert folder.selected("first") is None
    assert folder.selected("second") == BAD
