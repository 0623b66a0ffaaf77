"""What the report of each experiment decides, on records of which it is known what they say."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.paper import blocks, mup_transfer
from benchmarks.paper.character_transformer import forward_flops
from benchmarks.paper.chosen_models import answered, chosen_models, differences, models_table, relative_figure
from benchmarks.paper.claims import Claim
from benchmarks.paper.in_context import sizes_of
from benchmarks.paper.pairs import answers
from tests.docs.blocks import ROOT
from tests.paper.made_up import Record, forecasts, made_up, records_of, suite_of
from tsattn.attention import build_attention
from tsattn.leaderboard.suite import Suite, read_suite

STANDARD = forecasts("standard", 1.0)


def test_differences_are_those_of_the_chosen_runs() -> None:
    records = records_of(
        STANDARD,
        forecasts("mlr", 0.9),
        forecasts("mlr", 0.1, rate=0.01, validation=5.0),
        forecasts("swa", 1.1),
        forecasts("btt", 1.0),
        made_up("ridge", "", None, {}, mse=0.7, mae=0.4),
    )
    chosen = chosen_models(records, "mse")
    compared = differences(records, chosen, "standard", "mse").set_index("attention")
    assert compared["verdict"].to_dict() == {"mlr": "better", "swa": "worse", "btt": "equal within 1 %"}
    assert set(compared["against"]) == {"standard"}
    assert compared["percent"]["mlr"] == pytest.approx(-10, abs=0.1)
    assert compared["percent_low"]["mlr"] < compared["percent"]["mlr"] < compared["percent_high"]["mlr"]
    others = differences(records, chosen, "swa", "mae").set_index("attention")
    assert set(others.index) == {"standard", "mlr", "btt"}
    assert others["percent"]["standard"] == pytest.approx(100 * (1 / 1.1 - 1), abs=0.1)
    table = models_table(records, chosen, compared.reset_index()).set_index("model")
    assert table.index.tolist() == ["standard", "btt", "mlr", "swa", "ridge"]
    assert table["%"]["mlr"] == pytest.approx(-10, abs=0.1)
    assert (table["tried"]["mlr"], table["steps"]["mlr"], table["MSE"]["ridge"]) == (4, 10, 0.7)
    assert table["edge"].to_dict() == {"standard": "no", "btt": "no", "mlr": "no", "swa": "no", "ridge": ""}
    assert pd.isna(table["%"]["standard"])
    assert len(relative_figure(compared.reset_index(), "standard", "mse").axes) == 1


def test_a_step_is_timed_beside_that_of_the_same_seed() -> None:
    first = [{**row, "seconds": 3.0} for row in forecasts("mlr", 1.0) if row["seed"] == 1]
    seconds = {1: 2.0, 2: 20.0, 3: 20.0}  # later seeds on a slower machine
    records = records_of([{**row, "seconds": seconds[row["seed"]]} for row in STANDARD], first)
    chosen = chosen_models(records, "mse")
    compared = differences(records, chosen, "standard", "mse")
    times = models_table(records, chosen, compared).set_index("model")["time"]
    assert times.to_dict() == pytest.approx({"standard": 1, "mlr": 1.5})


def asking(*names: str) -> Suite:
    """A suite that asks of each attention whether it is better than standard attention."""
    known = dict.fromkeys([*names, "standard"])
    return suite_of(["transformer"], known, [(f"{name} is better", name, "standard") for name in names])


def claims_of(suite: Suite, *parts: list[Record]) -> list[Claim]:
    records = records_of(*parts)
    return answered(records, chosen_models(records, "mse"), suite, "mse")


def claim_of(*parts: list[Record]) -> Claim:
    (claim,) = claims_of(asking("mlr"), *parts)
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
def test_claims_are_decided_by_most_data(factors: list[float], holds: bool | None) -> None:
    claim = claim_of(*tables(*factors))
    assert claim.holds is holds
    if factors == [0.9]:
        assert claim.found.startswith("data_0: \N{MINUS SIGN}10.")
        assert claim.found.endswith("%), better")
        assert claim.size == "width 64; 3 seeds; 10 steps"


def test_horizons_are_pooled() -> None:
    factors = {8: 0.9, 16: 0.95, 32: 1.02}
    runs = [forecasts("standard", 1.0, horizon=horizon) for horizon in factors]
    runs += [forecasts("mlr", factor, horizon=horizon) for horizon, factor in factors.items()]
    claim = claim_of(*runs)
    assert claim.holds is True
    assert claim.found.startswith("made_up: \N{MINUS SIGN}4.3")


def test_too_few_runs_decide_nothing() -> None:
    assert claim_of(STANDARD).found == "no such runs"
    few = claim_of(*tables(0.9, seeds=2))
    short = claim_of(forecasts("standard", 1.0, windows=10), forecasts("mlr", 0.9, windows=10))
    for claim, said in ((few, "too few seeds"), (short, "undecided")):
        assert claim.holds is None
        assert claim.found.endswith(said)


def test_a_worse_model_with_its_rate_at_the_edge_decides_nothing() -> None:
    best, above = forecasts("standard", 1.0, rate=0.001), forecasts("standard", 1.0, rate=0.002, validation=1.5)
    standard = [*best, *above]
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
    alone = claim_of(*runs)
    assert alone.found.endswith(", better")
    claims = claims_of(asking("mlr", *others), *runs)
    assert len(claims) == 9
    assert claims[0].found.endswith(", undecided")
    twice = suite_of(["transformer"], ["standard", "mlr"], [(str(n), "mlr", "standard") for n in range(9)])
    assert {claim.found for claim in claims_of(twice, *runs)} == {alone.found}, "one asked twice counts once"


def test_blocks_are_compared_with_standard_and_with_those_by_number() -> None:
    factors = {"standard": 1.0, "numbers": 0.9, "days": 0.85, "change_points": 0.9, "swa": 1.1}
    suite = read_suite(ROOT / "benchmarks" / "paper" / "suites" / "blocks_small.yaml")
    report = blocks.report(records_of(*(forecasts(name, factor) for name, factor in factors.items())), suite)
    assert [claim.holds for claim in report.claims] == [True, True, True, True, None, False]
    assert report.claims[3].found.startswith("made_up: \N{MINUS SIGN}5.")
    assert report.differs[1].startswith("Contexts of 32 steps, width 64, 10 training steps of 8 windows: ")
    assert report.table["model"].tolist() == ["standard", "change_points", "days", "numbers", "swa"]


SIZES = ["w8", "w16"]


def models_of(**errors: dict[str, list[float]]) -> pd.DataFrame:
    """By attention the errors of the seeds of each size; `swa` has fewer flops."""
    rows = [
        {
            "model": f"{size}, {name}",
            "attention": name,
            "seed": seed,
            "error": error,
            "cost": 90 if name == "swa" else 100,
        }
        | {"is_edge": False, "width": int(size[1:]), "steps": 10}
        for name, by_size in errors.items()
        for size, own in by_size.items()
        for seed, error in enumerate(own, 1)
    ]
    return pd.DataFrame(rows)


def answer(models: pd.DataFrame, one: str = "mlr", other: str = "standard", ask: str = "so?", **how: bool) -> Claim:
    asked = [(ask, f"{size}, {one}", f"{size}, {other}") for size in SIZES]
    (claim,) = answers(models, suite_of(SIZES, ["standard", "mlr", "swa"], asked), **{"is_log": False, **how})
    return claim


HIGH = {"w8": [3.0, 3.2, 2.9], "w16": [2.0, 2.2, 1.9]}
LOW = {"w8": [2.9, 3.1, 2.81], "w16": [1.8, 2.0, 1.72]}


def test_questions_of_the_same_words_are_pooled_over_sizes_by_pairs_of_a_seed() -> None:
    claim = answer(models_of(standard=HIGH, mlr=LOW), ask="so? (ours)")
    assert (claim.holds, claim.text, claim.is_of_paper) == (True, "so?", False)
    by_seed = [-0.15, -0.15, -0.135]  # of each seed, the mean of its sizes; their standard deviation is 0.00866
    reach = 4.303 * np.std(by_seed, ddof=1) / math.sqrt(3)
    low, high = (abs(np.mean(by_seed) + sign * reach) for sign in (-1, 1))
    found = f"-0.145 nats (-{low:.3f} to -{high:.3f}), lower in 6 of 6 pairs, p 0.001"
    found += " (2.94 against 3.03; 1.84 against 2.03)"
    assert claim.found.replace("\N{MINUS SIGN}", "-") == f"{found}, with 1.00 times the flops"
    assert claim.size == "width 8, 16; 3 seeds; 10 steps"
    assert answer(models_of(standard=LOW, mlr=HIGH)).holds is False
    ratio = answer(models_of(standard=HIGH, mlr=LOW), is_log=True)
    assert (ratio.holds, ratio.found[:10]) == (True, "0.94 times")
    assert answer(models_of(standard=HIGH, mlr={**LOW, "w8": [3.0, 3.21, 2.9]})).holds is True


def test_too_few_seeds_or_too_wide_a_spread_decide_nothing() -> None:
    few = models_of(standard={s: e[:2] for s, e in HIGH.items()}, mlr={s: e[:2] for s, e in LOW.items()})
    assert answer(few).holds is None
    wide = answer(models_of(standard=HIGH, mlr={**LOW, "w8": [1.0, 3.3, 3.3]}))
    assert wide.holds is None
    assert wide.found.count("nats would be detected") == 1
    assert answer(models_of(standard=HIGH)).found == "no such runs"


def test_what_is_behind_at_most_edges_or_ahead_with_more_flops_decides_nothing() -> None:
    models = models_of(standard=HIGH, mlr=LOW)
    for sizes, holds in ((["w8"], True), (["w8", "w16"], None)):
        at_edge = models.assign(is_edge=models["model"].isin([f"{size}, standard" for size in sizes]))
        assert answer(at_edge).holds is holds
    assert answer(models.assign(is_edge=models["attention"] == "mlr")).holds is True, "what is ahead may lie at an edge"
    costly = answer(models_of(swa=HIGH, mlr=LOW), other="swa", by_cost=True)
    assert costly.holds is None
    assert "where what is lower has more flops" in costly.found
    assert answer(models_of(swa=HIGH, mlr=LOW), other="swa").holds is True
    assert answer(models_of(swa=LOW, mlr=HIGH), other="swa", by_cost=True).holds is False, (
        "fewer flops and a lower loss"
    )


SHUFFLED = {"rank": 1, "left_blocks": 2, "right_blocks": 2, "shuffled": True}
BLOCKS = {"rank": 1, "left_blocks": 4, "right_blocks": 4}


@pytest.mark.parametrize(
    ("description", "width", "heads", "rank"),
    [
        ({"kind": "standard"}, 16, 8, 2),
        ({"kind": "standard"}, 16, 1, 16),
        ({"kind": "bilinear_mlr", "blocks": [1, 2]}, 16, 8, 3),
        ({"kind": "mlbtc", "levels": [{**SHUFFLED, "right_blocks": 4}]}, 16, 8, 8),
        ({"kind": "mlbtc", "levels": [{"rank": 1}, {**BLOCKS, "shuffled": True}]}, 32, 8, 17),
    ],
    ids=str,
)
def test_ranks_are_those_of_the_matrices(description: dict[str, Any], width: int, heads: int, rank: int) -> None:
    projection = build_attention(description, d_model=width, num_heads=heads).projection
    assert sizes_of(json.dumps(description), width, heads) == (rank, projection.num_params())


LANGUAGE = read_suite(ROOT / "benchmarks" / "paper" / "suites" / "language_small.yaml")
KINDS: dict[str, Any] = {name: one.description for name, one in LANGUAGE.attentions.items()}
T = 256


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
        found = forward_flops({"d_model": D, "num_layers": 6, "attention": KINDS[name]}, T)
        assert found == 6 * (rest + 4 * T * D * D + 2 * multiply_adds), name


def wave_runs(mup: bool, best: dict[int, list[int]]) -> list[Record]:
    """Runs of rates from 2^-10 to 2^-4 of which each seed of a width has a best one, given by its power."""
    found = []
    for width, powers in best.items():
        for (seed, own), power in itertools.product(enumerate(powers), range(-10, -3)):
            model = {
                "learning_rate": 2.0**power,
                "mup": mup,
                "backbone": {"d_model": width, "attention": {"kind": "btt"}},
            }
            experiment, error = {"model": model, "trainer": {"max_steps": 10}}, 0.1 + abs(power - own)
            status = "failed" if power == -4 else "done"
            values = {} if status == "failed" else {"mse": error, "validation_mse": error}
            found.append(made_up(f"{mup} w{width} {power}", "btt", seed, experiment, status, **values))
    return found


@pytest.mark.parametrize(
    ("narrow", "wide", "by_the_rules", "said"),
    [
        ([-8, -8, -8], [-8, -8, -8], True, "1.00 times (1.00 to 1.00)"),
        ([-7, -7, -7], [-8, -9, -9], False, "0.31 times (0.12 to 0.85)"),
        ([-7, -7, -8], [-8, -6, -8], None, "times would be detected"),
        ([-10, -10, -7], [-10, -10, -8], None, "with the best rates at an edge of the grid"),
    ],
)
def test_the_best_rate_of_each_seed_moves_or_stays(
    narrow: list[int], wide: list[int], by_the_rules: bool | None, said: str
) -> None:
    runs = [wave_runs(mup, {64: narrow, 256: wide}) for mup in (True, False)]
    with_mup, without = mup_transfer.report(records_of(*runs), asking()).claims
    assert (with_mup.holds, without.holds) == (by_the_rules, None if by_the_rules is None else not by_the_rules)
    assert said in with_mup.found
    assert " from width 64 to 256" in without.found
    assert with_mup.size == "3 seeds; width 64, 256; 10 steps"
