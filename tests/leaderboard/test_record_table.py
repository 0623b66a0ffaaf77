"""Records of others stand beside those of a suite, what failed stays, and two of one name are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.leaderboard.cases import bench, few
from tests.leaderboard.invented import record, refused
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.record_table import (
    TakenRecords,
    keep_beside,
    keep_failures,
    left_out,
    record_table,
    take_records,
)
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.suite_facts import SuiteFacts
from tsattn.leaderboard.working_folder import WorkingFolder

STUDY = "a study"
EXPERIMENT = Experiment.of({"data": "CO2DataModule", "model": {"backbone": "seasonal_naive"}})
PLANNED = Entry("ETTh1", 24, "patchtst", "mlr", 1, EXPERIMENT, "planned")
WAITING = Entry("ETTh1", 24, "patchtst", "btt", 1, studies=(STUDY,))


@pytest.fixture
def folder(tmp_path: Path) -> WorkingFolder:
    made = WorkingFolder(tmp_path / "work")
    made.make()
    return made


def sources(folder: Path, *keys: str) -> list[str]:
    for key in keys:
        Records.of([record("ETTh1", 24, "patchtst", "new", 1, windows=50, key=key)]).write(folder / key)
    return [str(folder / key) for key in keys]


def failed(attention: str, key: str, **changed: Any) -> Record:
    one = refused("ETTh1", 24, "patchtst", attention, "failed", "it diverged")
    return Record.of({**one.row, "key": key, **changed})


def table_of(folder: WorkingFolder, *entries: Entry, before: TakenRecords | None = None) -> Records:
    return record_table("mine", entries, folder, {}, SuiteFacts(), before or TakenRecords())


@pytest.mark.parametrize("at_once", [True, False])
def test_two_experiments_of_one_name_are_refused(at_once: bool, folder: WorkingFolder, tmp_path: Path) -> None:
    """Whichever comes first; nothing of them is left in the folder that would be in the way of one of them."""
    words = "two different experiments are called ETTh1, horizon 24, patchtst, new, seed 1"
    first, second = sources(tmp_path, "zzz", "aaa")
    for given in [[first, second]] if at_once else [[first], [second]]:
        taken = take_records(folder, tmp_path / "out", given)
        assert taken.new == len(given)
        if second in given:
            with pytest.raises(UserError, match=words):
                keep_beside(folder, "mine", [], taken)
        else:
            keep_beside(folder, "mine", [], taken)
    assert table_of(folder).frame[["suite", "key"]].to_numpy().tolist() == ([] if at_once else [["invented", "zzz"]])


def test_the_same_run_of_two_is_one(folder: WorkingFolder, tmp_path: Path) -> None:
    (source,) = sources(tmp_path, "key")
    for _ in range(2):
        keep_beside(folder, "mine", [], take_records(folder, tmp_path / "out", [source, source]))
    assert len(table_of(folder)) == 1


def test_what_two_processes_have_kept_is_refused_too(folder: WorkingFolder) -> None:
    for key in ("zzz", "aaa"):
        record("ETTh1", 24, "patchtst", "new", 1, windows=50, key=key).write(folder.path / "added" / f"{key}.parquet")
    with pytest.raises(UserError, match="two different experiments are called"):
        table_of(folder)


@pytest.mark.parametrize("is_own", [True, False])
def test_what_failed_elsewhere_stays_failed(is_own: bool, folder: WorkingFolder, tmp_path: Path) -> None:
    """In the suite's own table, written from another working folder, and in one that is added."""
    of_study = failed("btt", "", suite="mine", reason="no values were chosen")
    there = [failed("mlr", "planned", suite="mine"), of_study, failed("new", "of another")]
    Records.of(there).write(tmp_path / "out")
    taken = take_records(folder, tmp_path / ("out" if is_own else "nowhere"), [] if is_own else [str(tmp_path / "out")])
    keep_failures(folder, [PLANNED, WAITING], taken)
    keep_beside(folder, "mine", [PLANNED, WAITING], taken)
    found = table_of(folder, PLANNED, WAITING, before=taken).frame
    assert found[["suite", "attention", "status"]].to_numpy().tolist() == [
        ["invented", "new", "failed"],
        ["mine", "btt", "failed"],
        ["mine", "mlr", "failed"],
    ]


def test_what_failed_elsewhere_and_is_begun_or_done_here_has_not_failed(folder: WorkingFolder) -> None:
    begun = Entry("ETTh1", 24, "patchtst", "swa", 1, EXPERIMENT, "begun")
    folder.run("begun").mkdir()
    folder.keep(record("ETTh1", 24, "patchtst", "mlr", 1, windows=50, key="planned"))
    taken = TakenRecords(others=(failed("mlr", "planned"), failed("swa", "begun")))
    keep_failures(folder, [PLANNED, begun], taken)
    assert table_of(folder, PLANNED, begun).frame["status"].tolist() == ["done"]


