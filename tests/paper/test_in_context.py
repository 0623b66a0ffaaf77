"""What the report of regression in context decides, on records of which it is known what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.paper import in_context
from benchmarks.paper.claims import Claim
from benchmarks.paper.prompt_arms import arms_of_prompts, best_arm, described_prompts, score_rank
from benchmarks.paper.runs import runs_of
from tests.paper.made_up import Record, closed_form, prompt_runs, records_of
from tsattn.attention import build_attention

NAMES = ("btt", "bilinear_mlr", "rank", "btt_lower", "bilinear_mlr_lower", "flops", "parameters")


def claims_of(*runs: list[Record]) -> dict[str, Claim]:
    report = in_context.report(records_of(closed_form(), *(one for part in runs for one in part)))
    return dict(zip(NAMES, report.claims, strict=True))


def holds(*runs: list[Record]) -> dict[str, bool | None]:
    return {name: claim.holds for name, claim in claims_of(*runs).items()}


LOW = prompt_runs("standard", "standard", [0.8, 0.9, 0.7])
ONE = prompt_runs("standard", "standard", [0.02] * 3, heads=1)
NOT_DECIDED: dict[str, bool | None] = dict.fromkeys(NAMES)


def test_heads_of_low_rank_fail_where_an_arm_learns() -> None:
    claims = claims_of(
        LOW,
        ONE,
        prompt_runs("btt_1", "btt", [0.01, 0.02, 0.03]),
        prompt_runs("bilinear_2", "bilinear_mlr", [0.05, 0.06, 0.04], flops=2000),
    )
    assert {name: claim.holds for name, claim in claims.items()} == dict.fromkeys(claims, True)
    assert claims["btt"].found == (
        "d 8, width 16: 0.0200 ± 0.0100 (btt_1, 2 times the parameters of the scores) beside 0.800 ± 0.100 (heads of "
        "rank 2)"
    )
    assert [name for name, claim in claims.items() if not claim.is_of_paper] == ["parameters"]
    assert claims["flops"].found == (
        "d 8, width 16: heads of rank 2 come to 0.800 ± 0.100 with 1,000, btt_1 of width 16 to 0.0200 ± 0.0100 with "
        "1,000"
    )
    assert "bilinear_2 of width 16" in claims["parameters"].found, "BTT has twice as many"


def test_an_arm_that_learns_nothing_does_not_hold() -> None:
    found = holds(LOW, ONE, prompt_runs("btt_1", "btt", [0.95, 0.99, 0.96], flops=2000))
    assert found == {**NOT_DECIDED, "btt": False, "rank": True}


def test_heads_that_learn_refute_that_they_fail() -> None:
    low = prompt_runs("standard", "standard", [0.022] * 3)
    claims = claims_of(low, ONE, prompt_runs("btt_1", "btt", [0.0098] * 3))
    assert claims["btt"].holds is False
    assert claims["btt"].found.endswith("which learn, too")
    assert claims["rank"].holds is False
    assert claims["btt_lower"].holds is True, "a small ratio of small errors"


def test_what_is_behind_at_an_edge_of_the_rates_decides_nothing() -> None:
    def rates(name: str, kind: str, errors: dict[float, list[float]], **options: Any) -> list[Record]:
        return [
            run
            for rate, found in errors.items()
            for run in prompt_runs(name, kind, found, rate=rate, validation=min(found), **options)
        ]

    worse, between = [0.91, 0.9, 0.92], {0.001: [0.95] * 3, 0.002: [0.8, 0.82, 0.81], 0.004: [0.95] * 3}
    at_edge = {0.001: [0.95] * 3, 0.002: worse, 0.004: [0.8, 0.82, 0.81]}
    learnt = {0.001: [0.09] * 3, 0.002: [0.09] * 3, 0.004: [0.01, 0.02, 0.015]}
    heads = ("standard", "standard")
    found = holds(rates(*heads, between), ONE, rates("btt_1", "btt", learnt))
    assert (found["btt"], found["btt_lower"], found["flops"]) == (True, True, True), "that is ahead at an edge"
    claims = claims_of(rates(*heads, at_edge), ONE, rates("btt_1", "btt", learnt))
    assert [claims[name].holds for name in ("btt", "rank", "btt_lower", "flops")] == [None] * 4
    assert "beside 0.810 ± 0.010 at the edge rate 0.004 (heads of rank 2)" in claims["btt"].found
    stuck = rates("btt_1", "btt", {0.001: worse, 0.002: worse, 0.004: [0.89, 0.9, 0.88]})
    found = holds(rates(*heads, between), ONE, stuck)
    assert (found["btt"], found["btt_lower"]) == (None, None)
    # the rate is that of the arm that is chosen, whichever its width
    two = [*rates("btt_1", "btt", {0.001: worse, 0.002: [0.99] * 3}, width=24), *rates("btt_2", "btt", between)]
    best = best_arm(arms_of_prompts(described_prompts(runs_of(records_of(*two)))))
    assert (set(best["arm"]), set(best["is_edge"])) == ({"btt_2"}, {False})


def test_cost_is_compared_at_what_validation_chose() -> None:
    low = prompt_runs("standard", "standard", [0.2, 0.21, 0.19])
    lucky = prompt_runs("lucky", "btt", [0.01] * 3, validation=0.5)
    chosen = prompt_runs("chosen", "btt", [0.3] * 3, validation=0.1)
    assert holds(low, lucky, chosen)["flops"] is False, "not by the test part"
    assert holds(low, prompt_runs("btt_1", "btt", [0.19, 0.2, 0.18]))["flops"] is None, "within the spread of seeds"
    one_level = prompt_runs("bilinear_1", "bilinear_mlr", [0.01] * 3, blocks=[1], ranks=[2])
    claims = claims_of(low, one_level)
    assert claims["flops"].holds is None
    assert claims["flops"].found.endswith("and nothing has so few"), "one level is of low rank"
    assert claims["bilinear_mlr"].found == "d 8, width 16: nothing of this kind beside heads"
    wide = prompt_runs("standard", "standard", [0.2, 0.21, 0.19], width=24, flops=5000)
    narrow = prompt_runs("btt_1", "btt", [0.01] * 3, flops=4000)
    assert holds(wide, narrow)["flops"] is True, "of another width"


@pytest.mark.parametrize(
    ("description", "width", "heads", "rank"),
    [
        ({"kind": "standard"}, 16, 8, 2),
        ({"kind": "standard"}, 16, 1, 16),
        ({"kind": "btt"}, 16, 8, 16),
        ({"kind": "bilinear_mlr", "blocks": [1, 2]}, 16, 8, 3),
        ({"kind": "bilinear_mlr", "ranks": [2, 2], "blocks": [1, 16]}, 16, 4, 16),
        ({"kind": "mlbtc", "levels": [{"rank": 1, "left_blocks": 2, "right_blocks": 4, "shuffled": True}]}, 16, 8, 8),
        (
            {
                "kind": "mlbtc",
                "levels": [{"rank": 1}, {"rank": 1, "left_blocks": 4, "right_blocks": 4, "shuffled": True}],
            },
            32,
            8,
            17,
        ),
    ],
    ids=str,
)
def test_ranks_are_those_of_the_matrices(description: dict[str, Any], width: int, heads: int, rank: int) -> None:
    assert score_rank(description, width, heads) == rank
    torch.manual_seed(0)
    dense = build_attention(description, d_model=width, num_heads=heads).projection.to_dense().double()
    assert torch.linalg.matrix_rank(dense, rtol=1e-5).tolist() == [rank] * heads
