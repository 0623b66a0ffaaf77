"""Encoder blocks computed anew in the backward pass: the same numbers from less memory."""

from __future__ import annotations

import torch
from torch import Tensor

from tsattn.attention import build_attention
from tsattn.layers import Encoder


def encoder() -> Encoder:
    torch.manual_seed(0)
    kinds = ("standard", {"kind": "mlr", "ranks": [4, 2, 2]}, {"kind": "swa", "window_size": 5}, "mlr")
    attentions = [build_attention(kind, d_model=16, num_heads=2, max_length=48) for kind in kinds]
    return Encoder(attentions, d_ff=64, dropout=0.3)


def value_and_gradients(model: Encoder, x: Tensor) -> tuple[list[Tensor], int]:
    """The output and the gradients of input and weights; and the bytes kept for the backward pass."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model(x)
    size = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return [out, *torch.autograd.grad(out.square().mean(), [x, *model.parameters()])], size


def test_blocks_computed_anew_give_the_same_gradients_from_less() -> None:
    model, x = encoder(), torch.randn(8, 48, 16)
    expected, everything = value_and_gradients(model, x)
    names = list(model.state_dict())
    model.recompute = True
    found, inputs = value_and_gradients(model, x)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other), "dropout drops the same numbers"
    # of each of the four blocks the input, and what the last normalisation keeps
    block = x.numel() * x.element_size()
    assert 4 * block <= inputs <= 7 * block
    assert inputs < everything / 4
    assert list(model.state_dict()) == names
