"""Arms that validation chose are compared with each other window by window, and reports say what came of it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from benchmarks.paper import blocks, mlbtc
from benchmarks.paper.chosen_arms import Question, answered, arms_table, beside, chosen_arms, relative_figure
from benchmarks.paper.claims import Claim, PaperReport
from tests.paper.made_up import Record, forecasts, made_up, records_of
from tsattn.leaderboard.records import Records


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
    assert compared["verdict"].to_dict() == {"mlr": "better", "swa": "worse", "btt": "equal within 1 %"}
    assert set(compared["against"]) == {"standard"}
    assert compared["percent"]["mlr"] == pytest.approx(-10, abs=0.1)
    assert compared["percent_low"]["mlr"] < compared["percent"]["mlr"] < compared["percent_high"]["mlr"]
    others = beside(records, chosen, "swa", "mae").set_index("attention")
    assert set(others.index) == {"standard", "mlr", "btt"}
    assert others["percent"]["standard"] == pytest.approx(100 * (1 / 1.1 - 1), abs=0.1)
    table = arms_table(records, chosen, compared.reset_index()).set_index("arm")
    assert table.index.tolist() == ["standard", "btt", "mlr", "swa", "ridge"]
    assert table["%"]["mlr"] == pytest.approx(-10, abs=0.1)
    assert table["tried"]["mlr"] == 4
    assert table["edge"].to_dict() == {"standard": "no", "btt": "no", "mlr": "no", "swa": "no", "ridge": ""}
    assert table["steps"]["mlr"] == 10
    assert pd.isna(table["%"]["standard"])
    assert table["MSE"]["ridge"] == 0.7
    assert len(relative_figure(compared.reset_index(), "standard", "mse").axes) == 1


def claims_of(questions: list[Question], *parts: list[Record]) -> list[Claim]:
    records = all_of(*parts)
    return answered(records, chosen_arms(records, "mse"), questions, "mse")


def claim_of(*parts: list[Record], attention: str = "mlr") -> Claim:
    (claim,) = claims_of([Question("it is better", [attention], ["standard"])], *parts)
    return claim


def tables(*factors: float, seeds: int = 3) -> list[list[Record]]:
    """Runs of standard attention and of another by a factor, in a table for each factor."""
    return [
        forecasts(name, factor, dataset=f"data_{number}", seeds=seeds)
        for number, one in enumerate(factors)
        for name, factor in (("standard", 1.0), ("mlr", one))
    ]


def test_claims_are_decided_by_most_tables() -> None:
    held = claim_of(*tables(0.9))
    assert held.holds is True
    assert held.found.startswith("data_0, 8: \N{MINUS SIGN}10.")
    assert held.found.endswith("%), better")
    assert claim_of(*tables(1.1)).holds is False
    assert claim_of(*tables(0.9, 0.9, 1.0)).holds is True
    assert claim_of(*tables(0.9, 1.0, 1.0)).holds is None, "in one of three"
    assert claim_of(*tables(0.9, 1.0)).holds is None, "in half"
    assert claim_of(*tables(0.9, 0.9, 1.1)).holds is None, "worse in one"
    assert claim_of(*tables(1.1, 1.1, 1.0)).holds is False
    assert claim_of(*tables(0.9), attention="swa").found == "no such runs"


def test_too_few_runs_decide_nothing() -> None:
    few = claim_of(*tables(0.9, seeds=2))
    assert few.holds is None
    assert few.found.endswith("too few seeds")
    short = claim_of(forecasts("standard", 1.0, windows=10), forecasts("mlr", 0.9, windows=10))
    assert short.holds is None
    assert short.found.endswith("undecided")
    # a second rate with fewer seeds may be the better one yet
    missing = claim_of(*tables(0.9), forecasts("mlr", 0.95, rate=0.01, seeds=2, dataset="data_0"))
    assert missing.holds is None
    assert missing.found.endswith("runs are missing")


def test_a_worse_arm_with_its_rate_at_the_edge_decides_nothing() -> None:
    best, above = forecasts("standard", 1.0, rate=0.001), forecasts("standard", 1.0, rate=0.002, validation=1.5)
    for standard in ([*best, *above], best):  # one rate alone is an edge, too
        assert claim_of(standard, forecasts("mlr", 1.1)).holds is False, "that is better at an edge"
        held = claim_of(standard, forecasts("mlr", 0.9))
        assert held.holds is None
        assert held.found.endswith("better, where the rate of standard is at the edge of those tried")
        records = all_of(standard, forecasts("mlr", 0.9))
        questions = [Question("it is better", ["mlr"], ["standard"])]
        (claim,) = answered(records, chosen_arms(records, "mse"), questions, "mse", is_grid_ours=False)
        assert claim.holds is True, "where the rates are a part of the claim"
        assert claim.found == held.found, "which is said all the same"
    below = forecasts("standard", 1.0, rate=0.0005, validation=1.5)
    assert claim_of(best, above, below, forecasts("mlr", 0.9)).holds is True


def test_all_comparisons_of_all_questions_are_one_family() -> None:
    # a difference that is found alone, and no more where it is one of many
    runs = [forecasts("standard", 1.0), forecasts("mlr", 0.997)]
    runs += [forecasts(f"other_{number}", 1.0) for number in range(20)]
    question = Question("it is better", ["mlr"], ["standard"])
    assert claims_of([question], *runs)[0].found.endswith(", better")
    many = [question, *(Question("so is this", [f"other_{number}"], ["standard"]) for number in range(20))]
    claims = claims_of(many, *runs)
    assert len(claims) == 21
    assert claims[0].found.endswith(", undecided")
    # one that is asked twice counts once
    twice = claims_of([question] * 21, *runs)
    assert {claim.found for claim in twice} == {claims_of([question], *runs)[0].found}


def answers(report: PaperReport) -> list[bool | None]:
    return [claim.holds for claim in report.claims]


def test_blocks_are_compared_with_standard_and_with_those_by_number() -> None:
    factors = {"standard": 1.0, "numbers": 0.9, "days": 0.85, "change_points": 0.9, "swa": 1.1, "linear": 1.2}
    report = blocks.report(all_of(*(forecasts(name, factor) for name, factor in factors.items())))
    assert answers(report) == [True, True, True, True, None, False, False]
    assert report.claims[3].found.startswith("made_up, 8: \N{MINUS SIGN}5.")
    assert report.differs[1].startswith("Contexts of 32 steps, width 64, 10 training steps of 8 windows: ")
    assert "Of the windows for validation and testing all are scored" in report.differs[2]
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
    assert answers(report) == [True, None, True, False, True, False]
    assert report.claims[1].found.endswith(", equal within 1 %"), "standard beside low rank, which are alike here"
    assert report.claims[4].found.endswith("better (both beside btt)")
    assert report.claims[0].found.endswith("better (levels beside standard)")
    assert "(btt beside low)" in report.claims[3].found, "chosen on validation, not on the test part"
