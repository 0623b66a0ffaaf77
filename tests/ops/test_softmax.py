"""The plain softmax: what is forbidden has no weight beside what a bias makes as unlikely as a number can say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.ops.native.kernels_there import needs_kernels
from tsattn.attention import build_attention
from tsattn.ops import full_attention, multilevel_attention, sliding_window_attention
from tsattn.ops.softmax import softmax_attention

T = 20
LEAST = torch.finfo(torch.float32).min


def least_in(*rows: int) -> Tensor:
    """A bias `(1, 1, T, T)` that is the least number in some rows, as some libraries write "forbidden"."""
    bias = torch.zeros(1, 1, T, T)
    bias[..., rows, :] = LEAST
    return bias


def multilevel(*qkv: Tensor, **more: object) -> Tensor:
    positions = torch.arange(T)[None]
    return multilevel_attention(*qkv, ranks=[2, 2], blocks=torch.stack([positions * 0, positions // 5]), **more)  # type: ignore[arg-type]


def windowed(*qkv: Tensor, **more: object) -> Tensor:
    return sliding_window_attention(*qkv, window_size=T, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attend", "impl"),
    [
        (full_attention, "reference"),
        (windowed, "sdpa"),
        (multilevel, "sdpa"),
        pytest.param(full_attention, "native", marks=needs_kernels),
        pytest.param(multilevel, "native", marks=needs_kernels),
    ],
)
def test_the_least_bias_of_a_row_leaves_its_allowed_keys_equal(attend: Callable[..., Tensor], impl: str) -> None:
    q, k, v = torch.randn(3, 2, 2, T, 4).unbind()
    real = torch.ones(2, T, dtype=torch.bool)
    real[1, 9:] = False
    out = attend(q, k, v, causal=True, key_mask=real, bias=least_in(5, 12), impl=impl)
    for row, query, keys in ((0, 5, 6), (1, 5, 6), (0, 12, 13), (1, 12, 9)):
        torch.testing.assert_close(out[row, :, query], v[row, :, :keys].mean(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["standard", "swa", {"kind": "mlr", "align": "start"}], ids=str)
def test_decoding_takes_the_least_bias_as_the_full_pass_does(kind: str | dict[str, str]) -> None:
    attention = build_attention(kind, d_model=8, num_heads=2, max_length=T, causal=True).eval()
    x, bias = torch.randn(1, T, 8), least_in(5, 12)
    cache = attention.new_cache(1)
    parts = [(0, 4), (4, 11), (11, T)]
    with torch.no_grad():
        steps = [attention(x[:, a:b], cache=cache, bias=bias[..., a:b, :b]) for a, b in parts]
        torch.testing.assert_close(torch.cat(steps, 1), attention(x, bias=bias), rtol=1e-4, atol=1e-5)


def test_other_rows_are_as_with_a_finite_fill_to_the_last_bit() -> None:
    logits, v = torch.randn(2, 3, T, T) * 4, torch.randn(2, 3, T, 5)
    allowed = torch.rand(2, 1, T, T) < 0.4
    allowed[:, :, 7] = False
    weights = logits.masked_fill(~allowed, LEAST).softmax(-1).masked_fill(~allowed, 0.0)
    out = softmax_attention(logits, v, allowed=allowed, bias=None, dropout_p=0.0)
    assert torch.equal(out, weights @ v)
    assert not out[:, :, 7].any()


def test_rows_without_keys_have_derivatives_of_zero() -> None:
    """Also where what stands at the forbidden pairs is no number."""
    logits = torch.randn(1, 1, 4, 6, dtype=torch.float64)
    allowed = torch.ones(4, 6, dtype=torch.bool).tril()
    allowed[2] = False
    logits[0, 0, 2, 3], logits[0, 0, 0, 5] = torch.nan, torch.inf
    leaf, v = logits.requires_grad_(), torch.randn(1, 1, 6, 2, dtype=torch.float64)

    def first(leaf: Tensor) -> Tensor:
        out = softmax_attention(leaf, v, allowed=allowed, bias=None, dropout_p=0.0)
        (found,) = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
        return found

    gradient = first(leaf)
    (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
    for found in (gradient, second):
        assert not found[~allowed[None, None]].any()
        assert found[0, 0, 3, :4].abs().min() > 0
        assert found.isfinite().all()
