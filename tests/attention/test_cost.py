"""Closed forms equal the formulas of the paper, and what is counted on a built attention."""

from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import pytest
import torch

from tests.attention.cases import CASES, NUM_HEADS, PATTERN_CASES, build
from tsattn.attention import StandardAttention, build_attention
from tsattn.attention.base import Attention
from tsattn.attention.cost import AttentionCost, attention_cost, closed_form, measured, measured_key_bytes
from tsattn.attention.patterns import FullPattern, Pattern
from tsattn.attention.projections import LowRankProjection
from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.ops import executed_flops

D, H, T = 768, 12, 4096


def cost(description: str | dict[str, Any], D: int, H: int, T: int, **more: Any) -> AttentionCost:
    return attention_cost(description, d_model=D, num_heads=H, tokens=T, **more)


def test_sliding_window() -> None:
    r, w = D // H, 5
    description = {"kind": "swa", "window_size": w}
    both, causal = cost(description, D, H, T), cost(description, D, H, T, causal=True)
    assert both.score_flops_per_head == 2 * T * (2 * w - 1) * r
    assert causal.score_flops_per_head == 2 * T * w * r
    assert both.cached_keys_per_head == causal.cached_keys_per_head == w * r
    assert both.score_params == 2 * D * D


@pytest.mark.parametrize(("D", "b", "c", "T", "s"), [(64, 8, 8, 96, 3), (768, 32, 24, 200, 2)])
def test_btt(D: int, b: int, c: int, T: int, s: int) -> None:
    H = 4
    key, query, both = (cost({"kind": "btt", "tt_rank": s, "side": side}, D, H, T) for side in ("key", "query", "both"))
    for one in (key, query, both):
        assert one.score_params_per_head == D * s * (b + c)
        assert one.projection_flops == 2 * T * D * s * (b + c) * H
    assert key.score_flops_per_head == query.score_flops_per_head == 2 * T**2 * D
    assert both.score_flops_per_head == 2 * T**2 * b * c * s
    # mapped on the query side, the tokens themselves are the keys of all heads
    assert (key.cached_keys, query.cached_keys, both.cached_keys) == (T * D * H, T * D, T * b * c * s * H)
    if b == c:
        assert key.score_params_per_head == 2 * round(D**1.5) * s


