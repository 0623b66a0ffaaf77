"""Constant tensors of modules hold their numbers, whatever way a model comes to its weights."""

import copy

import torch
from torch import nn

from tsattn.attention import build_attention
from tsattn.batch import ModuleWithConstants
from tsattn.layers import QuantileFan

LEVELS = (0.1, 0.5, 0.9)


def model() -> nn.Module:
    attention = build_attention({"kind": "mlr", "ranks": [4, 2, 2]}, d_model=16, num_heads=2, max_length=12, rope=True)
    return nn.ModuleList([attention, QuantileFan(LEVELS)])


def outputs(module: nn.Module) -> list[torch.Tensor]:
    attention, fan = module.children()
    x = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(0))
    return [attention(x), fan(x[..., 0], x[..., :2])]


def test_models_made_on_meta_get_their_constants_back() -> None:
    torch.manual_seed(0)
    real = model()
    expected = outputs(real)
    with torch.device("meta"):
        hollow = model()
    filled = copy.deepcopy(hollow).to_empty(device="cpu")
    filled.load_state_dict(real.state_dict())
    hollow.load_state_dict(real.state_dict(), assign=True)
    emptied = model()
    for buffer in emptied.buffers():
        buffer.fill_(7)
    emptied.to_empty(device="cpu").load_state_dict(real.state_dict())
    for module in (filled, hollow, emptied, copy.deepcopy(hollow), copy.deepcopy(hollow).to("cpu")):
        for found, one in zip(outputs(module), expected, strict=True):
            torch.testing.assert_close(found, one, rtol=0, atol=0)


def test_constants_follow_casts_and_stay_out_of_state_dicts() -> None:
    fan = QuantileFan(LEVELS)
    assert not fan.state_dict()
    exact = fan.normal.clone()
    assert fan.to(torch.bfloat16).normal.dtype == torch.bfloat16
    assert torch.equal(fan.to(torch.float32).normal, exact), "a cast and back loses nothing"


def test_whole_numbers_are_never_cast() -> None:
    module = ModuleWithConstants()
    module.register_constant("order", [2, 0, 1], torch.long, cast=False)
    assert torch.equal(module.to(torch.bfloat16).get_buffer("order"), torch.tensor([2, 0, 1]))
