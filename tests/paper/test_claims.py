"""What reports decide, on records of which it is known what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.paper import in_context
from benchmarks.paper.claims import how_made, write_report
from benchmarks.paper.planned import LEFT, with_left
from benchmarks.paper.runs import chosen_by_validation, described_by, runs_of
from tests.paper.made_up import closed_form, prompt_runs, records_of
from tsattn.errors import UserError
from tsattn.leaderboard.records import Records

SUITES = Path(__file__).parents[2] / "benchmarks" / "paper" / "suites"


def test_a_rate_that_failed_once_is_not_chosen() -> None:
    runs = described_by(
        runs_of(
            records_of(
                *prompt_runs("btt_1", "btt", [0.1, 0.1], rate=0.01)[:2],
                *prompt_runs("btt_1", "btt", [0.1] * 3, rate=0.01, status="failed")[2:],
                *prompt_runs("btt_1", "btt", [0.5] * 3, rate=0.001),
                *prompt_runs("btt_1", "btt", [0.4] * 2, rate=0.003),
            )
        ),
        rate="model.learning_rate",
        nothing="model.no.such.value",
    )
    chosen = chosen_by_validation(runs, ["attention"], ["rate"])
    assert chosen["rate"].tolist() == [0.001] * 3, "not that of two seeds alone"
    assert chosen["candidates"].tolist() == [3] * 3
    assert runs["nothing"].isna().all()


def test_a_rate_that_is_still_to_be_run_leaves_the_choice_open() -> None:
    def chosen_of(*left: dict[str, Any]) -> pd.DataFrame:
        done = [*prompt_runs("btt_1", "btt", [0.1] * 3), *prompt_runs("btt_2", "btt", [0.2] * 3, rate=0.01)]
        rows = [{**run, "mse": None, **one, "status": LEFT} for one, run in zip(left, done, strict=False)]
        runs = described_by(runs_of(records_of(*done, *rows)), rate="model.learning_rate")
        return chosen_by_validation(runs, ["attention"], ["rate"])

    assert chosen_of()["is_whole"].all()
    whole = chosen_of({"predictor": "w16_fast", "key": ""})  # of a rate that no run of this arm has
    assert whole.groupby("attention")["is_whole"].first().to_dict() == {"btt_1": False, "btt_2": True}
    assert whole.groupby("attention").size().to_dict() == {"btt_1": 3, "btt_2": 3}


def test_what_a_suite_has_and_records_lack_is_left() -> None:
    suite = SUITES / "mlbtc_prompts_small.yaml"
    some = [
        {"suite": "x", "dataset": "prompts4", "horizon": 8, "predictor": name, "attention": form, "seed": seed}
        for name, form, seed in (("ridge", "", None), ("w16", "standard", 1))
    ]
    frame = with_left(Records.of(some), suite).frame
    left = frame[frame["status"] == LEFT]
    assert len(frame) == 2 + 11 * 4 * 3
    assert len(left) == len(frame) - 2
    seeds = left[(left["predictor"] == "w16") & (left["attention"] == "standard")]["seed"]
    assert seeds.tolist() == [2, 3]
    fast = left.loc[left["predictor"] == "w16_fast", "experiment"]
    assert fast.str.contains("learning_rate: 0.016\n").all()
    complete = Records.of(with_left(Records.of(some), suite).table.to_pylist())
    assert len(with_left(complete, suite)) == len(complete)


def test_a_report_is_written_of_records(tmp_path: Path) -> None:
    parts = [
        prompt_runs("standard", "standard", [0.8, 0.9, 0.7]),
        prompt_runs("btt_1", "btt", [0.1, 0.2, 0.3]),
        prompt_runs("btt_2", "btt", [0.1], status="failed"),
    ]
    records = records_of(closed_form(), *(one for part in parts for one in part))
    made = how_made(runs_of(records), "python x.py", "in_context_small")
    write_report(tmp_path, in_context.report(records), made)
    text = (tmp_path / "report.md").read_text()
    assert "| Where heads have a rank below d, they fail, and BTT of the same width learns. | the paper | d 8" in text
    assert "| **holds** |" in text
    assert "| not decided |" in text
    assert "![" in text
    assert (
        "19 of 22 runs done, 3 failed, 0.0 hours of training in all, on a CPU (cpu); tsattn 0.1.0, torch 2.13.0" in text
    )
    assert "- failed: made_up, 8: w16_8_0.001 btt_2, seed 1: training diverged" in text
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["arm"].tolist() == ["standard, low-rank heads", "btt_1", "least squares"]
    assert table["error"].tolist() == pytest.approx([0.8, 0.2, 1.25e-10])


def test_a_report_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="no run is done, so there is nothing to report"):
        runs_of(records_of(*prompt_runs("btt_1", "btt", [0.1], status="failed")))
