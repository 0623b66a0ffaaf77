"""The records that were committed are those of the suites as they are: their keys are found again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tsattn.cli import main

RECORDS = ROOT / "benchmarks" / "results" / "leaderboard"


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(("suite", "entries"), [("ett", 840), ("exchange_rate", 256), ("national_illness", 256)])
def test_nothing_of_a_finished_suite_is_to_be_run(
    suite: str, entries: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RECORDS / suite, tmp_path / "out")
    words = ["benchmark", "--suite", suite, "--dry-run", "--output", str(tmp_path / "out")]
    assert main([*words, "--folder", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{suite}: {entries} entries: {entries} done"


def test_what_is_committed_is_small() -> None:
    sizes = [file.stat().st_size for file in RECORDS.glob("*/*.parquet")]
    assert 0 < sum(sizes) < 30e6
