"""Encoder blocks computed anew in the backward pass: the same numbers from less memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tsattn.attention import build_attention
from tsattn.layers import Encoder

CASES = {"standard": "standard", "mlr": {"kind": "mlr", "ranks": [4, 2, 2]}, "swa": {"kind": "swa", "window_size": 5}}


def encoder(case: str) -> Encoder:
    torch.manual_seed(0)
    attentions = [build_attention(CASES[case], d_model=16, num_heads=2, max_length=48) for _ in range(4)]
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


@pytest.mark.parametrize("case", CASES)
def test_blocks_computed_anew_give_the_same_gradients_from_less(case: str) -> None:
    model, x = encoder(case), torch.randn(8, 48, 16)
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


def test_nothing_is_kept_where_no_gradient_is_asked_for() -> None:
    model, x = encoder("mlr").eval(), torch.randn(2, 48, 16)
    expected = model(x)
    model.recompute = True
    with torch.inference_mode():
        assert torch.equal(model(x), expected)
