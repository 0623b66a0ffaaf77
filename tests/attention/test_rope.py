"""Rotary positions: only distances count, at every level, and which components turn fast is a choice."""

from __future__ import annotations

import pytest
import torch

from tests.attention.cases import D_MODEL, build
from tsattn.attention import build_attention
from tsattn.attention.projections import RotaryEmbedding

T = 13


@pytest.mark.parametrize(
    "case",
    ["standard-grouped", "swa", "global_swa-sum-grouped", "btt", "btt-both-grouped", "mlbtc", "mlr-deep", "mlr-active"],
)
def test_rotations_depend_on_distance_only(case: str) -> None:
    """Shifting all positions by a whole coarsest block moves every block and window along."""
    attention = build(case, length=12, rope=True)
    x = torch.randn(1, 12, D_MODEL, dtype=torch.float64)
    still = build(case, length=12)
    positions = torch.arange(12)
    torch.testing.assert_close(
        attention(x, positions=positions + 24), attention(x, positions=positions), rtol=0, atol=1e-6
    )
    assert not torch.allclose(attention(x), still(x), atol=1e-4)


@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_which_level_turns_fast_is_a_choice(frequencies: str) -> None:
    rotary = RotaryEmbedding(16, groups=[8, 4, 4], frequencies=frequencies)
    turns = rotary.frequencies.tolist()
    assert sorted(turns) == sorted(RotaryEmbedding(16).frequencies.tolist())
    coarse, fine = turns[:4], turns[4:]
    if frequencies == "spread":
        assert max(coarse) == 1
        assert min(coarse) < max(fine) < 1
    else:
        assert (min(coarse) > max(fine)) == (frequencies == "fast_first")
        assert (max(coarse) < min(fine)) == (frequencies == "slow_first")
    description = {"kind": "mlr", "ranks": [4, 2, 2], "rope_frequencies": frequencies}
    attention = build_attention(description, d_model=16, num_heads=2, max_length=64, rope=True).double().eval()
    x = torch.randn(1, 8, 16, dtype=torch.float64)
    # moved by a whole coarse block, nothing changes: only differences of positions count
    here, there = (attention(x, positions=torch.arange(start, start + 8)) for start in (0, 16))
    torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_rotated_scores_of_any_prefix_depend_on_the_distance_alone(frequencies: str) -> None:
    """So that every level of multi-level attention sees relative positions, wherever a block begins."""
    ranks = (6, 2, 4)
    rotary = RotaryEmbedding(12, groups=ranks, frequencies=frequencies)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 12, generator=generator, dtype=torch.float64)

    def score(query: int, key: int, prefix: int) -> float:
        rotated = (rotary(x, torch.tensor([[at]]))[..., :prefix] for x, at in ((q, query), (k, key)))
        return float(torch.linalg.vecdot(*rotated))

    for prefix in (6, 8, 12):
        near = score(10, 3, prefix)
        assert score(10 + 717, 3 + 717, prefix) == pytest.approx(near, abs=1e-12)
        assert score(10, 2, prefix) != pytest.approx(near, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "frequencies"), [*zip(("standard", "global_swa", "mlr"), RotaryEmbedding.FREQUENCIES, strict=True)]
)
def test_decoding_rotates_as_the_full_pass_does(kind: str, frequencies: str) -> None:
    torch.manual_seed(0)
    description = {"kind": kind, "rope_frequencies": frequencies, **({"align": "start"} if kind == "mlr" else {})}
    sizes = {"d_model": 32, "num_heads": 2, "max_length": T, "causal": True, "rope": True}
    attention = build_attention(description, **sizes).double().eval()
    x = torch.randn(2, T, 32, dtype=torch.float64)
    cache = attention.new_cache(2)
    steps = torch.cat([attention(part, cache=cache) for part in x.split([5, *[1] * (T - 5)], 1)], 1)
    torch.testing.assert_close(steps, attention(x), rtol=0, atol=1e-12)
