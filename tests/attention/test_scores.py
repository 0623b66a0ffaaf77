"""Scores: the scale that they start at, the factor of the logits, and rotary positions."""

from __future__ import annotations

import math

import pytest
import torch

from tests.attention.cases import D_MODEL, build
from tsattn.attention import BilinearMLRAttention, build_attention
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


@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_rotated_scores_of_any_prefix_depend_on_the_distance_alone(frequencies: str) -> None:
    """So that every level of multi-level attention sees relative positions, wherever a block begins."""
    rotary = RotaryEmbedding(12, groups=(6, 2, 4), frequencies=frequencies)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 12, generator=generator, dtype=torch.float64)

    def score(query: int, key: int, prefix: int) -> float:
        rotated = (rotary(x, torch.tensor([[at]]))[..., :prefix] for x, at in ((q, query), (k, key)))
        return float(torch.linalg.vecdot(*rotated))

    for prefix in (6, 8, 12):
        near = score(10, 3, prefix)
        assert score(10 + 717, 3 + 717, prefix) == pytest.approx(near, abs=1e-12)
        assert score(10, 2, prefix) != pytest.approx(near, abs=1e-3)


def test_both_sides_of_bilinear_mlr_start_at_the_fan_in_of_a_piece() -> None:
    torch.manual_seed(0)
    projection = BilinearMLRAttention(512, 8, ranks=[32, 16, 16], blocks=[1, 4, 8], num_kv_heads=4).projection
    for factors in (projection.left, projection.right):
        for factor, pieces in zip(factors, (1, 4, 8), strict=True):  # type: ignore[arg-type]
            assert factor.shape[-2] == 512 // pieces
            assert factor.var().item() * 512 / pieces == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("description", "scaling", "factor"),
    [
        ("standard", "mup", 8 / 4),
        ("standard", 0.25, 0.25),
        ("swa", "mup", 8 / 4),
        ("btt", "mup", 1 / 16),
        ("btt", 1 / 16, 1 / 16),
        ("mlbtc", "mup", 1 / 16),
    ],
)
def test_the_factor_of_the_logits_is_a_choice(description: str, scaling: str | float, factor: float) -> None:
    """`8 / r`, `1 / D` or a number, instead of `1 / sqrt(r)` or `1 / sqrt(D)`: as if queries were that much longer."""
    torch.manual_seed(0)
    plain = build_attention(description, d_model=16, num_heads=4).double().eval()
    other = build_attention({"kind": description, "scaling": scaling}, d_model=16, num_heads=4).double().eval()
    other.load_state_dict(plain.state_dict())
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    assert other.scale == factor
    assert not torch.allclose(other(x), plain(x))
    plain.scale = factor
    assert torch.equal(other(x), plain(x))


def test_each_part_of_global_swa_has_the_factor_of_its_own_rank() -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 2}
    description = {"kind": "global_swa", "window_size": 3, "global_rank": 2, "impl": "reference"}
    plain = build_attention(description, **sizes).double().eval()
    other = build_attention({**description, "scaling": "mup"}, **sizes).double().eval()
    other.load_state_dict(plain.state_dict())
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    with torch.no_grad():  # from 1 / sqrt(r) to 8 / r in the queries
        for rank, part in ((2, slice(0, 2)), (6, slice(2, 8))):
            for head in range(2):
                rows = slice(8 * head + part.start, 8 * head + part.stop)
                plain.projection.query.weight[rows] *= 8 / math.sqrt(rank)
                plain.projection.query.bias[rows] *= 8 / math.sqrt(rank)
    torch.testing.assert_close(other(x), plain(x))
