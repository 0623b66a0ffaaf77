"""One kind of attention is another at the limit of its arguments, with the same weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.attention.cases import D_MODEL, NUM_HEADS
from tsattn.attention import (
    Attention,
    BilinearMLRAttention,
    BTTAttention,
    GlobalSlidingWindowAttention,
    MLBTCAttention,
    MLRAttention,
    SlidingWindowAttention,
    StandardAttention,
)
from tsattn.attention.patterns import GlobalSlidingWindowPattern
from tsattn.ops.native.library import why_no_kernels

T = 13


def copy_into(kind: type[Attention], source: Attention, **arguments: object) -> Attention:
    attention = kind(D_MODEL, NUM_HEADS, max_length=50, **arguments).double().eval()  # type: ignore[arg-type]
    attention.load_state_dict(source.state_dict())
    return attention


@pytest.mark.parametrize("causal", [False, True])
def test_special_cases_are_standard_attention(causal: bool) -> None:
    x = torch.randn(2, 50, D_MODEL, dtype=torch.float64)
    standard = StandardAttention(D_MODEL, NUM_HEADS, causal=causal).double().eval()
    one_level = copy_into(MLRAttention, standard, ranks=[4], causal=causal)
    one_scaled = copy_into(MLRAttention, standard, ranks=[4], causal=causal, scaling="level", divide_by="levels")
    wide_window = copy_into(SlidingWindowAttention, standard, window_size=50, causal=causal)
    narrow_window = copy_into(SlidingWindowAttention, standard, window_size=49, causal=causal)
    for impl in ("reference", "sdpa", "auto"):
        one_level.impl = one_scaled.impl = wide_window.impl = narrow_window.impl = standard.impl = impl
        torch.testing.assert_close(one_level(x), standard(x), rtol=0, atol=1e-14)
        assert torch.equal(one_scaled(x), one_level(x))
        torch.testing.assert_close(wide_window(x), standard(x), rtol=0, atol=1e-14)
        assert not torch.allclose(narrow_window(x), standard(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("combine", "impl"), [*zip(("mean", "sum") * 2, GlobalSlidingWindowPattern.impls, strict=True)]
)
def test_without_a_window_part_all_is_standard_attention(combine: str, impl: str) -> None:
    dtype = torch.float32 if impl == "native" else torch.float64
    if impl == "native" and why_no_kernels() is not None:
        pytest.skip(f"no native kernels: {why_no_kernels()}")
    x, context = torch.randn(2, 50, D_MODEL, dtype=dtype), torch.randn(2, 9, D_MODEL, dtype=dtype)
    for more in ({"causal": True, "rope": True, "num_kv_heads": 2}, {}):
        standard = StandardAttention(D_MODEL, NUM_HEADS, impl=impl, **more).to(dtype).eval()  # type: ignore[arg-type]
        same = copy_into(
            GlobalSlidingWindowAttention, standard, global_rank=4, window_size=2, combine=combine, impl=impl, **more
        ).to(dtype)
        assert torch.equal(same(x), standard(x))
    assert torch.equal(same(x, context), standard(x, context))


def with_factors(
    kind: type[Attention], source: Attention, left: list[Tensor], right: list[Tensor], **arguments: object
) -> Attention:
    """An attention of multi-level factors, with the values and outputs of another."""
    attention = kind(D_MODEL, NUM_HEADS, **arguments).double().eval()  # type: ignore[arg-type]
    attention.value, attention.output = source.value, source.output
    with torch.no_grad():
        for ours, theirs in zip((*attention.projection.left, *attention.projection.right), left + right, strict=True):  # type: ignore[misc]
            assert ours.shape == theirs.shape
            ours.copy_(theirs)
    return attention


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_one_level_in_one_piece_is_standard_attention(num_kv_heads: int) -> None:
    standard = StandardAttention(D_MODEL, NUM_HEADS, num_kv_heads=num_kv_heads).double().eval()
    query, key = standard.projection.query, standard.projection.key
    with torch.no_grad():
        query.bias.zero_()  # type: ignore[union-attr,operator]
        key.bias.zero_()  # type: ignore[union-attr,operator]
    left = query.weight.unflatten(0, (NUM_HEADS, 1, 4)).transpose(-1, -2)  # type: ignore[union-attr,operator]
    right = key.weight.unflatten(0, (num_kv_heads, 1, 4)).transpose(-1, -2)  # type: ignore[union-attr,operator]
    x = torch.randn(2, T, D_MODEL, dtype=torch.float64)
    bilinear = with_factors(BilinearMLRAttention, standard, [left], [right], ranks=[4], num_kv_heads=num_kv_heads)
    torch.testing.assert_close(bilinear(x), standard(x), rtol=0, atol=1e-13)
    # scores over sqrt(D) in place of sqrt(r)
    low_rank = with_factors(
        MLBTCAttention, standard, [2 * left], [right], levels=[{"rank": 4}], num_kv_heads=num_kv_heads
    )
    torch.testing.assert_close(low_rank(x), standard(x), rtol=0, atol=1e-13)


def test_mlbtc_contains_bilinear_mlr_and_btt() -> None:
    x = torch.randn(2, T, D_MODEL, dtype=torch.float64)
    btt = BTTAttention(D_MODEL, NUM_HEADS, tt_rank=2, side="both", num_kv_heads=2, qk_norm=False).double().eval()
    level = {"rank": 2, "left_blocks": 4, "right_blocks": 4, "shuffled": True}
    factors = [btt.projection.left], [btt.projection.right]
    same = with_factors(MLBTCAttention, btt, *factors, levels=[level], num_kv_heads=2)  # type: ignore[arg-type]
    torch.testing.assert_close(same(x), btt(x), rtol=0, atol=1e-13)

    ranks, blocks = [2, 1, 1], [1, 4, 8]
    mlr = BilinearMLRAttention(D_MODEL, NUM_HEADS, ranks=ranks, blocks=blocks).double().eval()
    left = [math.sqrt(D_MODEL / (p * r)) * f for f, r, p in zip(mlr.projection.left, ranks, blocks, strict=True)]  # type: ignore[arg-type]
    levels = [{"rank": r, "left_blocks": p, "right_blocks": p} for r, p in zip(ranks, blocks, strict=True)]
    same = with_factors(MLBTCAttention, mlr, left, list(mlr.projection.right), levels=levels)  # type: ignore[arg-type]
    torch.testing.assert_close(same(x), mlr(x), rtol=0, atol=1e-13)
