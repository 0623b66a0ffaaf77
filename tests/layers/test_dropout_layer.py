"""The layer that drops numbers, in the place of PyTorch's."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from tsattn.attention import build_attention
from tsattn.backbones import build_backbone
from tsattn.errors import UserError
from tsattn.layers import Dropout, EncoderBlock
from tsattn.task import Task


def test_it_is_a_dropout_of_torch() -> None:
    layer = Dropout(0.25)
    assert isinstance(layer, nn.Dropout), "as those look for who drop numbers in forecasts too"
    assert repr(layer) == "Dropout(p=0.25)"
    assert not layer.state_dict()
    x = torch.randn(30, 40)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        results = []
        for one in (layer, other):
            torch.manual_seed(0)
            results.append(one(x, x))
        assert torch.equal(*results)
    layer.p = 0.0
    assert layer(x) is x
    task = Task("none", 32, 8, ("one",), "h", 24)
    for kind in ("patchtst", "transformer"):
        model = build_backbone({"kind": kind, "d_model": 8, "num_heads": 2, "num_layers": 1, "calendar": True}, task)
        layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
        assert [type(one) for one in layers] == [Dropout] * 4


def test_a_block_drops_both_branches_and_the_hidden_numbers() -> None:
    torch.manual_seed(0)
    block, x = EncoderBlock(build_attention("standard", d_model=8, num_heads=2), 16, 0.5), torch.randn(50, 7, 8)
    nn.init.zeros_(block.attention.output.weight)
    nn.init.ones_(block.attention.output.bias)
    nn.init.zeros_(block.feedforward[3].weight)
    nn.init.ones_(block.feedforward[3].bias)
    added = (block(x) - x).detach()
    # each branch is 1, and 2 or 0 after dropping
    values, shares = torch.unique(added.round(), return_counts=True)
    assert values.tolist() == [0, 2, 4]
    torch.testing.assert_close(shares / added.numel(), torch.tensor([0.25, 0.5, 0.25]), atol=0.03, rtol=0)


def test_a_wrong_probability_is_refused() -> None:
    for p in (-0.1, 1, float("nan")):
        with pytest.raises(UserError, match=r"dropout must lie in \[0, 1\), not "):
            Dropout(p)
