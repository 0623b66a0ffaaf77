"""Normalisation of tokens: over a token's features, or over a feature's tokens."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.toy_windows import toy_task, toy_windows
from tsattn.attention import build_attention
from tsattn.backbones import build_backbone
from tsattn.errors import UserError
from tsattn.layers import Encoder
from tsattn.layers.encoder import TOKEN_NORMS, TokenBatchNorm


def test_batch_normalisation_is_over_all_tokens_of_a_batch() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 7, 5, dtype=torch.float64) * 3 + 2
    norm = TokenBatchNorm(5).double()
    with torch.no_grad():
        norm.norm.weight.normal_()
        norm.norm.bias.normal_()
    mean, variance = x.mean((0, 1)), x.var((0, 1), correction=0)
    expected = (x - mean) / (variance + 1e-5).sqrt() * norm.norm.weight + norm.norm.bias
    torch.testing.assert_close(norm(x), expected)
    running = 0.9 + 0.1 * x.var((0, 1))
    in_eval = (x - 0.1 * mean) / (running + 1e-5).sqrt() * norm.norm.weight + norm.norm.bias
    torch.testing.assert_close(norm.eval()(x), in_eval)


def test_activations_that_are_computed_anew_count_once() -> None:
    torch.manual_seed(0)
    attentions = [build_attention("standard", d_model=8, num_heads=2, max_length=6) for _ in range(2)]
    plain = Encoder(attentions, 16, 0.0, "batch").double()
    anew = copy.deepcopy(plain)
    anew.recompute = True
    for scale in (1.0, 2.0):
        x = torch.randn(4, 6, 8, dtype=torch.float64) * scale
        torch.testing.assert_close(plain(x).square().sum(), anew(x).square().sum())
        for encoder in (plain, anew):
            encoder(x).square().sum().backward()
    for (name, one), other in zip(plain.named_parameters(), anew.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    for (name, one), other in zip(plain.named_buffers(), anew.buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


@pytest.mark.parametrize("kind", ["patchtst", "transformer", "itransformer"])
def test_backbones_take_either(kind: str) -> None:
    task = toy_task()
    for norm in TOKEN_NORMS:
        backbone = build_backbone({"kind": kind, "d_model": 8, "num_heads": 2, "norm": norm}, task).double()
        found = {type(part).__name__ for part in backbone.modules()}
        assert ("TokenBatchNorm" in found) == (norm == "batch")
        assert backbone.eval()(toy_windows(task)).isfinite().all()
    with pytest.raises(UserError, match="norm must be one of layer, batch"):
        build_backbone({"kind": kind, "norm": "none"}, task)
