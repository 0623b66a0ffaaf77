"""What the report of regression in context decides, on records of which it is known what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.paper import in_context
from benchmarks.paper.claims import Claim
from benchmarks.paper.prompt_arms import arms_of_prompts, best_arm, described_prompts, score_rank
from benchmarks.paper.runs import runs_of
from tests.paper.made_up import Record, closed_form, made_up, prompt_runs, records_of
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


def test_heads_of_low_rank_are_of_the_form_that_validation_prefers() -> None:
    one_level = {"ranks": [2], "blocks": [1]}
    arm = prompt_runs("btt_1", "btt", [0.2, 0.21, 0.19])
    behind = prompt_runs("bilinear_1", "bilinear_mlr", [0.1, 0.11, 0.12], validation=0.9, **one_level)
    claims = claims_of(LOW, ONE, arm, behind)
    assert claims["btt_lower"].found.endswith("beside 0.800 ± 0.100 (heads of rank 2)")
    ahead = prompt_runs("bilinear_1", "bilinear_mlr", [0.1, 0.11, 0.12], **one_level)
    claims = claims_of(LOW, ONE, arm, ahead)
    assert claims["btt_lower"].found.endswith("beside 0.110 ± 0.010 (heads of rank 2, as bilinear_1)")
    assert claims["btt_lower"].holds is False


def test_an_arm_that_learns_nothing_does_not_hold() -> None:
    found = holds(LOW, ONE, prompt_runs("btt_1", "btt", [0.95, 0.99, 0.96], flops=2000))
    assert found == {**NOT_DECIDED, "btt": False, "rank": True}


def test_an_arm_of_which_some_seeds_learn_decides_nothing() -> None:
    found = holds(LOW, ONE, prompt_runs("btt_1", "btt", [0.01, 0.02, 0.75]))
    assert found == {**NOT_DECIDED, "rank": True}, "nor has it a lower error"


def test_heads_that_learn_refute_that_they_fail() -> None:
    low = prompt_runs("standard", "standard", [0.022] * 3)
    claims = claims_of(low, ONE, prompt_runs("btt_1", "btt", [0.0098] * 3))
    assert claims["btt"].holds is False
    assert claims["btt"].found.endswith("which learn, too")
    assert claims["rank"].holds is False
    assert claims["btt_lower"].holds is True, "a small ratio of small errors"


@pytest.mark.parametrize("errors", [[0.3] * 3, [0.05, 0.05, 0.2], [0.4, 0.6, 0.6]])
def test_heads_between_failing_and_learning_decide_nothing(errors: list[float]) -> None:
    low = prompt_runs("standard", "standard", errors)
    claims = claims_of(low, ONE, prompt_runs("btt_1", "btt", [0.01, 0.011, 0.009]))
    assert (claims["btt"].holds, claims["rank"].holds, claims["btt_lower"].holds) == (None, None, True)
    assert claims["btt"].found.endswith("which neither fail nor learn") == (max(errors) < 0.5)


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


def test_whether_one_head_of_full_rank_learns_is_a_question_of_its_own() -> None:
    one = prompt_runs("standard", "standard", [0.9] * 3, heads=1)
    btt = prompt_runs("btt_1", "btt", [0.01] * 3)
    claims = claims_of(LOW, one, btt)
    assert (claims["btt"].holds, claims["rank"].holds) == (True, False)
    claims = claims_of(LOW, btt)
    assert (claims["btt"].holds, claims["rank"].holds) == (True, None)


def test_most_widths_decide() -> None:
    runs = [LOW, ONE, prompt_runs("btt_1", "btt", [0.01] * 3)]
    for width, error in ((24, 0.01), (32, 0.2)):
        runs.append(prompt_runs("standard", "standard", [0.8, 0.9, 0.7], width=width))
        runs.append(prompt_runs("standard", "standard", [0.02] * 3, heads=1, width=width))
        runs.append(prompt_runs("btt_1", "btt", [error] * 3, width=width))
    assert holds(*runs)["btt"] is None, "one says the opposite"
    assert holds(*runs[:6])["btt"] is True
    assert holds(*runs[:5])["btt"] is None, "of one of two widths there is no BTT"


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


def test_what_is_run_at_one_width_alone_is_said() -> None:
    wide = prompt_runs("standard", "standard", [0.1] * 3, width=32)
    report = in_context.report(records_of(closed_form(), *LOW, *ONE, *wide))
    assert "Of one width alone, unlike the others, are: standard, one head of full rank." in report.differs
    assert not any("one width alone" in line for line in in_context.report(records_of(*LOW, *ONE)).differs)


def test_closed_forms_are_drawn_where_they_can_be_seen() -> None:
    experiment = {"data": {"init_args": {"dimensions": 8}}, "model": {"backbone": {"kind": "x", "alpha": 1.0}}}
    ridge = made_up("ridge", "", None, experiment, mse=0.4, validation_mse=0.4)
    axes = in_context.report(records_of(closed_form(), ridge, *LOW, *ONE)).figure.axes
    for ax in axes:
        assert [line.get_label() for line in ax.lines if line.get_linestyle() == "--"] == ["ridge, penalty 1"]


def test_too_few_seeds_decide_nothing() -> None:
    assert holds(LOW, ONE, prompt_runs("btt_1", "btt", [0.01, 0.01])) == {**NOT_DECIDED, "rank": True}


def test_a_rate_of_which_seeds_are_missing_decides_nothing() -> None:
    btt = prompt_runs("btt_1", "btt", [0.01] * 3)
    more = prompt_runs("btt_1", "btt", [0.01] * 2, rate=0.01, validation=0.9)
    assert holds(LOW, ONE, btt)["btt"] is True
    assert holds(LOW, ONE, btt, more)["btt"] is None


@pytest.mark.parametrize(
    ("description", "width", "heads", "rank"),
    [
        ({"kind": "standard"}, 16, 8, 2),
        ({"kind": "standard", "head_dim": 3}, 16, 8, 3),
        ({"kind": "standard"}, 16, 1, 16),
        ({"kind": "btt"}, 16, 8, 16),
        ({"kind": "bilinear_mlr", "blocks": [1, 2]}, 16, 8, 3),
        ({"kind": "bilinear_mlr", "ranks": [1, 1], "blocks": [1, 4]}, 16, 8, 5),
        ({"kind": "bilinear_mlr", "ranks": [2, 2], "blocks": [1, 16]}, 16, 4, 16),
        ({"kind": "mlbtc", "levels": [{"rank": 2}]}, 16, 8, 2),
        ({"kind": "mlbtc", "levels": [{"rank": 1, "left_blocks": 2, "right_blocks": 2, "shuffled": True}]}, 16, 8, 4),
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


def test_heads_of_full_rank_are_not_asked_about() -> None:
    wide = [prompt_runs("standard", "standard", [0.9] * 3, width=64), prompt_runs("btt_1", "btt", [0.1] * 3, width=64)]
    assert claims_of(*wide)["btt"].holds is None


def test_the_learning_rate_is_chosen_by_validation_for_every_arm() -> None:
    low = [
        *prompt_runs("standard", "standard", [0.3] * 3, rate=0.01, validation=0.9),
        *prompt_runs("standard", "standard", [0.8] * 3, rate=0.001, validation=0.7),
    ]
    claims = claims_of(low, prompt_runs("btt_1", "btt", [0.1] * 3))
    assert "beside 0.800" in claims["btt"].found
