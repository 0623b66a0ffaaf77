"""What levels add to scores: together they are the scores, and each is what it is by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS, build
from tsattn.attention import build_attention
from tsattn.attention.maps import attention_levels, attention_map

LENGTH = 24
WITH_LEVELS = [case for case in CASES if case.startswith(("mlr", "bilinear_mlr", "mlbtc"))]


@pytest.mark.parametrize(("case", "causal"), [(case, turn % 2 == 0) for turn, case in enumerate(WITH_LEVELS)])
def test_the_softmax_of_their_sum_is_the_map(case: str, causal: bool) -> None:
    attention = build(case, length=LENGTH, causal=causal, rope=True)
    given: dict[str, Any] = {}
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, :5] = False
    x = torch.randn(2, LENGTH, D_MODEL, dtype=torch.float64)
    bias = torch.randn(1, NUM_HEADS, LENGTH, LENGTH, dtype=torch.float64)
    given |= {"attention_mask": mask, "bias": bias}
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


def test_other_attention_has_no_levels() -> None:
    for kind in ("standard", "swa", "global_swa", "btt", "identity", "uniform"):
        attention = build_attention(kind, d_model=D_MODEL, num_heads=NUM_HEADS, max_length=9)
        assert attention_levels(attention, torch.randn(1, 9, D_MODEL)) == {}
