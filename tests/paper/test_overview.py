"""One report over all experiments says of each claim what its own report says, whichever are there."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from benchmarks.paper import overview
from benchmarks.paper.claims import Claim, PaperReport
from benchmarks.paper.clock import by_the_clock, clock_seconds, counted_seconds
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


def test_a_part_is_said_to_be_one(tmp_path: Path) -> None:
    outcome(tmp_path / "etth1", "Forecasts", claim("a", True), runs=(12, 1030))
    outcome(tmp_path / "language", "Texts", claim("b", True), runs=(30, 30))
    text = overview.overview(tmp_path)
    assert "| [Forecasts](etth1/report.md), a part: 12 of 1030 runs |" in text
    assert "| [Texts](language/report.md) |" in text
    said = "**This is the report of a part:** 12 of 1030 runs are made."
    assert said in (tmp_path / "etth1" / "report.md").read_text()
    assert "of a part" not in (tmp_path / "language" / "report.md").read_text()


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


def test_json_says_what_was_decided(tmp_path: Path) -> None:
    outcome(tmp_path, "Time", claim("a", None), seconds=1.23)
    assert json.loads((tmp_path / "claims.json").read_text()) == {
        "title": "Time",
        "claims": [{"claim": "a", "is_of_paper": True, "found": "numbers of a", "holds": None}],
        "seconds": 1.2,
    }


def run_that_took(seconds: float, finished: datetime, seed: int = 1, attention: str = "mlr") -> dict[str, Any]:
    labels = {"dataset": "a", "horizon": 8, "predictor": "b", "attention": attention, "seed": seed}
    return {**labels, "status": "done", "finished": finished, "seconds": seconds, "values": {}}


def test_a_run_that_stood_still_counts_as_its_peers_do() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [run_that_took(10, start + timedelta(hours=hour), hour) for hour in range(3)]
    assert by_the_clock(pd.DataFrame(rows)) == "By the clock the runs took 0.0 hours."
    rows += [run_that_took(3600, start + timedelta(hours=4), 4), run_that_took(50, start + timedelta(hours=5), 5)]
    rows.append(run_that_took(100, start + timedelta(hours=6), 1, "standard"))
    assert clock_seconds(pd.DataFrame(rows)) == pytest.approx(3 * 10 + 2 * 50 + 100)
    said = "0.1 hours. 1 run took over 5 times as long as the median of the same predictor and attention, "
    assert said + "as where the machine stands still, and counts as 5 times that." in by_the_clock(pd.DataFrame(rows))


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


def test_a_training_that_goes_on_with_another_counts_its_own_time_alone() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def trained(steps: int, seconds: float, hours: float, schedule: str = "constant") -> dict[str, Any]:
        values = {"model": {"schedule": schedule}, "trainer": {"max_steps": steps, "val_check_interval": steps}}
        row = run_that_took(seconds, start + timedelta(hours=hours))
        return {**row, "predictor": f"of {steps} steps", "values": values}

    runs = pd.DataFrame([trained(200, 600.0, 1), trained(1000, 3000.0, 24)])
    assert clock_seconds(runs) == 3000, "600 on the first day, and 2400 on the second"
    assert counted_seconds(runs).tolist() == [600, 2400]
    apart = pd.DataFrame([trained(200, 600.0, 1, "cosine"), trained(1000, 3000.0, 24, "cosine")])
    assert clock_seconds(apart) == 3600
