"""Attention maps are the probabilities that the output was mixed with, for every kind; levels add up to its scores."""

from typing import Any

import numpy as np
import pytest
import torch
from einops import rearrange, repeat
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS, PATTERN_PAIRS, build
from tsattn.attention import Attention, build_attention
from tsattn.attention.maps import attention_levels, attention_map, attention_zones
from tsattn.ops.data_blocks import calendar_block_ids

LENGTH = 24


def mixed_by_hand(attention: Attention, source: Tensor, weights: Tensor) -> Tensor:
    values = rearrange(attention.value(source), "B S (G e) -> B G S e", G=attention.num_kv_heads)
    values = repeat(values, "B G S e -> B (G h) S e", h=attention.num_heads // attention.num_kv_heads)
    return attention.output(rearrange(weights @ values, "B H N e -> B N (H e)"))


@pytest.mark.parametrize(("case", "causal"), PATTERN_PAIRS)
def test_maps_times_values_are_the_output(case: str, causal: bool) -> None:
    attention = build(case, length=LENGTH, causal=causal, rope=True)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, :5] = False
    special = torch.zeros(LENGTH, dtype=torch.bool)
    special[[3, 20]] = True
    x = torch.randn(2, LENGTH, D_MODEL, dtype=torch.float64)
    bias = torch.randn(1, NUM_HEADS, LENGTH, LENGTH, dtype=torch.float64)
    total = 2.0 if CASES[case].get("combine") == "sum" else 1.0
    for padded, biased, has_global in (
        (False, False, False),
        (True, True, False),
        (True, False, True),
        (False, True, True),
    ):
        given = {
            "attention_mask": mask if padded else None,
            "bias": bias if biased else None,
            "global_tokens": special if has_global else None,
        }
        weights = attention_map(attention, x, **given)
        assert weights.shape == (2, NUM_HEADS, LENGTH, LENGTH)
        torch.testing.assert_close(mixed_by_hand(attention, x, weights), attention(x, **given), rtol=1e-10, atol=1e-12)
        sums = weights.sum(-1)
        real = mask[:, None].expand_as(sums) if padded else torch.ones_like(sums, dtype=torch.bool)
        torch.testing.assert_close(sums[real], torch.full_like(sums[real], total))
        if causal and padded:  # padding before the first real token sees nothing
            assert not weights[0, :, :5].any()
        assert (weights >= 0).all()
        if causal:
            assert not weights.triu(1).any()


def test_maps_of_cross_attention_and_of_a_model_in_training() -> None:
    attention = build("standard-grouped", length=LENGTH, seed=3).train()
    attention.dropout = 0.5
    x, context = torch.randn(2, 5, D_MODEL).double(), torch.randn(2, 9, D_MODEL).double()
    weights = attention_map(attention, x, context)
    assert weights.shape == (2, NUM_HEADS, 5, 9)
    assert not weights.requires_grad
    torch.testing.assert_close(mixed_by_hand(attention, context, weights), attention.eval()(x, context))


def test_maps_of_low_precision_are_at_least_float32() -> None:
    attention = build("mlr", length=LENGTH, dtype=torch.bfloat16)
    weights = attention_map(attention, torch.randn(1, LENGTH, D_MODEL).bfloat16())
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, NUM_HEADS, LENGTH))


