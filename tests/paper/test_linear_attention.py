"""Linear attention of the benchmarks: what the sum over all pairs gives, in values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tsattn.attention import Attention, build_attention
from tsattn.attention.maps import attention_map
from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.task import Task

KIND = "benchmarks.paper.linear_attention.LinearAttention"


def build(**more: Any) -> Attention:
    torch.manual_seed(0)
    arguments = {name: more.pop(name) for name in ("causal", "max_length") if name in more}
    return build_attention({"kind": KIND, **more}, d_model=16, num_heads=4, **arguments).double()


def over_all_pairs(attention: Attention, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """As the definition says, head by head and query by query."""
    q, k = attention.projection(x, x)
    v = attention.value(x).unflatten(-1, (k.shape[1], -1)).transpose(1, 2)
    heads = []
    for head in range(4):
        group = head * k.shape[1] // 4
        features, keys = (torch.where(one > 0, one + 1, one.exp()) for one in (q[:, head], k[:, group]))
        weights = (features[:, :, None] * keys[:, None]).sum(-1)
        if causal:
            weights = weights * torch.ones_like(weights).tril()
        if mask is not None:
            weights = weights * mask[:, None]
        total = weights.sum(-1, keepdim=True)
        heads.append(weights / total.where(total > 0, 1.0) @ v[:, group])
    out: Tensor = attention.output(torch.cat(heads, -1))
    return out


@pytest.mark.parametrize(
    ("length", "causal", "padded"),
    [(1, True, False), (3, False, True), (3, True, False), (97, False, False), (97, True, True)],
)
def test_it_is_the_sum_over_all_pairs(length: int, causal: bool, padded: bool) -> None:
    attention = build(causal=causal, num_kv_heads=2 if length == 3 else 4)
    x = torch.randn(2, length, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(2, length) > 0.3 if padded else None
    real = torch.ones(2, length, dtype=torch.bool) if mask is None else mask
    weights = [x, *attention.parameters()]
    expected = over_all_pairs(attention, x, mask, causal)[real]
    gradients = torch.autograd.grad(expected.square().sum(), weights)
    for impl in ("auto", "reference", "linear"):
        attention.impl = impl
        out = attention(x, attention_mask=mask)[real]
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)
        for one, other in zip(torch.autograd.grad(out.square().sum(), weights), gradients, strict=True):
            torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


def test_positions_decide_what_is_causal() -> None:
    attention, x = build(causal=True), torch.randn(1, 9, 16, dtype=torch.float64)
    order = torch.randperm(9)
    out = attention(x[:, order], positions=order)
    torch.testing.assert_close(out, attention(x)[:, order])
    attention.impl = "linear"
    with pytest.raises(UserError, match="takes tokens in order: leave positions out"):
        attention(x, positions=order)


def test_its_map_is_of_its_weights() -> None:
    found = attention_map(build(), torch.randn(2, 7, 16, dtype=torch.float64))
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found.sum(-1)))
    assert (found > 0).all()


def test_a_backbone_takes_it_by_its_import_path() -> None:
    task = Task("toy", 48, 8, ("a", "b"), "h", 24)
    description = {"kind": "patchtst", "d_model": 16, "num_heads": 2, "patch_len": 1, "attention": KIND}
    out = build_backbone(description, task)(Batch(torch.randn(3, 48, 2)))
    assert out.shape == (3, 8, 2)
    assert out.isfinite().all()


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(UserError, match="forms no weights that could be dropped"):
        build(dropout=0.1)
    with pytest.raises(UserError, match="it takes no bias and no dropout"):
        build()(torch.randn(1, 5, 16, dtype=torch.float64), bias=torch.zeros(5, 5))
    with pytest.raises(UserError, match="it cannot decode step by step"):
        build(causal=True).new_cache(1)
