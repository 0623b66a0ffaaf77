"""Normalisation of tokens: over a token's features, or over a feature's tokens."""

from __future__ import annotations

import pytest
import torch

from tests.toy_windows import toy_task, toy_windows
from tsattn.backbones import build_backbone
from tsattn.errors import UserError
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