@pytest.mark.parametrize("ranks", [[64], [32, 16, 16], [8] * 8])
def test_multi_level(ranks: list[int]) -> None:
    D, H, T = 512, 8, 1024
    spent = cost({"kind": "mlr", "ranks": ranks}, D, H, T)
    assert spent.score_params_per_head == 2 * D * 64
    assert spent.score_flops_per_head == sum(2 * T**2 * r // 2**level for level, r in enumerate(ranks))
    assert spent.cached_keys_per_head == sum(T * r // 2**level for level, r in enumerate(ranks))
    if len(ranks) == 1:
        assert spent == cost("standard", D, H, T)
    if len(ranks) == 8 and len(set(ranks)) == 1:  # two of eight levels' worth of keys
        assert spent.cached_keys / cost("standard", D, H, T).cached_keys < 0.26


@pytest.mark.parametrize(
    ("description", "T"),
    [
        ({"blocks": [1, 3, 6]}, 60),
        ({"blocks": {"lengths": [48, 24, 8]}, "align": "start"}, 100),
        ({"blocks": {"lengths": [48, 24, 8]}, "align": "end"}, 60),
    ],
)
def test_multi_level_counts_uneven_blocks_as_they_are(description: dict[str, Any], T: int) -> None:
    max_length, ranks, sizes = 100, (2, 1, 1), description["blocks"]
    spent = cost({"kind": "mlr", "ranks": list(ranks), **description}, 16, 4, T, max_length=max_length)
    start = 0 if description.get("align") == "start" else max_length - T
    scored = held = 0
    for level, rank in enumerate(ranks):

        def block(t: int, level: int = level) -> int:
            position = start + t
            by_length = isinstance(sizes, dict)
            return position // sizes["lengths"][level] if by_length else position * sizes[level] // max_length

        scored += rank * sum(block(i) == block(j) for i in range(T) for j in range(T))
        held += rank * max(sum(block(j) == block(t) for j in range(t + 1)) for t in range(T))
    assert spent.score_flops_per_head == 2 * scored
    assert spent.cached_keys_per_head == held


@pytest.mark.parametrize("causal", [False, True])
def test_global_and_sliding_window(causal: bool) -> None:
    D, H, T, w = 512, 8, 1024, 32
    spent = cost({"kind": "global_swa", "global_rank": 48, "window_size": w}, D, H, T, causal=causal)
    assert spent.score_flops_per_head == 2 * T**2 * 48 + 2 * T * (w if causal else 2 * w - 1) * 16
    assert spent.cached_keys_per_head == T * 48 + w * 16
    assert cost({"kind": "global_swa", "global_rank": 64}, D, H, T) == cost("standard", D, H, T)


@pytest.mark.parametrize("case", CASES)
def test_measured(case: str) -> None:
    for T, causal in ((60, False), (96, True), (1, False))[: 3 if case in PATTERN_CASES else 1]:
        attention = build(case, length=96, causal=causal)
        form, count = closed_form(attention, T), measured(attention, T)
        learned = attention.projection.num_params() + attention.pattern.num_params()
        assert count.score_params == form.score_params == learned
        assert count.projection_flops == form.projection_flops
        # the reference forms every pair with all components; no closed form is above that
        assert count.score_flops == 2 * T**2 * attention.projection.width * NUM_HEADS
        assert count.score_flops >= form.score_flops
        if isinstance(attention.pattern, FullPattern):
            assert count.score_flops == form.score_flops


def test_measuring_takes_no_memory_and_changes_nothing() -> None:
    attention = build("mlr", length=2**16)
    before = {name: value.clone() for name, value in attention.state_dict().items()}
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    assert measured(attention, 2**16).score_flops == 2 * 2**32 * 4 * NUM_HEADS
    assert getrusage(RUSAGE_SELF).ru_maxrss - peak < 512 * 1024  # kibibytes: nothing grows with the square of T
    assert all(torch.equal(value, before[name]) for name, value in attention.state_dict().items())
    assert {value.device.type for value in attention.state_dict().values()} == {"cpu"}


class EveryOther(Pattern):
    __call__ = FullPattern.__call__


def test_the_cost_of_a_new_pattern_is_a_method() -> None:
    attention = Attention(16, 4, projection=LowRankProjection(16, 4, None, 4), pattern=EveryOther())
    with pytest.raises(UserError, match="the cost of EveryOther is not known: it has no method cost"):
        closed_form(attention, 8)
    assert measured(attention, 8).score_flops == measured(StandardAttention(16, 4), 8).score_flops


@pytest.mark.parametrize(
    ("description", "causal"),
    [
        ("standard", True),
        ("swa", False),
        ("swa", True),
        ("btt", False),
        ({"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 8, 16]}, False),
    ],
    ids=str,
)
def test_executed_flops_are_those_of_a_call(description: Description, causal: bool) -> None:
    """Counted without computing, and counted in a call of the module less its projections."""
    T, D, H = 640, 16, 2
    attention = build_attention(description, d_model=D, num_heads=H, max_length=T, causal=causal)
    with torch.no_grad():
        whole = executed_flops(lambda: attention(torch.randn(1, T, D)))
    count = measured(attention, T)
    assert count.executed_flops == whole - count.projection_flops - 2 * (2 * T * D * D)


def test_what_has_no_cost_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"tokens": 0}, "tokens must be at least 1, not 0"),
        ({"num_heads": -1}, "num_heads must be at least 1, not -1"),
        ({"max_length": 8}, "9 tokens are more than max_length 8"),
    ]
    for words, message in refused:
        with pytest.raises(UserError, match=message):
            attention_cost(**{"description": "standard", "d_model": 16, "num_heads": 4, "tokens": 9, **words})
    with pytest.raises(UserError, match="9 tokens are more than max_length 8"):
        measured(build("mlr", length=8), 9)
    with pytest.raises(UserError, match="cannot decode step by step: it needs causal=True"):
        measured_key_bytes(build("standard", length=9), 9)
