"""Patches that are hidden in training: which, how many, and what stays as it was."""

from __future__ import annotations

import pytest
import torch

from tests.toy_windows import toy_task, toy_windows
from tsattn.backbones import build_backbone
from tsattn.layers import TokenEmbedding

SMALL = {"kind": "patchtst", "patch_len": 4, "d_model": 8, "num_heads": 2, "num_layers": 1}


def test_a_hidden_patch_is_that_of_zeros_in_its_place() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(4, 8, 11, "learned", 0.0, mask=0.3).double()
    patches, term = torch.randn(200, 11, 4).double(), torch.randn(100, 11, 8).double()
    assert embedding.position is not None
    at = embedding.position + term.repeat_interleave(2, 0)
    shown, rest = embedding.value(patches) + at, embedding.value(torch.zeros_like(patches)) + at
    tokens = embedding.train()(patches, term)
    hidden = (tokens - rest).abs().amax(-1) < 1e-12
    torch.testing.assert_close(tokens, torch.where(hidden[..., None], rest, shown), rtol=0, atol=1e-12)
    assert hidden.double().mean().item() == pytest.approx(0.3, abs=0.04)  # four standard deviations of 2200 draws
    assert hidden.any(0).all()
    assert not hidden.all(0).any(), "each series has its own"
    torch.testing.assert_close(embedding.eval()(patches, term), shown)


def test_without_a_mask_nothing_is_drawn() -> None:
    windows = toy_windows(toy_task(), dtype=torch.float32)
    found = []
    for description in (SMALL, {**SMALL, "patch_mask": 0.0}, {**SMALL, "patch_mask": 0.5}):
        torch.manual_seed(3)
        backbone = build_backbone(description, toy_task()).train()
        found.append((backbone(windows), torch.rand(())))
        backbone.eval()
        found[-1] += (backbone(windows),)
    plain, none, half = found
    assert all(torch.equal(one, other) for one, other in zip(plain, none, strict=True))
    assert not torch.allclose(plain[0], half[0])
    assert torch.equal(plain[2], half[2]), "forecasts see all patches"
