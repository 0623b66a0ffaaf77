"""What the report of language models decides, on records of which it is known what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.paper import language
from benchmarks.paper.character_transformer import forward_flops
from benchmarks.paper.claims import Claim
from tests.paper.made_up import AROUND, Record, made_up, records_of

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
    """The runs of widths by their loss; all seeds of a number differ alike. Without a rate, the best one of three."""
    if rate is None:
        tried = {0.001: validation, **dict.fromkeys(AROUND, 9.0)}
        found = [language_runs(attention, losses, rate, above, seeds, spread) for rate, above in tried.items()]
        return [one for part in found for one in part]
    found = []
    for width, loss in losses.items():
        backbone = {"d_model": width, "num_layers": 6, "attention": KINDS[attention]}
        experiment = {
            "data": {"init_args": {"batch_size": 4}},
            "model": {"learning_rate": rate, "backbone": backbone},
            "trainer": {"max_steps": 10},
        }
        for seed in range(1, seeds + 1):
            scores = {"mae": loss + spread * (seed - 2), "validation_mae": loss + validation}
            found.append(made_up(f"w{width}_{rate}", attention, seed, experiment, horizon=T, **scores))
    return found


def language_claims(*runs: list[Record]) -> dict[str, Claim]:
    report = language.report(records_of(*(one for part in runs for one in part)))
    return dict(zip(("standard", "swa", "global_swa"), report.claims, strict=True))


def on_the_line(other: str, less: float) -> dict[int, float]:
    """By width the loss of MLR attention that lies so much below the line of another."""
    costs = np.log([cost_of(other, width) for width in LINE])
    return {width: float(np.interp(np.log(cost_of("mlr", width)), costs, [*LINE.values()])) - less for width in LINE}


def test_flops_of_language_models_are_closed_forms() -> None:
    D = 64
    rest = 2 * T * 10 * D * D  # values, outputs and the token-wise networks
    before = np.tril(np.ones((T, T)))  # pairs of a character and one that it may see
    near = np.triu(before, -63)
    places = np.arange(T)
    levels = enumerate(KINDS["mlr"]["ranks"])
    # the coarse level over all pairs, the next over those of halves, and so on
    shared = sum(rank * (places[:, None] * 2**level // T == places * 2**level // T) for level, rank in levels)
    expected = {
        "standard": D * before.sum() + D * before.sum(),
        "swa": D * near.sum() + D * near.sum(),
        "global_swa": D / 2 * (before.sum() + near.sum()) + D * before.sum(),
        "mlr": (shared * before).sum() + D * before.sum(),
    }
    for name, multiply_adds in expected.items():
        assert cost_of(name, D) == 6 * (rest + 4 * T * D * D + 2 * multiply_adds), name


@pytest.mark.parametrize("other", ["standard", "swa"])
@pytest.mark.parametrize(("less", "holds"), [(0.1, True), (-0.1, False), (0.0, None)])
def test_language_models_are_compared_at_the_same_flops(other: str, less: float, holds: bool | None) -> None:
    # seeds of the other spread more: the differences spread by 0.01
    runs = language_runs("mlr", on_the_line(other, less)), language_runs(other, LINE, spread=0.02)
    claims = language_claims(*runs)
    assert claims[other].holds is holds
    found = claims[other].found.replace("\N{MINUS SIGN}", "-").replace("+", "")
    inside = (128, 192) if other == "standard" else (64, 128)
    # 4.303 is the quantile of Student's t for three seeds
    low, high = (-less + sign * 4.303 * 0.01 / math.sqrt(3) for sign in (-1, 1))
    said = [f"width {width}: {0.0 if less == 0 else -less:.3f} nats ({low:.3f} to {high:.3f})" for width in inside]
    assert found.replace("-0.000", "0.000").startswith("; ".join(said).replace("-0.000", "0.000"))
    assert found.endswith("; beside the line through 2.400 ± 0.020, 2.200 ± 0.020, 2.000 ± 0.020")
    (without,) = (name for name in ("standard", "swa") if name != other)
    assert claims[without].holds is None
    assert claims[without].found == "no width has flops within those of the other"


def test_a_line_of_language_models_is_not_decided_by_too_little() -> None:
    line = language_runs("standard", LINE)
    below = on_the_line("standard", 0.1)
    one_width = {128: below[128]}
    assert language_claims(line, language_runs("mlr", one_width))["standard"].holds is None
    few = language_claims(*(language_runs(name, LINE, seeds=2) for name in ("mlr", "standard")))
    assert few["standard"].holds is None
    apart = below | {192: below[192] + 0.2}
    assert language_claims(line, language_runs("mlr", apart))["standard"].holds is None, "below at one, above at one"
    begun = [*language_runs("mlr", below), *language_runs("mlr", {128: 9.0}, rate=0.01, validation=9.0, seeds=1)]
    claim = language_claims(line, begun)["standard"]
    assert claim.holds is None
    assert claim.found.endswith("; rates are still to be tried")
