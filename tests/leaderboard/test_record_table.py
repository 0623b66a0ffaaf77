"""Records of others stand beside those of a suite, and two of one name are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaderboard.invented import record
from tsattn.errors import UserError
from tsattn.leaderboard.record_table import add_records, keep_beside, record_table
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite_facts import SuiteFacts
from tsattn.leaderboard.working_folder import WorkingFolder


def sources(folder: Path, *keys: str) -> list[str]:
    for key in keys:
        Records.of([record("ETTh1", 24, "patchtst", "new", 1, windows=50, key=key)]).write(folder / key)
    return [str(folder / key) for key in keys]


@pytest.mark.parametrize("at_once", [True, False])
def test_two_experiments_of_one_name_are_refused(at_once: bool, tmp_path: Path) -> None:
    """Whichever comes first; nothing of them is left in the folder that would be in the way of one of them."""
    folder = WorkingFolder(tmp_path / "work")
    folder.make()
    words = "two different experiments are called ETTh1, horizon 24, patchtst, new, seed 1"
    first, second = sources(tmp_path, "zzz", "aaa")
    for given in [[first, second]] if at_once else [[first], [second]]:
        new, others = add_records(folder, tmp_path / "out", given)
        assert new == len(given)
        if second in given:
            with pytest.raises(UserError, match=words):
                keep_beside(folder, [], others)
        else:
            keep_beside(folder, [], others)
    table = record_table("mine", [], folder, {}, SuiteFacts())
    assert table.frame[["suite", "key"]].to_numpy().tolist() == ([] if at_once else [["mine", "zzz"]])


def test_the_same_run_of_two_is_one(tmp_path: Path) -> None:
    folder = WorkingFolder(tmp_path / "work")
    folder.make()
    (source,) = sources(tmp_path, "key")
    for _ in range(2):
        _, others = add_records(folder, tmp_path / "out", [source, source])
        keep_beside(folder, [], others)
    assert len(record_table("mine", [], folder, {}, SuiteFacts())) == 1


def test_what_two_processes_have_kept_is_refused_too(tmp_path: Path) -> None:
    folder = WorkingFolder(tmp_path / "work")
    folder.make()
    for key in ("zzz", "aaa"):
        record("ETTh1", 24, "patchtst", "new", 1, windows=50, key=key).write(
            tmp_path / "work" / "added" / f"{key}.parquet"
        )
    with pytest.raises(UserError, match="two different experiments are called"):
        record_table("mine", [], folder, {}, SuiteFacts())
