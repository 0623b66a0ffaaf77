"""One kind of attention is another at the limit of its arguments, with the same weights."""

from __future__ import annotations

import pytest
import torch

from tests.attention.cases import D_MODEL, NUM_HEADS
from tsattn.attention import (
    Attention,
    GlobalSlidingWindowAttention,
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
