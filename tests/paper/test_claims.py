"""What numbers of a few seeds decide, what validation chooses, and the reports that say so."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.paper import in_context, overview
from benchmarks.paper.claims import Claim, PaperReport, most, pooled, write_outcome
from benchmarks.paper.experiment import (
    chosen_by_validation,
    clock_seconds,
    how_made,
    left_of,
    measure_and_report,
    runs_of,
    timed_parser,
)
from tests.docs.blocks import ROOT
from tests.paper.made_up import AROUND, closed_form, prompt_runs, records_of, suite_of
from tsattn.errors import UserError
from tsattn.leaderboard.records import Records

SCRIPTS = ROOT / "benchmarks" / "paper"


def test_most_decide_where_none_says_the_opposite() -> None:
    assert [most(one) for one in ([True], [True, True, None])] == [True, True]
    assert [most(one) for one in ([True, None], [True, True, False], [None], [])] == [None] * 4
    assert most([False, False, None]) is False


def test_sizes_count_alike_and_seeds_are_clusters() -> None:
    values = {
        (size, seed): 0.1 * size + 0.3 * seed + (0.05 if size == seed else 0) for size in (1, 2) for seed in range(4)
    }
    differences = pd.Series(values).rename_axis(["size", "seed"])
    found, means = pooled(differences), differences.groupby("seed").mean()
    expected = stats.ttest_1samp(means, 0)
    known = (means.mean(), expected.pvalue, *expected.confidence_interval(0.95))
    assert (found.mean, found.p, found.low, found.high) == pytest.approx(known)
    assert (found.below, found.pairs, found.seeds) == (0, 8, 4)
    wide = expected.confidence_interval(0.9).high
    assert [found.is_within(wide + sign * 1e-6) for sign in (-1, 1)] == [False, True]
    # a seed that lacks a size: sizes still count alike
    lacking = pooled(differences.drop((2, 3)))
    assert lacking.mean == pytest.approx((differences[1].mean() + differences[2].drop(3).mean()) / 2)
    assert pooled(differences.loc[:, [0]]).high == math.inf
    # sizes without a common seed are two samples
    apart = pd.concat({1: differences[1], 2: differences[2].rename(lambda seed: seed + 4)}, names=["size"])
    assert pooled(apart).p == pytest.approx(stats.ttest_ind(differences[1], -differences[2]).pvalue)


def test_a_rate_that_failed_once_is_not_chosen() -> None:
    records = records_of(
        prompt_runs("btt_1", "btt", [0.1, 0.1], rate=0.01)[:2],
        prompt_runs("btt_1", "btt", [0.1] * 3, rate=0.01, status="failed")[2:],
        prompt_runs("btt_1", "btt", [0.5] * 3, rate=0.001),
        prompt_runs("btt_1", "btt", [0.4] * 2, rate=0.003),
    )
    runs = runs_of(records)
    chosen = chosen_by_validation(runs, ["attention"], ["learning_rate"])
    assert chosen["learning_rate"].tolist() == [0.001] * 3, "not that of two seeds alone"
    assert chosen["candidates"].tolist() == [3] * 3
    assert runs["alpha"].isna().all()
    with pytest.raises(UserError, match="no run is done, so there is nothing to report"):
        runs_of(records_of(prompt_runs("btt_1", "btt", [0.1], status="failed")))


def test_what_a_suite_has_and_records_lack_is_left() -> None:
    suite = SCRIPTS / "suites" / "mlbtc_prompts_small.yaml"
    some = [
        {"suite": "x", "dataset": "prompts4", "horizon": 8, "predictor": name, "attention": form, "seed": seed}
        for name, form, seed in (("ridge", "", None), ("w16", "standard", 1))
    ]
    assert left_of(Records.of(some), suite) == 8 * 3 * 10
    language = SCRIPTS / "suites" / "language_small.yaml"
    assert left_of(Records.read(ROOT / "benchmarks" / "results" / "paper" / "language"), language) == 0


def test_a_report_is_written_of_records(tmp_path: Path) -> None:
    low, btt = prompt_runs("standard", "standard", [0.8, 0.9, 0.7]), prompt_runs("btt_1", "btt", [0.1, 0.12, 0.11])
    records = records_of(closed_form(), low, btt, prompt_runs("btt_2", "btt", [0.1], status="failed"))
    made = how_made(runs_of(records), "python x.py", "in_context_small")
    names = [f"w16_8_{rate}" for rate in (0.001, *AROUND)]
    content = suite_of(
        names, ["standard", "btt_1", "btt_2"], [("BTT is lower", "btt_1", "standard"), ("s is", "btt_2", "btt_1")]
    )
    same = {name: replace(one, backbone={}) for name, one in content.predictors.items()}
    write_outcome(tmp_path, in_context.report(records, replace(content, predictors=same)), made, "python x.py", 2)
    text = (tmp_path / "report.md").read_text()
    for said in (
        "| BTT is lower | **holds** | 0.14 times (0.10 to 0.18), lower in 3 of 3 pairs, p 0.00",
        "| width 16; 3 seeds; 100 steps; 2 runs left | (1) |",
        "| s is | undecided | no such runs |",
        "![",
        "19 of 22 runs done, 3 failed, on a CPU (cpu); tsattn 0.1.0, torch 2.13.0",
        "- failed: made_up, 8: w16_8_0.001 btt_2, seed 1: training diverged",
    ):
        assert said in text
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["attention"].tolist() == ["btt_1", "standard"]
    assert table["error"].tolist() == pytest.approx([0.11, 0.8])
    assert (table["rank"].tolist(), table["scores"].tolist()) == ([16, 2], [1024, 512])


def outcome(folder: Path, title: str, *holds: Any) -> None:
    claims = [
        Claim(f"{title} {number}|", "numbers", one, "a rule", bool(number), "small") for number, one in enumerate(holds)
    ]
    report = PaperReport(title, "", claims, pd.DataFrame({"one": [1]}), "", Figure(), "", [])
    write_outcome(folder, report, "by hand", "python x.py")


def test_the_overview_lists_all_that_is_there_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert overview.main(["--output", str(tmp_path)]) == 2
    assert "no experiment has a claims.json" in capsys.readouterr().err
    outcome(tmp_path / "wall_clock", "Time", None)
    outcome(tmp_path / "other", "Another", None)
    outcome(tmp_path / "mlbtc", "Forms", False)
    outcome(tmp_path / "in_context", "Regression", pd.Series([True]).all(), False)
    assert overview.main(["--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'report.md'}\n"
    text = (tmp_path / "report.md").read_text()
    row = "| {0} | {1} | numbers | small | [`python x.py`]({2}/report.md) |".format
    assert [line for line in text.splitlines() if line.startswith("| ")][2:] == [
        row("Regression 0\\| (ours)", "**holds**", "in_context"),
        row("Regression 1\\|", "**refuted at this size**", "in_context"),
        row("Time 0\\| (ours)", "undecided", "wall_clock"),
        row("Forms 0\\| (ours)", "**refuted at this size**", "mlbtc"),
        row("Another 0\\| (ours)", "undecided", "other"),
    ]
    assert "1 claim of the paper: 0 held, 1 refuted at this size, 0 undecided. 4 claims of ours: 1 held" in text
    assert "Not run at their small size yet: `bottleneck.py`, `mlbtc_prompts.py`" in text


def test_every_experiment_of_make_paper_is_known() -> None:
    target = (ROOT / "Makefile").read_text().split("\npaper:")[1].split("\n\n")[0]
    run = [line.split("benchmarks/paper/")[1].split(".py")[0] for line in target.splitlines()[1:]]
    assert run[-1] == "overview"
    assert set(run[:-1]) == set(overview.EXPERIMENTS)
    assert all((SCRIPTS / f"{name}.py").is_file() for name in overview.EXPERIMENTS)
    committed = ROOT / "benchmarks" / "results" / "paper"
    assert overview.overview(committed) == (committed / "report.md").read_text("utf-8"), "overview.py"


def test_time_by_the_clock_counts_what_runs_at_once_once() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    spans = [(0, 10), (5, 12), (100, 103), (6, 8), (101, 104), (150, 160)]  # began and ended
    common = {"dataset": "a", "horizon": 8, "predictor": "b", "attention": "mlr", "status": "done"}
    rows = [
        {**common, "seed": seed, "finished": start + timedelta(seconds=end), "seconds": float(end - begin)}
        for seed, (begin, end) in enumerate(spans)
    ]
    rows.append({**rows[0], "status": "failed", "seconds": None})
    assert clock_seconds(pd.DataFrame(rows)) == pytest.approx(12 + 60), "a break of over a minute does not count"
    assert clock_seconds(pd.DataFrame(rows[-1:])) == 0


def test_a_machine_keeps_what_it_measured_by_the_same_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def measured(T: int) -> pd.DataFrame:
        asked.append(T)
        return pd.DataFrame({"T": [T]})

    def report(rows: pd.DataFrame) -> PaperReport:
        assert len(set(rows["machine"])) == 1
        return PaperReport("Time", "", [], rows[["T"]], "", Figure(), "", [])

    def now(*words: str, width: int = 64) -> list[int]:
        asked.clear()
        options = timed_parser("generation", "", 1, "a round").parse_args([*words, "--output", str(tmp_path)])
        assert measure_and_report(options, {"width": width}, ("T", [1, 2]), measured, report, "a command") == 0
        return [*asked]

    assert now("--dry-run") == []
    assert not list(tmp_path.iterdir())
    assert now() == [1, 2]
    assert now() == now("--dry-run") == now("--report-only") == []
    assert now("--again") == [1, 2]
    assert now(width=128) == [1, 2]
    assert now() == [1, 2], "only what was measured last is kept"
    (file,) = (tmp_path / "machines").glob("*.csv")
    assert pd.read_csv(file)["T"].tolist() == pd.read_csv(tmp_path / "table.csv")["T"].tolist() == [1, 2]
    file.write_text("T\n1\n")
    assert now() == [2], "an interrupted one goes on"
    about = json.loads(file.with_suffix(".json").read_text())
    file.with_suffix(".json").write_text(json.dumps({**about, "torch": "0.0"}))
    assert now() == [1, 2]
    assert f"report: {tmp_path / 'report.md'}" in capsys.readouterr().out
