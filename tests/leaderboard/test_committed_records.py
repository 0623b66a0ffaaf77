"""The records that were committed are those of the suites as they are: nothing of them is left to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tsattn.cli import main

RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("suite", "folder", "runs"),
    [
        ("ett", "leaderboard/ett", 840),
        ("exchange_rate", "leaderboard/exchange_rate", 256),
        ("national_illness", "leaderboard/national_illness", 256),
        ("equal_training", "equal_training", 50),
        ("earlier_windows", "earlier_windows", 26),
        ("accuracy", "accuracy", 122),
        ("peers", "peers/leaderboard", 33),
    ],
)
def test_nothing_is_left_to_run(
    suite: str, folder: str, runs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["benchmark", "--suite", suite, "--output", str(RESULTS / folder), "--folder", str(tmp_path), "--dry-run"]
    assert main(words) == 0
    assert capsys.readouterr().out == f"{suite}: {runs} runs: {runs} done\n"
