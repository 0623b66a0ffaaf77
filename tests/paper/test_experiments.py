"""What the report of each experiment decides, on records of which it is known what they say."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.paper import blocks, in_context, language, mup_transfer
from benchmarks.paper.character_transformer import forward_flops
from benchmarks.paper.chosen_arms import Question, answered, arms_table, beside, chosen_arms, relative_figure
from benchmarks.paper.claims import Claim
from benchmarks.paper.experiment import runs_of
from benchmarks.paper.in_context import arms_of_prompts, best_arm, described_prompts, sizes_of
from tests.paper.made_up import Record, at_rates, closed_form, forecasts, made_up, prompt_runs, records_of
from tsattn.attention import build_attention

STANDARD = forecasts("standard", 1.0)


# forecasts


def test_differences_are_those_of_the_chosen_runs() -> None:
    records = records_of(
        STANDARD,
        forecasts("mlr", 0.9),
        forecasts("mlr", 0.1, rate=0.01, validation=5.0),
        forecasts("swa", 1.1),
        forecasts("btt", 1.0),
        made_up("ridge", "", None, {}, mse=0.7, mae=0.4),
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
    assert (table["tried"]["mlr"], table["steps"]["mlr"], table["MSE"]["ridge"]) == (4, 10, 0.7)
    assert table["edge"].to_dict() == {"standard": "no", "btt": "no", "mlr": "no", "swa": "no", "ridge": ""}
    assert pd.isna(table["%"]["standard"])
    assert len(relative_figure(compared.reset_index(), "standard", "mse").axes) == 1


def claims_of(questions: list[Question], *parts: list[Record]) -> list[Claim]:
    records = records_of(*parts)
    return answered(records, chosen_arms(records, "mse"), questions, "mse")


BETTER = Question("it is better", ["mlr"])


def claim_of(*parts: list[Record]) -> Claim:
    (claim,) = claims_of([BETTER], *parts)
    return claim


def tables(*factors: float, seeds: int = 3) -> list[list[Record]]:
    """Runs of standard attention and of another by a factor, in a table for each factor."""
    return [
        forecasts(name, factor, dataset=f"data_{number}", seeds=seeds)
        for number, one in enumerate(factors)
        for name, factor in (("standard", 1.0), ("mlr", one))
    ]


@pytest.mark.parametrize(
    ("factors", "holds"),
    [([0.9], True), ([0.9, 0.9, 1.0], True), ([0.9, 1.0], None), ([0.9, 0.9, 1.1], None), ([1.1, 1.1, 1.0], False)],
)
def test_claims_are_decided_by_most_tables(factors: list[float], holds: bool | None) -> None:
    claim = claim_of(*tables(*factors))
    assert claim.holds is holds
    if factors == [0.9]:
        assert claim.found.startswith("data_0, 8: \N{MINUS SIGN}10.")
        assert claim.found.endswith("%), better")


def test_too_few_runs_decide_nothing() -> None:
    assert claim_of(STANDARD).found == "no such runs"
    few = claim_of(*tables(0.9, seeds=2))
    short = claim_of(forecasts("standard", 1.0, windows=10), forecasts("mlr", 0.9, windows=10))
    for claim, said in ((few, "too few seeds"), (short, "undecided")):
        assert claim.holds is None
        assert claim.found.endswith(said)


def test_a_worse_arm_with_its_rate_at_the_edge_decides_nothing() -> None:
    best, above = forecasts("standard", 1.0, rate=0.001), forecasts("standard", 1.0, rate=0.002, validation=1.5)
    for standard in ([*best, *above], best):  # one rate alone is an edge, too
        assert claim_of(standard, forecasts("mlr", 1.1)).holds is False, "that is better at an edge"
        held = claim_of(standard, forecasts("mlr", 0.9))
        assert held.holds is None
        assert held.found.endswith("better, where the rate of standard is at the edge of those tried")
    below = forecasts("standard", 1.0, rate=0.0005, validation=1.5)
    assert claim_of(best, above, below, forecasts("mlr", 0.9)).holds is True


def test_all_comparisons_of_all_questions_are_one_family() -> None:
    # a difference that is found alone, and no more where it is one of many
    others = [f"other_{number}" for number in range(8)]
    runs = [STANDARD, forecasts("mlr", 0.9975), *(forecasts(name, 1.0) for name in others)]
    (alone,) = claims_of([BETTER], *runs)
    assert alone.found.endswith(", better")
    claims = claims_of([BETTER, *(Question("so is this", [name]) for name in others)], *runs)
    assert len(claims) == 9
    assert claims[0].found.endswith(", undecided")
    assert {claim.found for claim in claims_of([BETTER] * 9, *runs)} == {alone.found}, "one asked twice counts once"


def test_blocks_are_compared_with_standard_and_with_those_by_number() -> None:
    factors = {"standard": 1.0, "numbers": 0.9, "days": 0.85, "change_points": 0.9, "swa": 1.1, "linear": 1.2}
    report = blocks.report(records_of(*(forecasts(name, factor) for name, factor in factors.items())))
    assert [claim.holds for claim in report.claims] == [True, True, True, True, None, False, False]
    assert report.claims[3].found.startswith("made_up, 8: \N{MINUS SIGN}5.")
    assert report.differs[1].startswith("Contexts of 32 steps, width 64, 10 training steps of 8 windows: ")
    assert report.table["arm"].tolist() == ["standard", "change_points", "days", "linear", "numbers", "swa"]


# regression in context

NAMES = ("btt", "bilinear_mlr", "rank", "btt_lower", "bilinear_mlr_lower", "flops", "parameters")
LOW = prompt_runs("standard", "standard", [0.8, 0.9, 0.7])
ONE = prompt_runs("standard", "standard", [0.02] * 3, heads=1)


def in_context_claims(*runs: list[Record]) -> dict[str, Claim]:
    return dict(zip(NAMES, in_context.report(records_of(closed_form(), *runs)).claims, strict=True))


def holds_of(*runs: list[Record]) -> dict[str, bool | None]:
    return {name: claim.holds for name, claim in in_context_claims(*runs).items()}


def test_heads_of_low_rank_fail_where_an_arm_learns() -> None:
    two = prompt_runs("bilinear_2", "bilinear_mlr", [0.05, 0.06, 0.04], flops=2000)
    claims = in_context_claims(LOW, ONE, prompt_runs("btt_1", "btt", [0.01, 0.02, 0.03]), two)
    assert {name: claim.holds for name, claim in claims.items()} == dict.fromkeys(claims, True)
    found = "0.0200 ± 0.0100 (btt_1, 2 times the parameters of the scores) beside 0.800 ± 0.100 (heads of rank 2)"
    assert claims["btt"].found == f"d 8, width 16: {found}"
    assert [name for name, claim in claims.items() if not claim.is_of_paper] == ["parameters"]
    assert "rank 2 come to 0.800 ± 0.100 with 1,000, btt_1 of width 16 to 0.0200 ± 0.0100" in claims["flops"].found
    assert "bilinear_2 of width 16" in claims["parameters"].found, "BTT has twice as many"


def test_what_is_behind_at_an_edge_of_the_rates_decides_nothing() -> None:
    def rates(name: str, kind: str, errors: dict[float, list[float]], **options: Any) -> list[Record]:
        each = (prompt_runs(name, kind, e, rate=rate, validation=min(e), **options) for rate, e in errors.items())
        return [run for runs in each for run in runs]

    between = {0.001: [0.95] * 3, 0.002: [0.8, 0.82, 0.81], 0.004: [0.95] * 3}
    at_edge = {0.001: [0.95] * 3, 0.002: [0.91, 0.9, 0.92], 0.004: [0.8, 0.82, 0.81]}
    btt = rates("btt_1", "btt", {0.001: [0.09] * 3, 0.002: [0.09] * 3, 0.004: [0.01, 0.02, 0.015]})
    found = holds_of(rates("standard", "standard", between), ONE, btt)
    assert (found["btt"], found["btt_lower"], found["flops"]) == (True, True, True), "that is ahead at an edge"
    claims = in_context_claims(rates("standard", "standard", at_edge), ONE, btt)
    assert [claims[name].holds for name in ("btt", "rank", "btt_lower", "flops")] == [None] * 4
    assert "beside 0.810 ± 0.010 at the edge rate 0.004 (heads of rank 2)" in claims["btt"].found
    # the rate is that of the arm that is chosen, whichever its width
    two = [*rates("btt_1", "btt", {0.001: [0.9] * 3, 0.002: [0.99] * 3}, width=24), *rates("btt_2", "btt", between)]
    best = best_arm(arms_of_prompts(described_prompts(runs_of(records_of(two)))))
    assert (set(best["arm"]), set(best["is_edge"])) == ({"btt_2"}, {False})


def test_cost_is_compared_at_what_validation_chose() -> None:
    low = prompt_runs("standard", "standard", [0.2, 0.21, 0.19])
    lucky = prompt_runs("lucky", "btt", [0.01] * 3, validation=0.5)
    chosen = prompt_runs("chosen", "btt", [0.3] * 3, validation=0.1)
    assert holds_of(low, lucky, chosen)["flops"] is False, "not by the test part"
    assert holds_of(low, prompt_runs("btt_1", "btt", [0.19, 0.2, 0.18]))["flops"] is None, "within the spread of seeds"
    claims = in_context_claims(low, prompt_runs("bilinear_1", "bilinear_mlr", [0.01] * 3, blocks=[1], ranks=[2]))
    assert claims["flops"].holds is None
    assert claims["flops"].found.endswith("and nothing has so few"), "one level is of low rank"
    assert claims["bilinear_mlr"].found == "d 8, width 16: nothing of this kind beside heads"
    wide = prompt_runs("standard", "standard", [0.2, 0.21, 0.19], width=24, flops=5000)
    assert holds_of(wide, prompt_runs("btt_1", "btt", [0.01] * 3, flops=4000))["flops"] is True, "of another width"


SHUFFLED = {"rank": 1, "left_blocks": 2, "right_blocks": 2, "shuffled": True}
BLOCKS = {"rank": 1, "left_blocks": 4, "right_blocks": 4}


@pytest.mark.parametrize(
    ("description", "width", "heads", "rank"),
    [
        ({"kind": "standard"}, 16, 8, 2),
        ({"kind": "standard"}, 16, 1, 16),
        ({"kind": "btt"}, 16, 8, 16),
        ({"kind": "bilinear_mlr", "blocks": [1, 2]}, 16, 8, 3),
        ({"kind": "bilinear_mlr", "ranks": [2, 2], "blocks": [1, 16]}, 16, 4, 16),
        ({"kind": "mlbtc", "levels": [{**SHUFFLED, "right_blocks": 4}]}, 16, 8, 8),
        ({"kind": "mlbtc", "levels": [{"rank": 1}, {**BLOCKS, "shuffled": True}]}, 32, 8, 17),
    ],
    ids=str,
)
def test_ranks_are_those_of_the_matrices(description: dict[str, Any], width: int, heads: int, rank: int) -> None:
    projection = build_attention(description, d_model=width, num_heads=heads).projection
    assert sizes_of(json.dumps(description), width, heads) == (rank, projection.num_params())


# language models

KINDS: dict[str, Any] = {
    "standard": {"kind": "standard"},
    "mlr": {"kind": "mlr", "ranks": [32, 8, 6, 4, 4, 4, 4, 2], "align": "start"},
    "swa": {"kind": "swa", "window_size": 64},
    "global_swa": {"kind": "global_swa", "window_size": 64},
}
T = 256
LINE = {64: 2.4, 128: 2.2, 192: 2.0}


def cost_of(attention: str, width: int) -> float:
    return forward_flops({"d_model": width, "num_layers": 6, "attention": KINDS[attention]}, T)


def language_runs(
    attention: str,
    losses: dict[int, float],
    rate: float | None = None,
    validation: float = 0.0,
    seeds: int = 3,
    spread: float = 0.01,
) -> list[Record]:
    """The runs of widths by their loss; all seeds of a number differ alike."""
    if rate is None:
        return at_rates(lambda rate, above: language_runs(attention, losses, rate, above, seeds, spread), 0.0, 9.0)
    found = []
    for width, loss in losses.items():
        backbone = {"d_model": width, "num_layers": 6, "attention": KINDS[attention]}
        model = {"learning_rate": rate, "backbone": backbone}
        experiment = {"data": {"init_args": {"batch_size": 4}}, "model": model, "trainer": {"max_steps": 10}}
        for seed in range(1, seeds + 1):
            scores = {"mae": loss + spread * (seed - 2), "validation_mae": loss + validation}
            found.append(made_up(f"w{width}_{rate}", attention, seed, experiment, horizon=T, **scores))
    return found


def language_claims(*runs: list[Record]) -> dict[str, Claim]:
    return dict(zip(("standard", "swa", "global_swa"), language.report(records_of(*runs)).claims, strict=True))


def on_the_line(other: str, less: float) -> dict[int, float]:
    """By width the loss of MLR attention that lies so much below the line of another."""
    costs = np.log([cost_of(other, width) for width in LINE])
    return {width: float(np.interp(np.log(cost_of("mlr", width)), costs, [*LINE.values()])) - less for width in LINE}


def test_flops_of_language_models_are_closed_forms() -> None:
    D = 64
    rest = 2 * T * 10 * D * D  # values, outputs and the token-wise networks
    before = np.tril(np.ones((T, T)))  # pairs of a character and one that it may see
    near, places = np.triu(before, -63), np.arange(T)
    # the coarse level over all pairs, the next over those of halves, and so on
    shared = sum(
        rank * (places[:, None] * 2**level // T == places * 2**level // T)
        for level, rank in enumerate(KINDS["mlr"]["ranks"])
    )
    expected = {
        "standard": D * before.sum() + D * before.sum(),
        "swa": D * near.sum() + D * near.sum(),
        "global_swa": D / 2 * (before.sum() + near.sum()) + D * before.sum(),
        "mlr": (shared * before).sum() + D * before.sum(),
    }
    for name, multiply_adds in expected.items():
        assert cost_of(name, D) == 6 * (rest + 4 * T * D * D + 2 * multiply_adds), name


@pytest.mark.parametrize(
    ("other", "less", "holds"), [("standard", 0.1, True), ("swa", -0.1, False), ("standard", 0.0, None)]
)
def test_language_models_are_compared_at_the_same_flops(other: str, less: float, holds: bool | None) -> None:
    # seeds of the other spread more: the differences spread by 0.01
    claims = language_claims(language_runs("mlr", on_the_line(other, less)), language_runs(other, LINE, spread=0.02))
    assert claims[other].holds is holds
    found = claims[other].found.replace("\N{MINUS SIGN}", "-").replace("+", "").replace("-0.000", "0.000")
    inside = (128, 192) if other == "standard" else (64, 128)
    # 4.303 is the quantile of Student's t for three seeds
    low, high = (-less + sign * 4.303 * 0.01 / math.sqrt(3) for sign in (-1, 1))
    said = [f"width {width}: {0.0 if less == 0 else -less:.3f} nats ({low:.3f} to {high:.3f})" for width in inside]
    assert found.startswith("; ".join(said).replace("-0.000", "0.000"))
    assert found.endswith("; beside the line through 2.400 ± 0.020, 2.200 ± 0.020, 2.000 ± 0.020")
    (without,) = (name for name in ("standard", "swa") if name != other)
    assert claims[without].holds is None
    assert claims[without].found == "no width has flops within those of the other"


def test_a_line_of_language_models_is_not_decided_by_too_little() -> None:
    line, below = language_runs("standard", LINE), on_the_line("standard", 0.1)
    assert language_claims(line, language_runs("mlr", {128: below[128]}))["standard"].holds is None
    few = language_claims(*(language_runs(name, LINE, seeds=2) for name in ("mlr", "standard")))
    assert few["standard"].holds is None
    apart = language_claims(line, language_runs("mlr", below | {192: below[192] + 0.2}))
    assert apart["standard"].holds is None, "below at one, above at one"


# learning rates from narrow to wide


def wave_runs(mup: bool, width: int, errors: dict[int, float], noise: float = 0.0) -> list[Record]:
    """The runs of rates by their power of 2, infinite where they diverge; noise moves neighbours up and down."""
    found = []
    for power, error in errors.items():
        backbone = {"d_model": width, "attention": {"kind": "btt"}}
        model = {"learning_rate": 2.0**power, "mup": mup, "backbone": backbone}
        experiment = {"model": model, "trainer": {"max_steps": 10}}
        status = "done" if math.isfinite(error) else "failed"
        for seed in range(3):
            own = error * (1 + 0.01 * seed) * (1 + noise * (-1) ** (seed + power))
            values = {"mse": own, "validation_mse": error} if status == "done" else {}
            found.append(made_up(f"{mup} w{width} {power}", "btt", seed, experiment, status, **values))
    return found


NARROW = {-10: 0.4, -9: 0.3, -8: 0.1, -7: 0.2, -6: 0.4}
OTHER = {-10: 0.4, -9: 0.1, -8: 0.2, -7: 0.3, -6: 0.4}


def mup_claims(
    plain_wide: dict[int, float], mup_wide: dict[int, float], narrow: dict[int, float] = NARROW, **options: Any
) -> tuple[Claim, Claim]:
    wide = {True: mup_wide, False: plain_wide}
    runs = [
        wave_runs(mup, width, errors, **options)
        for mup, own in wide.items()
        for width, errors in ((64, narrow), (256, own))
    ]
    with_mup, without = mup_transfer.report(records_of(*runs)).claims
    return with_mup, without


def test_a_rate_that_goes_over_holds_with_mup_and_refutes_without() -> None:
    with_mup, without = mup_claims(NARROW, NARROW)
    assert (with_mup.holds, without.holds) == (True, False)
    assert with_mup.found.startswith(
        "best at 64: 2^-8, at 256: 2^-8 (0.101 ± 0.001); the former costs the wide model 1.0"
    )
    with_mup, without = mup_claims(OTHER, OTHER)
    assert (with_mup.holds, without.holds) == (False, True)
    assert "costs the wide model 2.000 (2.000 to 2.000) of its least error" in without.found
    diverged = {**OTHER, -8: math.inf}
    assert "the former makes the wide model diverge" in mup_claims(diverged, diverged)[0].found


def test_a_cost_within_the_spread_of_seeds_or_an_edge_decides_nothing() -> None:
    def decided(*errors: dict[int, float], **options: Any) -> list[bool | None]:
        return [claim.holds for claim in mup_claims(*errors, **options)]

    nearly, more = ({**OTHER, -8: error} for error in (0.104, 0.106))
    for noise in (0.02, 0.05):
        assert decided(nearly, more, noise=noise) == [None, None]
    assert decided(OTHER, OTHER, noise=0.02) == [False, True], "a large one does"
    falling = {-10: 0.4, -9: 0.3, -8: 0.2, -7: 0.1}
    assert decided(falling, falling, narrow=falling) == [None, None]
    claim, _ = mup_claims(NARROW, falling)
    assert claim.holds is None
    assert "2^-7 is at the edge of the grid" in claim.found
