"""The networks and solutions of prompts: causal, of the right tokens, and as statistics has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.paper.prompt_solutions import PromptRidge
from benchmarks.paper.prompt_transformer import PromptTransformer
from benchmarks.paper.prompts import flat_prompts
from tsattn.batch import Batch
from tsattn.layers.optim import mup_groups, mup_init_
from tsattn.task import Output, Task

D, N = 3, 6
ATTENTIONS: list[Any] = [
    {"kind": "btt", "tt_rank": 2},
    {"kind": "mlbtc", "levels": [{"rank": 1}, {"rank": 1, "left_blocks": 4, "right_blocks": 4, "shuffled": True}]},
]


def task(context_length: int = N * (D + 1) - 1, channels: int = 1) -> Task:
    return Task("prompts", context_length, N, tuple(map(str, range(channels))), "1", 1)


def prompts(count: int = 2, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, N, D, generator=generator)
    return x, (x @ torch.randn(count, D, 1, generator=generator))[..., 0]


def batch_of(x: Tensor, y: Tensor) -> Batch:
    return Batch(flat_prompts(x, y)[..., None])


def network(attention: Any) -> PromptTransformer:
    torch.manual_seed(0)
    return PromptTransformer(task(), Output(), d_model=16, num_layers=2, num_heads=8, attention=attention).eval()


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
def test_no_forecast_sees_its_value_or_what_comes_later(attention: Any) -> None:
    model = network(attention)
    x, y = prompts()
    with torch.no_grad():
        before = model(batch_of(x, y))
        assert before.shape == (2, N, 1)
        for i in range(N - 1):
            changed = y.clone()
            changed[:, i] += 3
            after = model(batch_of(x, changed))
            assert torch.equal(before[:, : i + 1], after[:, : i + 1]), "no forecast up to it changes"
            assert (before[:, i + 1 :] != after[:, i + 1 :]).all(), "all later ones do"
        for i in range(N):
            moved = x.clone()
            moved[:, i] += 3
            after = model(batch_of(moved, y))
            assert torch.equal(before[:, :i], after[:, :i])
            assert (before[:, i:] != after[:, i:]).all(), "a forecast sees its own point"


def test_tokens_are_points_and_values_in_turn() -> None:
    model = network("standard")
    seen: list[Tensor] = []
    model.tokens.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x, y = prompts(1)
    model(batch_of(x, y))
    expected = np.zeros((2 * N - 1, D + 1), np.float32)
    for i in range(N):
        expected[2 * i, :D] = x[0, i]
        if i < N - 1:
            expected[2 * i + 1, D] = y[0, i]
    assert np.array_equal(seen[0][0].numpy(), expected)


def test_the_rules_of_mup_know_the_read_out() -> None:
    model = network({"kind": "btt", "scaling": "mup"})
    mup_init_(model)
    assert not model.value.weight.any()
    rates = {id(p): group["lr"] for group in mup_groups(model, 1.0, 0.0) for p in group["params"]}
    assert rates[id(model.value.weight)] == 768 / 16
    assert rates[id(model.tokens.value.weight)] == 1, "its inputs do not grow with the width"


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_closed_forms_are_those_of_numpy(alpha: float) -> None:
    predictor = PromptRidge(alpha=alpha)
    predictor.build(task())
    x, y = prompts(4)
    y = y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    found = predictor(batch_of(x, y))[..., 0]
    for b in range(4):
        points, values = x[b].double().numpy(), y[b].double().numpy()
        assert found[b, 0] == 0
        for i in range(1, N):
            if alpha:
                w = np.linalg.inv(points[:i].T @ points[:i] + alpha * np.eye(D)) @ points[:i].T @ values[:i]
            else:
                w = np.linalg.pinv(points[:i]) @ values[:i]
            assert float(found[b, i]) == pytest.approx(float(points[i] @ w), rel=1e-6, abs=1e-6)
