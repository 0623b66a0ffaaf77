"""The records that were committed are those of the suites as they are: nothing of them is left to run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tsattn.cli import main
from tsattn.leaderboard.records import Records

RESULTS = ROOT / "benchmarks" / "results"
# of a suite of many runs: all arms at one horizon and seed, and one arm at all of them
PARTS = (["--horizon", "{}", "--seeds", "1"], ["--predictor", "ridge"])


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("suite", "folder", "runs", "horizon"),
    [
        ("ett", "leaderboard/ett", 840, 96),
        ("exchange_rate", "leaderboard/exchange_rate", 256, 96),
        ("national_illness", "leaderboard/national_illness", 256, 24),
        ("equal_training", "equal_training", 50, None),
        ("earlier_windows", "earlier_windows", 26, None),
        ("accuracy", "accuracy", 122, None),
        ("peers", "peers/leaderboard", 33, None),
    ],
)
def test_nothing_is_left_to_run(
    suite: str, folder: str, runs: int, horizon: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["benchmark", "--suite", suite, "--output", str(RESULTS / folder), "--folder", str(tmp_path), "--dry-run"]
    assert len(Records.read(RESULTS / folder)) == runs
    for part in PARTS if horizon else ([],):
        assert main([*words, *(word.format(horizon) for word in part)]) == 0
        said = re.fullmatch(rf"{suite}: (\d+) runs: \1 done\n", capsys.readouterr().out)
        assert said, part
        assert part or int(said[1]) == runs
