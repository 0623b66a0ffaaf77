"""Arms that validation chose are compared with each other window by window, and reports say what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from benchmarks.paper import blocks, etth1, mlbtc
from benchmarks.paper.chosen_arms import arms_table, beside, best_of, chosen_arms, compared_claim, relative_figure
from benchmarks.paper.claims import Claim, PaperReport
from tests.paper.made_up import forecasts, made_up, records_of
from tsattn.errors import UserError
from tsattn.leaderboard.records import Record, Records

SUITES = Path(__file__).parents[2] / "benchmarks" / "paper" / "suites"


def all_of(*parts: list[Record]) -> Records:
    return records_of(*(one for part in parts for one in part))


def test_the_rate_is_chosen_on_validation_for_each_attention_and_table() -> None:
    records = all_of(
        forecasts("standard", 1.0, rate=0.01, validation=0.9),
        forecasts("standard", 0.5, rate=0.001, validation=1.1),
        forecasts("mlr", 0.9, rate=0.01, validation=1.2),
        forecasts("mlr", 1.3, rate=0.001, validation=0.8),
        forecasts("mlr", 0.9, rate=0.01, validation=0.7, horizon=16),
    )
    chosen = chosen_arms(records, "mse")
    rates = chosen.groupby(["attention", "horizon"])["learning_rate"].unique().map(list).to_dict()
    assert rates == {("standard", 8): [0.01], ("mlr", 8): [0.001], ("mlr", 16): [0.01]}
    assert chosen.groupby(["attention", "horizon"])["candidates"].first().to_dict() == {
        ("mlr", 8): 2,
        ("mlr", 16): 1,
        ("standard", 8): 2,
    }


def test_differences_are_those_of_the_chosen_runs() -> None:
    records = all_of(
        forecasts("standard", 1.0),
        forecasts("mlr", 0.9),
        forecasts("mlr", 0.1, rate=0.01, validation=5.0),
        forecasts("swa", 1.1),
        forecasts("btt", 1.0),
        [made_up("ridge", "", None, {}, mse=0.7, mae=0.4)],
    )
    chosen = chosen_arms(records, "mse")
    compared = beside(records, chosen, "standard", "mse").set_index("attention")
    assert compared["verdict"].to_dict() == {"mlr": "better", "swa": "worse", "btt": "tie"}
    assert compared["percent"]["mlr"] == pytest.approx(-10, abs=0.1)
    assert compared["percent_low"]["mlr"] < compared["percent"]["mlr"] < compared["percent_high"]["mlr"]
    others = beside(records, chosen, "swa", "mae").set_index("attention")
    assert set(others.index) == {"standard", "mlr", "btt"}
    assert others["percent"]["standard"] == pytest.approx(100 * (1 / 1.1 - 1), abs=0.1)
    table = arms_table(records, chosen, compared.reset_index()).set_index("arm")
    assert table.index.tolist() == ["standard", "btt", "mlr", "swa", "ridge"]
    assert table["%"]["mlr"] == pytest.approx(-10, abs=0.1)
    assert table["rates"]["mlr"] == 2
    assert pd.isna(table["%"]["standard"])
    assert table["MSE"]["ridge"] == 0.7
    assert len(relative_figure(compared.reset_index(), "standard", "mse").axes) == 1


def claim_of(*parts: list[Record], attention: str = "mlr") -> Claim:
    records = all_of(*parts)
    compared = beside(records, chosen_arms(records, "mse"), "standard", "mse")
    return compared_claim("mlr is better", compared, attention)


def test_claims_are_decided_by_all_tables() -> None:
    first = forecasts("standard", 1.0), forecasts("mlr", 0.9)
    held = claim_of(*first)
    assert held.holds is True
    assert held.found.startswith("made_up, 8: \N{MINUS SIGN}10.")
    assert held.found.endswith("%), better")
    tie = claim_of(*first, forecasts("standard", 1.0, horizon=16), forecasts("mlr", 1.0, horizon=16))
    assert tie.holds is True
    assert "made_up, 16" in tie.found
    assert "tie" in tie.found
    worse = claim_of(*first, forecasts("standard", 1.0, horizon=16), forecasts("mlr", 1.1, horizon=16))
    assert worse.holds is False
    assert claim_of(forecasts("standard", 1.0), forecasts("mlr", 1.0)).holds is False
    assert claim_of(forecasts("standard", 1.0, seeds=2), forecasts("mlr", 0.9, seeds=2)).holds is None
    few = claim_of(forecasts("standard", 1.0, windows=10), forecasts("mlr", 0.9, windows=10))
    assert few.holds is None
    assert few.found.endswith("no interval")
    assert claim_of(*first, attention="swa").found == "no such runs"


def test_the_best_of_a_family_is_chosen_on_validation() -> None:
    records = all_of(
        forecasts("one", 0.5, validation=1.0), forecasts("two", 0.9, validation=0.8), forecasts("three", 0.1)
    )
    best = best_of(chosen_arms(records, "mse"), ["one", "two"], "best", "mse")
    assert best["attention"].tolist() == ["best"] * 3
    assert best["form"].tolist() == ["two"] * 3


def test_nothing_that_is_done_is_refused() -> None:
    with pytest.raises(UserError, match="no attention is done with all its seeds"):
        chosen_arms(all_of([made_up("ridge", "", None, {}, mse=1.0, mae=1.0)]), "mse")


def test_forms_of_the_suites_belong_to_families() -> None:
    attentions = yaml.safe_load((SUITES / "mlbtc_small.yaml").read_text())["attentions"]
    families: dict[str, list[str]] = {}
    for name, described in attentions.items():
        described = {"kind": described} if isinstance(described, str) else described
        families.setdefault(mlbtc.family(described), []).append(name)
    assert families == {
        "standard": ["standard"],
        "low rank": ["low_rank"],
        "block-diagonal": ["diagonal_8", "mlr_1_2", "mlr_1_8", "mlr_1_2_4_8"],
        "shuffled": ["shuffled_2x2", "shuffled_4x4", "shuffled_8x8"],
        "low rank and shuffled": [
            "rank_4_and_2x2", "rank_4_and_4x4", "rank_2_and_4x8", "rank_2_and_8x4", "rank_2_diagonal_4_and_4x4",
        ],
    }  # fmt: skip


def answers(report: PaperReport) -> list[bool | None]:
    return [claim.holds for claim in report.claims]


def test_blocks_are_compared_with_standard_and_with_those_by_number() -> None:
    factors = {"standard": 1.0, "numbers": 0.9, "days": 0.85, "change_points": 0.9, "swa": 1.1, "linear": 1.2}
    report = blocks.report(all_of(*(forecasts(name, factor) for name, factor in factors.items())))
    assert answers(report) == [True, True, True, True, False, False]
    assert report.claims[3].found.startswith("made_up, 8: \N{MINUS SIGN}5.")
    assert "Contexts of 32 steps, width 64, 10 training steps." in report.differs
    assert report.table["arm"].tolist() == ["standard", "change_points", "days", "linear", "numbers", "swa"]


def test_forms_of_mlbtc_are_compared_family_by_family() -> None:
    def form(name: str, factor: float, *levels: dict[str, Any], **options: Any) -> list[Record]:
        return forecasts(name, factor, description={"kind": "mlbtc", "levels": list(levels)}, **options)

    shuffled = {"rank": 1, "left_blocks": 4, "right_blocks": 4, "shuffled": True}
    report = mlbtc.report(
        all_of(
            forecasts("standard", 1.0),
            form("low", 1.0, {"rank": 8}),
            form("levels", 0.9, {"rank": 4}, {"rank": 4, "left_blocks": 2, "right_blocks": 2}),
            form("btt", 1.1, shuffled, validation=1.0),
            form("better_btt", 0.5, shuffled, validation=1.2),
            form("both", 1.0, {"rank": 4}, shuffled, validation=1.05),
        )
    )
    assert answers(report) == [True, True, False, True, False]
    assert report.claims[0].found.endswith("better (levels beside standard)")
    assert "(btt beside low)" in report.claims[2].found, "chosen on validation, not on the test part"


def test_levels_are_compared_with_standard_attention_at_each_horizon() -> None:
    runs = [
        one
        for horizon, factor in ((96, 0.9), (192, 0.8))
        for one in (
            *forecasts("standard", 1.0, horizon=horizon),
            *forecasts("mlr_2", factor, horizon=horizon),
            *forecasts("mlr_4", 1.2 - 0.01 * horizon / 96, horizon=horizon),
        )
    ]
    report = etth1.report(records_of(*runs))
    assert answers(report) == [None, None], "320 windows are too few blocks of 192"
    assert "made_up, 96: \N{MINUS SIGN}10.0 %" in report.claims[0].found
    report = etth1.report(records_of(*(run for run in runs if run.row["horizon"] == 96)))
    assert answers(report) == [True, False]
    assert report.table["MAE"].tolist() == pytest.approx([0.526, 0.9 * 0.526, 1.19 * 0.526], rel=0.01)