def test_zones_are_what_the_pattern_favours() -> None:
    x = torch.randn(1, 12, D_MODEL)
    i, j = torch.arange(12)[:, None], torch.arange(12)[None]

    def zones(description: object, **sizes: object) -> dict[str, Tensor]:
        attention = build_attention(description, d_model=D_MODEL, num_heads=NUM_HEADS, max_length=12, **sizes)
        return {name: zone[0] for name, zone in attention_zones(attention, x).items()}

    assert zones("standard") == zones("btt") == {}
    swa = zones({"kind": "swa", "window_size": 3})
    assert list(swa) == ["window of 3"]
    assert torch.equal(swa["window of 3"], (i - j).abs() < 3)
    causal = zones({"kind": "global_swa", "window_size": 3}, causal=True)
    assert torch.equal(causal["window of 3"], ((i - j).abs() < 3) & (j <= i))
    assert zones({"kind": "global_swa", "global_rank": 4}) == {}
    mlr = zones({"kind": "mlr", "ranks": [3, 1], "blocks": [1, 3]})
    assert list(mlr) == ["level 1: 3 components", "level 2: 1 component"]
    assert mlr["level 1: 3 components"].all()
    assert torch.equal(mlr["level 2: 1 component"], i // 4 == j // 4)


def test_zones_of_calendar_blocks_and_global_tokens() -> None:
    description = {"kind": "mlr", "ranks": [2, 2], "blocks": {"calendar": ["all", "day"]}}
    attention = build_attention(description, d_model=D_MODEL, num_heads=NUM_HEADS, max_length=12)
    blocks = calendar_block_ids(torch.arange(12)[None] * 6 * 3600, ["all", "day"])
    special = torch.arange(12) == 5
    zones = attention_zones(attention, torch.randn(1, 12, D_MODEL), blocks=blocks, global_tokens=special)
    assert list(zones) == ["level 1 (all): 2 components", "level 2 (day): 2 components"]
    i = torch.arange(12)
    expected = (i[:, None] // 4 == i // 4) | special | special[:, None]
    assert torch.equal(zones["level 2 (day): 2 components"][0], expected)


WITH_LEVELS = [case for case in CASES if case.startswith(("mlr", "bilinear_mlr", "mlbtc"))]


@pytest.mark.parametrize(("case", "causal"), [(case, turn % 2 == 0) for turn, case in enumerate(WITH_LEVELS)])
def test_the_softmax_of_the_sum_of_levels_is_the_map(case: str, causal: bool) -> None:
    attention = build(case, length=LENGTH, causal=causal, rope=True)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, :5] = False
    x = torch.randn(2, LENGTH, D_MODEL, dtype=torch.float64)
    bias = torch.randn(1, NUM_HEADS, LENGTH, LENGTH, dtype=torch.float64)
    given: dict[str, Any] = {"attention_mask": mask, "bias": bias}
    scores = attention_levels(attention, x, **given)
    assert list(scores) == [f"level {number}" for number in range(1, len(scores) + 1)]
    seen = mask[:, None, None, :] & (torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril() if causal else True)
    logits = (sum(scores.values()) + bias).masked_fill(~seen, -torch.inf)
    expected = logits.softmax(-1).nan_to_num(0.0)
    real = mask[:, None, :, None]  # rows of padded queries mean nothing
    torch.testing.assert_close(attention_map(attention, x, **given) * real, expected * real, rtol=1e-9, atol=1e-12)
    assert all(not level[~seen.expand_as(level)].any() for level in scores.values())


@pytest.mark.parametrize("divide_by", ["none", "active"])
def test_levels_of_mlr_by_hand(divide_by: str) -> None:
    ranks, numbers, N, special = [2, 1, 1], [1, 2, 4], 8, 3
    attention = build_attention(
        {"kind": "mlr", "ranks": ranks, "blocks": numbers, "divide_by": divide_by, "scaling": "level"},
        d_model=D_MODEL,
        num_heads=NUM_HEADS,
        max_length=N,
    ).double()
    x = torch.randn(1, N, D_MODEL, dtype=torch.float64)
    is_global = torch.arange(N) == special
    found = attention_levels(attention, x, global_tokens=is_global)
    q, k = (part[0].detach().numpy() for part in attention.projection(x, x))
    for h, i, j in np.ndindex(NUM_HEADS, N, N):
        shared = [i * n // N == j * n // N or special in (i, j) for n in numbers]
        begin = 0
        for level, rank in enumerate(ranks):
            part = slice(begin, begin + rank)
            begin += rank
            # under scaling: level the factor is 1 / sqrt(r_l)
            score = shared[level] * (q[h, i, part] @ k[h, j, part]) / np.sqrt(rank)
            score /= max(1, sum(shared)) if divide_by == "active" else 1
            assert found[f"level {level + 1}"][0, h, i, j].item() == pytest.approx(score, abs=1e-12)
