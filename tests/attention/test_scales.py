"""The factors of the logits, and the scale that scores start at."""

from __future__ import annotations

import math

import pytest
import torch

from tsattn.attention import BilinearMLRAttention, build_attention


def test_both_sides_of_bilinear_mlr_start_at_the_fan_in_of_a_piece() -> None:
    torch.manual_seed(0)
    projection = BilinearMLRAttention(512, 8, ranks=[32, 16, 16], blocks=[1, 4, 8], num_kv_heads=4).projection
    for factors in (projection.left, projection.right):
        for factor, pieces in zip(factors, (1, 4, 8), strict=True):  # type: ignore[arg-type]
            assert factor.shape[-2] == 512 // pieces
            assert factor.var().item() * 512 / pieces == pytest.approx(1, rel=0.05)


def test_scores_start_at_a_scale_that_softmax_can_use() -> None:
    torch.manual_seed(0)
    for kind in ("standard", "bilinear_mlr", "btt", "mlbtc"):
        projection = build_attention({"kind": kind}, d_model=256, num_heads=4).projection
        x = torch.randn(1, 200, 256)
        q, k = projection(x, x)
        assert 0.2 < (projection.scale * q @ k.transpose(-1, -2)).std() < 2.5


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