def test_failures_that_are_taken_in_memory_are_known_and_not_written(folder: WorkingFolder) -> None:
    keep_failures(folder, [PLANNED], TakenRecords(own=(failed("mlr", "planned"),)), in_memory=True)
    known = folder.record("planned")
    assert known is not None
    assert known.row["status"] == "failed"
    assert WorkingFolder(folder.path).record("planned") is None


def test_others_keep_the_name_and_the_facts_of_their_suite(folder: WorkingFolder, tmp_path: Path) -> None:
    facts = SuiteFacts({"ETTh1": (24,)}, (4, 5), ("The data were chosen by hand.",))
    run = record("ETTh1", 24, "patchtst", "new", 4, windows=50)
    Records.of([run], {"invented": facts}).write(tmp_path / "other")
    keep_beside(folder, "mine", [PLANNED], take_records(folder, tmp_path / "out", [str(tmp_path / "other")]))
    table_of(folder, PLANNED).write(tmp_path / "out")
    # also where the records are taken to another machine, without the folder that was worked in
    elsewhere = WorkingFolder(tmp_path / "elsewhere")
    elsewhere.make()
    keep_beside(elsewhere, "mine", [PLANNED], take_records(elsewhere, tmp_path / "out", []))
    for place in (folder, elsewhere):
        table = table_of(place, PLANNED)
        assert table.frame["suite"].tolist() == ["invented"]
        assert table.suites == {"invented": facts, "mine": SuiteFacts()}
        assert not len(table.without_fresh_seeds())


def test_a_part_of_the_same_suite_becomes_part_of_it(folder: WorkingFolder, tmp_path: Path) -> None:
    run = record("ETTh1", 24, "patchtst", "mlr", 1, windows=50, key="planned")
    more = record("ETTh1", 24, "persistence", "", None, windows=50)
    Records.of([Record({**one.row, "suite": "mine"}, one.windows) for one in (run, more)]).write(tmp_path / "shard")
    assert keep_beside(folder, "mine", [PLANNED], take_records(folder, Path("none"), [str(tmp_path / "shard")])) == []
    found = table_of(folder, PLANNED)
    assert found.frame[["suite", "predictor"]].to_numpy().tolist() == [["mine", "patchtst"], ["mine", "persistence"]]
    assert list(found.suites) == ["mine"]


def test_others_by_whose_name_another_experiment_is_planned_are_left_out(folder: WorkingFolder, tmp_path: Path) -> None:
    other = record("ETTh1", 24, "patchtst", "mlr", 1, windows=50, key="another")
    waits = record("ETTh1", 24, "patchtst", "btt", 1, windows=50, key="perhaps")
    Records.of([other, waits]).write(tmp_path / "other")
    taken = take_records(folder, tmp_path / "out", [str(tmp_path / "other")])
    out = keep_beside(folder, "mine", [PLANNED, WAITING], taken)
    assert [one.row["key"] for one in out] == ["another"]
    assert not len(table_of(folder, PLANNED, WAITING))


def test_what_a_suite_plans_no_more_is_left_out_of_its_table(folder: WorkingFolder, tmp_path: Path) -> None:
    runs = [
        record("ETTh1", 24, "patchtst", attention, 1, windows=50, key=key, suite=suite)
        for attention, key, suite in (
            ("mlr", "planned", "mine"),
            ("mlr", "before", "mine"),
            ("gone", "gone", "mine"),
            ("btt", "perhaps", "mine"),
            ("new", "of another", "other"),
        )
    ]
    taken = TakenRecords(own=tuple(runs))
    out = left_out("mine", [PLANNED, WAITING], folder, taken)
    assert [one.row["key"] for one in out] == ["before", "gone"]


@pytest.mark.slow
def test_failures_stay_in_the_records_and_what_is_left_out_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ridge = {"ridge": "ridge", "broken": "tests.leaderboard.cases.Broken"}
    made = bench(tmp_path / "made", **{**few(), "predictors": ridge})
    assert made.run() == 0
    expected = {"ridge": "done", "broken": "failed"}
    clone = bench(tmp_path / "clone", **{**few(), "predictors": ridge})
    made.out.rename(clone.out)  # the records, without the folder that was worked in
    assert clone.run("--predictor", "ridge") == 0
    assert clone.records().frame.set_index("predictor")["status"].to_dict() == expected
    shard = bench(tmp_path / "shard", **{**few(), "predictors": ridge})
    assert shard.run("--predictor", "ridge", "--add", str(clone.out)) == 0
    assert shard.records().frame.set_index("predictor")["status"].to_dict() == expected
    assert shard.counts("begin").total() == 0
    capsys.readouterr()
    changed = {**ridge, "ridge": {"backbone": {"kind": "ridge", "alpha": 3.0}}}
    clone.write(**{**few(), "predictors": changed})
    assert clone.run("--dry-run") == 0
    assert "1 record of an earlier version of the suite smoke left out" in capsys.readouterr().out
    again = bench(tmp_path / "again", **{**few(), "predictors": changed})
    assert again.run("--dry-run", "--add", str(clone.out)) == 0
    said = capsys.readouterr().out
    assert (
        "1 record of others left out, as the suite smoke has another experiment of the same name: co2 8: ridge" in said
    )
    assert "broken" in said
