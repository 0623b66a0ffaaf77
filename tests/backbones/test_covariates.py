"""Backbones that use covariates, categories and the calendar: what acts on what, and that it is learnt."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import nn

from tests.toy_windows import LEVELS, toy_task, toy_windows
from tsattn.attention import build_attention
from tsattn.backbones import build_backbone
from tsattn.layers import DirectHead, Encoder, FlattenHead, InstanceNorm, Patches, QuantileFan, TokenEmbedding
from tsattn.task import Output, Task

L, T, C = 24, 8, 3
BARE, FULL = toy_task(), toy_task(covariates=True)
MODELS: dict[str, dict[str, Any]] = {
    "mixed": {"kind": "transformer", "attention": "mlr"},
    "independent": {"kind": "transformer", "channels": "independent"},
    "patchtst": {"kind": "patchtst", "patch_len": 5, "stride": 3},
    "itransformer": {"kind": "itransformer"},
}
SMALL = {"d_model": 16, "num_heads": 2, "dropout": 0.0}


def build(model: str, task: Task, quantiles: tuple[float, ...] = (), **more: Any) -> Any:
    torch.manual_seed(0)
    return build_backbone({**MODELS[model], **SMALL, **more}, task, Output(quantiles)).double()


def randomised(backbone: Any) -> Any:
    torch.manual_seed(1)
    nn.init.normal_(backbone.covariates.effect.output.weight)
    nn.init.normal_(backbone.covariates.effect.output.bias)
    return backbone


@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_the_horizon_acts_on_its_own_forecast_alone(model: str) -> None:
    backbone = randomised(build(model, FULL, LEVELS, calendar=True)).eval()
    window = toy_windows(FULL)
    forecast = backbone(window)
    for field, step in (("future_covariates", 2), ("time", 5)):
        value = getattr(window, field).clone()
        value[:, L + step] += 7 * 3600 if field == "time" else 1
        moved = (backbone(replace(window, **{field: value})) != forecast).flatten(2).any(-1)
        assert moved.tolist() == [[place == step for place in range(T)]] * 4, field


def test_a_seed_starts_the_rest_alike_with_covariates_and_without() -> None:
    """Next to a linear path they start without effect."""
    for model in MODELS:
        bare, full = build(model, BARE).state_dict(), build(model, FULL, calendar=True).state_dict()
        assert {name for name in full if name not in bare} == {name for name in full if name.startswith("covariates.")}
        assert all(torch.equal(full[name], bare[name]) for name in bare)
        without, same = (build(model, task, linear_path="learned") for task in (BARE, FULL))
        assert torch.equal(same(toy_windows(FULL)), without(toy_windows(FULL)))


@pytest.mark.parametrize("model", [model for model in MODELS if model != "itransformer"])  # see test_itransformer
def test_without_covariates_nothing_is_added(model: str) -> None:
    """Parameters, random numbers drawn and forecasts are those of the other parts, put together in their order."""
    torch.manual_seed(0)
    fan = QuantileFan(LEVELS)
    independent = model != "mixed"
    patches = Patches(L, 5, 3) if model == "patchtst" else None
    N, width = (L, 1 if independent else C) if patches is None else (patches.count, 5)
    tokens = TokenEmbedding(width, 16, N, "learned", 0.0)
    kind = MODELS[model].get("attention", "standard")
    attentions = [build_attention(kind, d_model=16, num_heads=2, max_length=N) for _ in range(2)]
    encoder = Encoder(attentions, 32, 0.0)
    outputs = 3 if independent else 3 * C
    head = DirectHead(L, T, 16, outputs) if patches is None else FlattenHead(N, T, 16, outputs)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    backbone = build_backbone({**MODELS[model], **SMALL}, BARE, Output(LEVELS))
    assert torch.equal(torch.rand(1), drawn)
    parts = {"tokens": tokens, "encoder": encoder, "head": head}
    assert list(backbone.state_dict()) == [f"{name}.{key}" for name, part in parts.items() for key in part.state_dict()]
    window = toy_windows(FULL, gaps=True, dtype=torch.float32)
    norm = InstanceNorm(window.past, window.past_observed)
    x = norm.normalised()
    if independent:
        x = rearrange(x, "B L C -> (B C) L 1")
    raw = head(encoder(tokens(x if patches is None else patches(x[..., 0]))))
    raw = rearrange(raw, "(B C) T Q -> B T C Q" if independent else "B T (C Q) -> B T C Q", C=C)
    assert torch.equal(backbone(window), norm.restore(fan(raw[..., 0], raw[..., 1:])))
