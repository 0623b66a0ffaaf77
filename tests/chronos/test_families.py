"""Three families, each kind of attention once: masks, bias, special tokens, padding, batches and gradients."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.chronos.tiny_models import FAMILIES, forecast, series, tiny_pipeline
from tsattn.chronos import adapt
from tsattn.chronos.bolt.bolt_network import DistanceBias
from tsattn.errors import UserError

KINDS: dict[str, tuple[Any, str]] = {
    "swa": ({"kind": "swa", "window_size": 4}, "copy"),
    "mlr": ({"kind": "mlr", "ranks": [4, 2, 2], "blocks": {"lengths": [16, 8, 4]}}, "rotate"),
    "btt": ({"kind": "btt", "side": "both"}, "project"),
    "bilinear_mlr": ({"kind": "bilinear_mlr", "ranks": [4, 4]}, "project"),
    "global_swa": ({"kind": "global_swa", "window_size": 4, "global_rank": 4}, "copy"),
    "fresh": ({"kind": "mlr", "ranks": [4, 2, 2]}, "fresh"),
}

everywhere = pytest.mark.parametrize(
    ("family", "kind"),
    [
        *(("t5", "mlr"), ("bolt", "mlr"), ("chronos2", "swa"), ("chronos2", "btt")),
        *(("bolt", "bilinear_mlr"), ("t5", "global_swa"), ("chronos2", "fresh")),
    ],
)


def adapted(family: str, kind: str, where: Any = "encoder", **more: Any) -> Any:
    attention, convert = KINDS[kind]
    return adapt(tiny_pipeline(family, **more), attention, where, convert)


@functools.cache
def encoder_adapted(family: str, kind: str) -> Any:
    """One for all tests that change nothing of it."""
    return adapted(family, kind)


def encoded(pipeline: Any, contexts: list[Tensor]) -> Tensor:
    """The last states of the encoder, which no sampling blurs."""
    states = pipeline.embed(contexts)[0]
    return torch.stack([state.reshape(-1, state.shape[-1]) for state in states]) if isinstance(states, list) else states


def call_of(model: Any, name: str, forecasting: Any) -> tuple[Any, Tensor, dict[str, Any]]:
    """A swapped attention, its tokens and other arguments in a forecast."""
    seen: list[Any] = []
    module = model.swapped[name]
    handle = module.register_forward_hook(lambda _, args, kwargs, __: seen.append((args[0], kwargs)), with_kwargs=True)
    forecasting()
    handle.remove()
    return module, *seen[-1]


@everywhere
def test_a_forecast_depends_on_its_own_series_alone(family: str, kind: str) -> None:
    """Neither on the others of its batch nor on how far they make it pad."""
    pipeline = encoder_adapted(family, kind).pipeline
    short, long = series(12, 28)
    alone = encoded(pipeline, [short])
    together = encoded(pipeline, [long, short])[1:, -alone.shape[1] :]
    # a context of whole patches, so that its patches are cut alike
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@everywhere
def test_missing_values_are_not_seen(family: str, kind: str) -> None:
    """A patch or value that is missing is no key: whatever stands there, other tokens stay as they are."""
    model = encoder_adapted(family, kind)
    contexts = series(28)
    contexts[0][8:16] = torch.nan
    module, tokens, others = call_of(model, "encoder.1", lambda: encoded(model.pipeline, contexts))
    missing = torch.zeros(tokens.shape[1], dtype=torch.bool)
    missing[slice(8, 16) if family == "t5" else slice(2, 4)] = True
    changed = tokens.clone()
    changed[:, missing] += torch.randn(1, int(missing.sum()), tokens.shape[2])
    with torch.no_grad():
        before, after = (module(x, **others)[0] for x in (tokens, changed))
    torch.testing.assert_close(after[:, ~missing], before[:, ~missing], rtol=1e-5, atol=1e-5)
    changed = tokens.clone()
    changed[:, 5 if family == "t5" else 1] += 1
    with torch.no_grad():
        assert not torch.allclose(module(changed, **others)[0], before, atol=1e-4)


@pytest.mark.parametrize(("family", "kind"), [("t5", "swa"), ("bolt", "mlr"), ("chronos2", "global_swa")])
def test_special_tokens_see_and_are_seen_by_everything(family: str, kind: str) -> None:
    model = encoder_adapted(family, kind)
    module, x, others = call_of(model, "encoder.2", lambda: forecast(model.pipeline, series(60), prediction_length=6))
    x = x.detach() * 0.1  # small scores, which leave every weight above 0
    special = {"t5": 1, "bolt": 1, "chronos2": 3}[family]  # 6 steps are two patches of the future, after REG
    assert model.model.token_layout.special_tokens == special
    x.requires_grad_(True)

    def influence(token: int) -> Tensor:
        (gradient,) = torch.autograd.grad(module(x, **others)[0][0, token].sum(), x)
        return gradient[0].abs().amax(-1) > 1e-12

    last = x.shape[1]
    for token in range(last - special, last):
        assert influence(token).all(), "a special token sees all"
    assert influence(0)[last - special :].all(), "and is seen by the first"
    if kind == "swa":
        assert not influence(0)[4 : last - special].any(), "which sees its window beside"


@everywhere
def test_gradients_reach_every_weight(family: str, kind: str) -> None:
    model = copy.deepcopy(encoder_adapted(family, kind))
    contexts = torch.stack([row[-24:] for row in series(60, 60, 40)])
    network: Any = model.model.train()
    if family == "t5":
        ids = torch.arange(2, 62).reshape(3, 20)
        loss = network(input_ids=ids, labels=ids[:, :6].contiguous()).loss
    elif family == "bolt":
        loss = network(context=contexts, target=contexts[:, :8]).loss
    else:
        loss = network(context=contexts, future_target=contexts[:, :8], num_output_patches=2).loss
    loss.backward()
    for module in model.swapped.values():
        for name, weight in module.named_parameters():
            assert weight.grad is not None, name
            assert weight.grad.isfinite().all(), name
            assert weight.grad.abs().max() > 0, name


def test_patches_of_the_future_are_counted_however_they_are_given() -> None:
    """By position, by name, or left out."""
    model = adapted("chronos2", "mlr").model
    context = torch.stack(series(64, 64))
    for count in (1, 3):
        by_name = model.encode(context, num_output_patches=count)[0][0]
        model.token_layout.special_tokens = 0
        assert torch.equal(model.encode(context, None, None, None, None, count)[0][0], by_name)
    model.token_layout.special_tokens = 0
    assert torch.equal(model.encode(context)[0][0], model.encode(context, num_output_patches=1)[0][0])


def test_weights_that_are_asked_for_are_refused() -> None:
    with pytest.raises(UserError, match=r"gives no weights; tsattn\.attention\.maps computes"):
        adapted("t5", "swa").model.encoder(input_ids=torch.arange(2, 20)[None], output_attentions=True)
    with pytest.raises(UserError, match="gives no weights"):
        adapted("chronos2", "swa").model(torch.stack(series(64)), output_attentions=True)


def test_a_whole_missing_series_forecasts_as_the_original_s() -> None:
    """Without REG no key is left: the original attends to all alike."""
    contexts = [torch.full((24,), torch.nan), series(24)[0]]
    pipeline = tiny_pipeline("bolt", use_reg_token=False)
    window = adapt(pipeline, {"kind": "swa", "window_size": 3}, "all")
    found, expected = (forecast(one, contexts)[0] for one in (window.pipeline, pipeline))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("stack", "queries", "keys", "seen"), [("encoder", 37, 37, 0), ("decoder", 5, 40, 20)])
def test_the_relative_bias_is_the_originals(stack: str, queries: int, keys: int, seen: int) -> None:
    original = getattr(tiny_pipeline("t5").inner_model, stack).block[0].layer[0].SelfAttention
    own = DistanceBias.of(original)
    expected = original.compute_bias(queries, keys, past_seen_tokens=seen)
    found = own(queries, keys, seen)
    assert torch.equal(found, expected)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    grad = original.relative_attention_bias.weight.grad
    torch.testing.assert_close(own.weight.grad, grad, rtol=1e-4, atol=1e-5)


# attention that sees every pair gives the original's outputs

WHOLE = {
    "standard": "standard",
    "window": {"kind": "swa", "window_size": 100},
    "one level": {"kind": "mlr", "ranks": [8], "blocks": [1]},
    "one block": {"kind": "mlr", "ranks": [4, 4], "blocks": {"lengths": [200, 100]}},
    "all components": {"kind": "global_swa", "global_rank": 8},
}


def inputs() -> list[torch.Tensor]:
    """Unequal lengths, a missing run, a missing patch, one too long."""
    contexts = series(64, 23, 7, 90)
    contexts[0][3:6] = torch.nan
    contexts[3][-16:-8] = torch.nan
    return contexts


def assert_alike(found: torch.Tensor, expected: torch.Tensor, family: str) -> None:
    if family == "chronos2":  # its channels are in another order
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("family", "kind"), [*(("t5", kind) for kind in WHOLE), ("bolt", "window"), ("chronos2", "one block")]
)
def test_whole_attention_is_the_original(family: str, kind: str) -> None:
    pipeline = tiny_pipeline(family)
    adapted = adapt(pipeline, WHOLE[kind], where="all")
    assert len(adapted.swapped) == (3 if family == "chronos2" else 5)
    assert_alike(*(forecast(one, inputs()) for one in (adapted.pipeline, pipeline)), family)
    # every state of the encoder, of padded and missing places too
    states = zip(adapted.pipeline.embed(inputs())[0], pipeline.embed(inputs())[0], strict=True)
    for found, expected in states:
        assert_alike(found, expected, family)


@pytest.mark.parametrize(
    ("family", "implementation", "dtype"), [("bolt", "sdpa", torch.bfloat16), ("t5", "eager", torch.float32)]
)
def test_whole_attention_in_other_precisions(family: str, implementation: str, dtype: torch.dtype) -> None:
    pipeline = tiny_pipeline(family, implementation=implementation)
    pipeline.inner_model.to(dtype)
    adapted = adapt(pipeline, WHOLE["one level"], where="all")
    for found, expected in zip(adapted.pipeline.embed(inputs())[0], pipeline.embed(inputs())[0], strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_original_stays_as_it_was(family: str) -> None:
    pipeline = tiny_pipeline(family)
    modules = dict(pipeline.inner_model.named_modules())
    weights = {name: weight.clone() for name, weight in pipeline.inner_model.state_dict().items()}
    expected = forecast(pipeline, inputs())
    adapted = adapt(pipeline, {"kind": "swa", "window_size": 3}, where="all")
    with torch.no_grad():
        for weight in adapted.model.parameters():
            weight.add_(1.0)
    assert adapted.restore() is pipeline
    assert dict(pipeline.inner_model.named_modules()) == modules
    assert all(torch.equal(weight, weights[name]) for name, weight in pipeline.inner_model.state_dict().items())
    assert torch.equal(forecast(pipeline, inputs()), expected)
