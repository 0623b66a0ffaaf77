"""What reports decide, on records of which it is known what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from benchmarks.paper import in_context
from benchmarks.paper.claims import Claim, PaperReport, how_made, write_report
from benchmarks.paper.planned import LEFT, with_left
from benchmarks.paper.prompt_arms import described_prompts
from benchmarks.paper.runs import chosen_by_validation, described_by, runs_of
from benchmarks.paper.words import markdown_table
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


def test_a_bar_in_a_claim_ends_no_cell(tmp_path: Path) -> None:
    table = pd.DataFrame({"arm": ["mlr"]})
    claim = Claim("MLR `8|8` learns.", "it does", True, "a < b")
    write_report(tmp_path, PaperReport("Bars", [], [claim], table, "", Figure(), "", []), "by hand")
    text = (tmp_path / "report.md").read_text()
    assert r"| MLR `8\|8` learns. | the paper | it does | **holds** | (1) |" in text
    assert "\n\nRule (1): a < b.\n\n" in text


def test_a_rule_of_several_claims_is_written_once(tmp_path: Path) -> None:
    claims = [
        Claim(f"Claim {number}.", "it does", True, rule) for number, rule in enumerate(("a < b", "a > b", "a < b"))
    ]
    write_report(tmp_path, PaperReport("Rules", [], claims, pd.DataFrame({"arm": ["mlr"]}), "", Figure(), "", []), "")
    text = (tmp_path / "report.md").read_text()
    assert [text.count(rule) for rule in ("a < b", "a > b")] == [1, 1]
    assert [re.search(rf"Claim {number}.*(\(\d\))", text)[1] for number in range(3)] == ["(1)", "(2)", "(1)"]  # type: ignore[index]


def test_what_cannot_be_built_has_no_rank() -> None:
    (run, *_) = prompt_runs("bilinear_4", "bilinear_mlr", [0.1] * 3, ranks=[1, 1, 1, 1], blocks=[1, 2, 4, 3])
    described = described_prompts(runs_of(records_of(closed_form(), run)))
    assert described["rank"].isna().all()
    assert described["scores"].isna().all()


@pytest.mark.parametrize(
    ("value", "text"), [(0.123456, "0.1235"), (float("nan"), "\N{EN DASH}"), (None, "\N{EN DASH}"), (1234, "1,234")]
)
def test_cells_are_read_at_a_glance(value: Any, text: str) -> None:
    frame = pd.DataFrame({"one": pd.Series([value], dtype="Int64" if isinstance(value, int) else None)})
    assert markdown_table(frame).splitlines()[-1] == f"| {text} |"
