"""What the report of MLBTC on prompts decides, on records of which it is known what they say."""

from __future__ import annotations

from typing import Any

from benchmarks.paper import mlbtc_prompts
from benchmarks.paper.claims import Claim
from tests.paper.made_up import Record, closed_form, prompt_runs, records_of

SHUFFLED = {"rank": 1, "left_blocks": 2, "right_blocks": 2, "shuffled": True}
BLOCKS = {"rank": 1, "left_blocks": 4, "right_blocks": 4}


def form(name: str, errors: list[float], *levels: dict[str, Any], **options: Any) -> list[Record]:
    return prompt_runs(name, "mlbtc", errors, levels=list(levels), **options)


def claims_of(*runs: list[Record]) -> list[Claim]:
    records = records_of(closed_form(), *(one for part in runs for one in part))
    return list(mlbtc_prompts.report(records).claims)


LOW = form("low_rank_2", [0.8, 0.9, 0.7], {"rank": 2})
HEADS = prompt_runs("standard", "standard", [0.6, 0.5, 0.55])
OF_TWO = [
    LOW,
    form("mlr_1_4", [0.1, 0.11, 0.12], {"rank": 1}, BLOCKS),
    form("shuffled_2x2", [0.02, 0.03, 0.025], SHUFFLED),
]
OF_THREE = [
    form("low_rank_3", [0.3, 0.31, 0.29], {"rank": 3}),
    form("shuffled_2x4", [0.2, 0.21, 0.19], {**SHUFFLED, "right_blocks": 4}),
    form("rank_1_and_2x2", [0.05, 0.06, 0.04], {"rank": 1}, SHUFFLED),
]


def test_forms_are_compared_at_equal_numbers_of_parameters() -> None:
    claims = claims_of(*OF_TWO, *OF_THREE, HEADS)
    assert [claim.holds for claim in claims] == [True, True, True, True, False]
    assert claims[0].found == (
        "d 8, width 16, 512 parameters: 0.110 ± 0.010 (mlr_1_4) beside 0.800 ± 0.100 (low_rank_2)"
    )
    assert "512 parameters" in claims[1].found
    assert "768 parameters: 0.200 ± 0.010 (shuffled_2x4) beside 0.300 ± 0.010 (low_rank_3)" in claims[1].found
    assert claims[2].found.count("parameters") == 1, "of 512 there is no mix"


def test_the_form_is_that_of_the_least_validation_error() -> None:
    lucky = form("shuffled_lucky", [0.001, 0.001, 0.001], SHUFFLED, validation=0.9)
    better = form("mlr_1_4", [0.01, 0.011, 0.012], {"rank": 1}, BLOCKS)
    claims = claims_of(LOW, better, OF_TWO[2], lucky)
    assert claims[3].holds is False
    assert "(shuffled_2x2) beside" in claims[3].found
