"""A training goes on with a shorter one of its suite to the result that it has alone."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.leaderboard.cases import SMOKE
from tests.leaderboard.test_suite import suite
from tsattn.errors import UserError
from tsattn.experiments import RunFolder
from tsattn.experiments.run_folder import EARLIER_SECONDS
from tsattn.leaderboard import entry_run
from tsattn.leaderboard.entry_run import Work, run_entry
from tsattn.leaderboard.longer_training import last_checkpoint
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.planner import Planner
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.training.checkpoint_io import load_checkpoint

VALUES = {"model.schedule": "constant", "model.warmup_steps": 2}
PATCHTST = {**SMOKE["predictors"]["patchtst"]["backbone"], "dropout": 0.1}


def planned(folder: Path, short: dict[str, Any] | None = None, **values: Any) -> dict[str, Entry]:
    """The entries of a training of three steps, and of one of six that goes on with it, with the second seed."""
    of_short = {"trainer.max_steps": 3, "trainer.val_check_interval": 3, **(short or {})}
    of_long = {"trainer.max_steps": 6, "trainer.val_check_interval": 6, **values}
    predictors = {
        "long": {"backbone": PATCHTST, "goes_on_with": "short", "values": {**VALUES, **of_long}},
        "short": {"backbone": PATCHTST, "values": {**VALUES, **of_short}},
    }
    attentions = {"mlr": SMOKE["attentions"]["mlr"]}
    made = suite(folder, horizons=[8], seeds=2, predictors=predictors, attentions=attentions)
    entries = Planner({}).plan(made).entries
    return {entry.predictor: entry for entry in entries if entry.seed == 2}


def ran(entry: Entry, folder: WorkingFolder) -> Record:
    assert entry.experiment is not None
    there = {key: str(folder.run(key)) for key in entry.members if RunFolder(folder.run(key)).metrics.exists()}
    folder.make()
    return run_entry(Work(entry.name, entry.key, entry.experiment.to_dict(), there, "", "", 1), folder)


@pytest.mark.slow
def test_it_comes_to_the_same_as_an_unbroken_one(tmp_path: Path) -> None:
    entries = planned(tmp_path)
    short, long = entries["short"], entries["long"]
    assert (short.members, long.members) == ((), (short.key,))
    both, alone = WorkingFolder(tmp_path / "both"), WorkingFolder(tmp_path / "alone")
    begun = ran(short, both)
    broken, unbroken = ran(long, both), ran(long, alone)
    assert [record.row["status"] for record in (begun, broken, unbroken)] == ["done"] * 3
    for name in ("mse", "mae", "validation_mse", "validation_mae", "key", "trained_windows"):
        assert broken.row[name] == unbroken.row[name], name
    assert broken.windows.equals(unbroken.windows)
    assert broken.row["mse"] != begun.row["mse"]
    assert broken.row["seconds"] > begun.row["seconds"]
    assert broken.row["own_seconds"] == pytest.approx(broken.row["seconds"] - begun.row["seconds"], abs=0.01)
    assert unbroken.row["own_seconds"] == unbroken.row["seconds"]
    noted = RunFolder(both.run(long.key)).noted(EARLIER_SECONDS)
    assert noted == RunFolder(both.run(short.key)).fit_seconds > 0
    assert long.experiment is not None
    there = {short.key: str(both.run(short.key))}
    assert last_checkpoint(long.experiment, there) == RunFolder(both.run(short.key)).last
    assert last_checkpoint(long.experiment, {short.key: str(alone.run(short.key))}) is None
    assert load_checkpoint(RunFolder(both.run(long.key)).last)["global_step"] == 6


def test_seconds_before_an_interruption_are_kept_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a mix of this run, which reads its folder, counts them as its own record does."""
    entry = planned(tmp_path)["short"]
    folder = WorkingFolder(tmp_path / "work")
    folder.make()
    place = RunFolder(folder.run(entry.key))
    place.checkpoints.mkdir(parents=True)
    place.last.touch()
    folder.note("begin", entry.key, name="first", kept=5.0)
    now = time.time()
    os.utime(place.last, (now + 10, now + 10))

    def finish(*given: object) -> None:
        place.note("fit_seconds", 3.0)

    def collect(work: Work, experiment: object, place: RunFolder, peak: int | None) -> Record:
        return Record.of({**entry_run.provenance(work), "status": "done", "seconds": place.fit_seconds})

    monkeypatch.setattr(entry_run, "_fit", finish)
    monkeypatch.setattr(entry_run, "_collected", collect)
    assert ran(entry, folder).row["seconds"] == pytest.approx(18, abs=2)
    assert RunFolder(tmp_path / "nowhere").fit_seconds == 0


def test_memory_is_that_of_the_process_that_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another one finds it finished; and of members that were fitted before, if these took more."""
    entries = planned(tmp_path)
    short, long = entries["short"], entries["long"]
    folder = WorkingFolder(tmp_path / "work")
    folder.make()
    held = [700]

    @contextlib.contextmanager
    def peak_memory(device: str) -> Iterator[Callable[[], int]]:
        yield lambda: held[0]

    def finish(work: Work, experiment: object, place: RunFolder) -> None:
        place.path.mkdir(parents=True)
        place.metrics.touch()

    def collect(work: Work, experiment: object, place: RunFolder, peak: int | None) -> Record:
        return Record.of({**entry_run.provenance(work), "status": "done", "peak_memory": peak})

    monkeypatch.setattr(entry_run, "peak_memory", peak_memory)
    monkeypatch.setattr(entry_run, "_fit", finish)
    monkeypatch.setattr(entry_run, "_collected", collect)
    assert ran(short, folder).row["peak_memory"] == 700
    held[0] = 300
    folder.forget(short.key)
    assert ran(short, folder).row["peak_memory"] == 700, "its record was lost"
    assert ran(long, folder).row["peak_memory"] == 700, "of what it goes on with"
    RunFolder(folder.run(long.key)).note("peak_memory", None)
    folder.forget(long.key)
    assert ran(long, folder).row["peak_memory"] is None


@pytest.mark.parametrize(
    ("short", "long", "message"),
    [
        ({"model.learning_rate": 0.02}, {}, "must be the same but for fewer trainer.max_steps"),
        ({"trainer.max_steps": 6}, {}, "must be the same but for fewer trainer.max_steps"),
        ({}, {"trainer.val_check_interval": 3}, "validated for the first time"),
        ({"model.schedule": "cosine"}, {"model.schedule": "cosine"}, "model.schedule constant, and no model.patience"),
        ({"model.patience": 3}, {"model.patience": 3}, "model.schedule constant, and no model.patience"),
    ],
    ids=["rate", "steps", "validation", "schedule", "patience"],
)
def test_another_training_is_refused(tmp_path: Path, short: dict[str, Any], long: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"long of the suite toy: long goes on with .*{message}"):
        planned(tmp_path, short, **long)
