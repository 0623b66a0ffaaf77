"""The records that were committed are those of the suites as they are: nothing of them is left to run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tsattn.cli import main
from tsattn.leaderboard.records import Records

RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("suite", "folder", "runs", "part"),  # of a suite of many runs: all arms at one horizon and seed
    [
        ("ett", "leaderboard/ett", 840, "--horizon 96 --seeds 1"),
        ("exchange_rate", "leaderboard/exchange_rate", 256, "--horizon 96 --seeds 1"),
        ("national_illness", "leaderboard/national_illness", 256, "--horizon 24 --seeds 1"),
        ("equal_training", "equal_training", 50, ""),
        ("earlier_windows", "earlier_windows", 26, ""),
        ("accuracy", "accuracy", 122, "--seeds 1"),
        ("peers", "peers/leaderboard", 33, ""),
    ],
)
def test_nothing_is_left_to_run(
    suite: str, folder: str, runs: int, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["benchmark", "--suite", suite, "--output", str(RESULTS / folder), "--folder", str(tmp_path), "--dry-run"]
    assert len(Records.read(RESULTS / folder)) == runs
    assert main([*words, *part.split()]) == 0
    said = re.fullmatch(rf"{suite}: (\d+) runs: \1 done\n", capsys.readouterr().out)
    assert said
    assert part or int(said[1]) == runs
