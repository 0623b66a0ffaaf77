"""Multi-level attention by every way where its scale is not positive, and where ids of blocks lie far apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ops.native.kernels_there import needs_kernels
from tsattn.ops import multilevel_attention
from tsattn.ops.multilevel_tiles import multilevel_attention_traced

T = 40
POSITIONS = torch.arange(T)[None]
BLOCKS = torch.stack([POSITIONS * 0, POSITIONS // 9])


def leaves() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 2, T, 4, generator=generator, requires_grad=True) for _ in range(3)]


def value_and_gradients(impl: str, scale: float, causal: bool) -> tuple[Tensor, ...]:
    q, k, v = leaves()
    options: dict[str, Any] = {"ranks": [1, 3], "blocks": BLOCKS, "scale": scale, "causal": causal}
    if impl == "traced":
        out = multilevel_attention_traced(q, k, v, positions=POSITIONS, **options)
    else:
        out = multilevel_attention(q, k, v, impl=impl, **options)
    return out, *torch.autograd.grad(out.square().sum(), (q, k, v))


@pytest.mark.parametrize("impl", ["sdpa", "tiles", "traced", pytest.param("native", marks=needs_kernels)])
def test_a_scale_that_is_not_positive(impl: str) -> None:
    for scale, causal in ((-0.5, False), (-0.5, True), (0.0, True)):
        expected = value_and_gradients("reference", scale, causal)
        for one, other in zip(value_and_gradients(impl, scale, causal), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("apart", [-(10**9), 2**59])
def test_ids_far_apart_take_no_more_slots_than_blocks(apart: int) -> None:
    q, k, v = leaves()
    given: dict[str, Any] = {"ranks": [1, 3], "impl": "sdpa"}
    blocks = torch.stack([POSITIONS * 0 + 7, (POSITIONS // 9 * 3 - 6) * apart])
    expected = multilevel_attention(q, k, v, blocks=BLOCKS, **given)
    torch.testing.assert_close(multilevel_attention(q, k, v, blocks=blocks, **given), expected, rtol=1e-5, atol=1e-6)
