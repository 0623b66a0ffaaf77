"""DLinear and NLinear against their formulas, step by step."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.toy_windows import LEVELS, toy_task, toy_windows
from tsattn.backbones import build_backbone
from tsattn.backbones.ltsf_linear import moving_average
from tsattn.layers import InstanceNorm, QuantileFan
from tsattn.task import Output


def averaged(series: Tensor, size: int) -> Tensor:
    L, half = series.shape[-1], size // 2
    columns = [
        sum(series[..., min(max(step + shift, 0), L - 1)] for shift in range(-half, half + 1)) / size
        for step in range(L)
    ]
    return torch.stack(columns, -1)


@pytest.mark.parametrize(("shape", "size"), [((1,), 3), ((7,), 61), ((2, 3, 24), 25), ((512,), 1)])
def test_the_moving_average_is_the_mean_of_neighbours(shape: tuple[int, ...], size: int) -> None:
    series = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    found, expected = moving_average(series, size), averaged(series, size)
    torch.testing.assert_close(found, expected)
    one, other = (torch.autograd.grad(out.square().sum(), series)[0] for out in (found, expected))
    torch.testing.assert_close(one, other)


def test_the_moving_average_keeps_its_precision_at_any_level() -> None:
    series = 1e4 + torch.randn(2000)
    expected = averaged(series.double(), 25)
    assert (moving_average(series, 25).double() - expected).abs().max() < 4e-3  # a few times the last digit at 1e4
    low = (series - 1e4).bfloat16()
    assert (moving_average(low, 25).double() - averaged(low.double(), 25)).abs().max() < 1e-2


def maps(part: Any, channel: int) -> tuple[Tensor, Tensor]:
    if part.weight is None:
        return part.shared.weight, part.shared.bias
    return part.weight[channel], part.bias.view(len(part.weight), -1)[channel]


@pytest.mark.parametrize(
    ("kind", "individual", "levels"), [("dlinear", False, LEVELS), ("dlinear", True, ()), ("nlinear", True, LEVELS)]
)
def test_each_channel_is_mapped_as_the_formula_says(kind: str, individual: bool, levels: tuple[float, ...]) -> None:
    task, fan = toy_task(), QuantileFan(levels).double()
    torch.manual_seed(0)
    backbone: Any = build_backbone({"kind": kind, "individual": individual}, task, Output(levels)).double()
    windows = toy_windows(task)
    columns = []
    for channel in range(3):
        past = windows.past[..., channel]
        if kind == "dlinear":
            trend = averaged(past, 25)
            parts = [(trend, backbone.trend), (past - trend, backbone.remainder)]
            level: Any = torch.zeros(4, 1, dtype=torch.float64)
        else:
            level = past[:, -1:]
            parts = [(past - level, backbone.linear)]
        raw: Any = 0
        for x, part in parts:
            weight, bias = maps(part, channel)
            raw = raw + x @ weight.T + bias
        raw = raw.view(4, 8, -1)
        columns.append(fan(raw[..., 0] + level, raw[..., 1:]))
    expected = torch.stack(columns, 2)
    found = backbone(windows)
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad(out.square().sum(), [*backbone.parameters()]) for out in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["dlinear", "nlinear"])
def test_what_is_missing_before_the_first_value_stands_at_the_mean(kind: str) -> None:
    task = toy_task()
    torch.manual_seed(0)
    backbone = build_backbone(kind, task).double()
    windows = toy_windows(task, gaps=True)
    filled = InstanceNorm(windows.past, windows.past_observed).past
    torch.testing.assert_close(backbone(windows), backbone(replace(windows, past=filled, past_observed=None)))
    assert not torch.allclose(backbone(windows)[0], backbone(replace(windows, past_observed=None))[0])
