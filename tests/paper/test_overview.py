"""One report over all experiments says of each claim what its own report says, whichever are there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from benchmarks.paper import overview
from benchmarks.paper.claims import Claim, PaperReport
from benchmarks.paper.clock import clock_seconds
from benchmarks.paper.outcomes import write_outcome

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "paper"
MAKEFILE = Path(__file__).parents[2] / "Makefile"


def outcome(folder: Path, title: str, *claims: Claim, seconds: float = 5400, **options: Any) -> None:
    report = PaperReport(title, [], claims, pd.DataFrame({"one": [1]}), "", Figure(), "", [])
    write_outcome(folder, report, "by hand", seconds=seconds, **options)


def claim(text: str, holds: Any) -> Claim:
    return Claim(text, f"numbers of {text}", holds, "a rule")


def test_all_that_is_there_is_listed_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome(tmp_path / "wall_clock", "Time", claim("ranks 32|8", None), seconds=60)
    outcome(tmp_path / "other", "Another", claim("e", None))
    outcome(tmp_path / "mlbtc_prompts", "Prompts", claim("d", False))
    outcome(tmp_path / "mlbtc", "Forms", claim("c", False))
    outcome(tmp_path / "in_context", "Regression", claim("a", pd.Series([True]).all()), claim("b", False))
    assert overview.main(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'report.md'}\n"
    text = (tmp_path / "report.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("| ")][2:] == [
        "| a | the paper | numbers of a | **holds** | [Regression](in_context/report.md) | 1.5 |",
        "| b | the paper | numbers of b | **does not hold** | [Regression](in_context/report.md) |  |",
        "| ranks 32\\|8 | the paper | numbers of ranks 32\\|8 | not decided | [Time](wall_clock/report.md) | 0.0 |",
        "| c | the paper | numbers of c | **does not hold** | [Forms](mlbtc/report.md) | 1.5 |",
        "| d | the paper | numbers of d | **does not hold** | [Prompts](mlbtc_prompts/report.md) | 1.5 |",
        "| e | the paper | numbers of e | not decided | [Another](other/report.md) | 1.5 |",
    ]
    assert "Of 6 claims of the paper: 1 held, 3 refuted, 2 not decided." in text
    assert "Not run at their small size yet: forecasts of ETTh1 (`etth1.py`), language models (`language.py`)" in text
    assert all((tmp_path / name / "report.md").is_file() for name in ("in_context", "other"))


def test_without_experiments_there_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert overview.main(["--results", str(tmp_path)]) == 2
    assert "no experiment has a claims.json" in capsys.readouterr().err
    (tmp_path / "etth1").mkdir()
    (tmp_path / "etth1" / "claims.json").write_text("{")
    assert overview.main(["--results", str(tmp_path)]) == 2
    assert "claims.json cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "report.md").exists()


def test_every_experiment_of_make_paper_is_known() -> None:
    target = MAKEFILE.read_text().split("\npaper:")[1].split("\n\n")[0]
    run = [line.split("benchmarks/paper/")[1].split(".py")[0] for line in target.splitlines()[1:]]
    assert run[-1] == "overview"
    assert set(run[:-1]) == set(overview.EXPERIMENTS)
    assert all((SCRIPTS / f"{name}.py").is_file() for name in overview.EXPERIMENTS)


def run_that_took(seconds: float, finished: datetime, seed: int = 1, attention: str = "mlr") -> dict[str, Any]:
    labels = {"dataset": "a", "horizon": 8, "predictor": "b", "attention": attention, "seed": seed}
    return {**labels, "status": "done", "finished": finished, "seconds": seconds, "values": {}}


def test_time_by_the_clock_counts_what_runs_at_once_once() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    spans = [(0, 10), (5, 12), (100, 103), (6, 8), (101, 104), (150, 160)]  # began and ended
    rows = [
        run_that_took(float(end - begin), start + timedelta(seconds=end), seed)
        for seed, (begin, end) in enumerate(spans)
    ]
    rows.append({**run_that_took(0.0, start + timedelta(seconds=50)), "status": "failed", "seconds": None})
    assert clock_seconds(pd.DataFrame(rows)) == pytest.approx(12 + 60), "a break of over a minute does not count"
    assert clock_seconds(pd.DataFrame(rows[-1:])) == 0
