"""Attention in the place of the originals: masks, bias, special tokens, padding, gradients, decoders, groups."""

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache

from tests.chronos.tiny_models import FAMILIES, forecast, series, tiny_pipeline
from tsattn.chronos import adapt
from tsattn.chronos.swapped_attention import DistanceBias
from tsattn.errors import UserError

KINDS: dict[str, tuple[Any, str]] = {
    "swa": ({"kind": "swa", "window_size": 4}, "copy"),
    "mlr": ({"kind": "mlr", "ranks": [4, 2, 2], "blocks": {"lengths": [16, 8, 4]}}, "rotate"),
    "btt": ({"kind": "btt", "side": "both"}, "project"),
    "bilinear_mlr": ({"kind": "bilinear_mlr", "ranks": [4, 4]}, "project"),
    "global_swa": ({"kind": "global_swa", "window_size": 4, "global_rank": 4}, "copy"),
}

everywhere = pytest.mark.parametrize(
    ("family", "kind"),
    [*(("bolt", "mlr"), ("chronos2", "swa"), ("chronos2", "btt"), ("bolt", "bilinear_mlr"), ("t5", "global_swa"))],
)


def adapted(family: str, kind: str, where: Any = "encoder", **more: Any) -> Any:
    attention, convert = KINDS[kind]
    return adapt(tiny_pipeline(family, **more), attention, where, convert)


@functools.cache
def encoder_adapted(family: str, kind: str) -> Any:
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


def test_weights_that_are_asked_for_are_refused() -> None:
    with pytest.raises(UserError, match=r"returns no weights; compute them with tsattn\.attention\.maps"):
        adapted("t5", "swa").model.encoder(input_ids=torch.arange(2, 20)[None], output_attentions=True)
    with pytest.raises(UserError, match="returns no weights"):
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
    own = DistanceBias(original)
    expected = original.compute_bias(queries, keys, past_seen_tokens=seen)
    found = own(queries, keys, seen)
    assert torch.equal(found, expected)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    grad = original.relative_attention_bias.weight.grad
    torch.testing.assert_close(own.weight.grad, grad, rtol=1e-4, atol=1e-5)


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


STACKS = {"t5": "cross", "bolt": "cross", "chronos2": "group"}
ENOUGH: dict[str, tuple[Any, str]] = {
    "btt": ({"kind": "btt", "side": "both", "tt_rank": 4}, "project"),
    "query": ({"kind": "btt", "side": "query", "tt_rank": 4}, "project"),
    "bilinear_mlr": ({"kind": "bilinear_mlr", "ranks": [8], "blocks": [1]}, "project"),
    "mlbtc": ({"kind": "mlbtc", "levels": [{"rank": 8}]}, "project"),
}
families = pytest.mark.parametrize("family", FAMILIES)


def together(pipeline: Any, contexts: list[Tensor] | None = None) -> Tensor:
    """Forecasts of contexts of one length, those of Chronos-2 as one group; with gaps, and longer than a step."""
    given = series(60, 60, 60) if contexts is None else contexts
    given[1][3:9] = torch.nan
    if type(pipeline).__name__ != "Chronos2Pipeline":
        return forecast(pipeline, given, 5)
    found, _ = pipeline.predict_quantiles([torch.stack(given).numpy()], prediction_length=5, quantile_levels=[0.1, 0.5])
    return torch.as_tensor(found[0])


@pytest.mark.parametrize(("family", "kind"), [*(("t5", kind) for kind in ENOUGH), ("bolt", "btt"), ("chronos2", "btt")])
def test_structures_of_enough_parameters_forecast_alike(family: str, kind: str) -> None:
    pipeline = tiny_pipeline(family)
    attention, convert = ENOUGH[kind]
    adapted = adapt(pipeline, attention, [f"{STACKS[family]}.1"], convert)
    assert max(adapted.score_errors[f"{STACKS[family]}.1"]) < 1e-5
    torch.testing.assert_close(together(adapted.pipeline), together(pipeline), rtol=1e-3, atol=1e-3)


def test_a_list_names_attentions_in_its_order() -> None:
    mixed = adapt(tiny_pipeline("bolt"), ["btt", "standard"], ["cross.1", 0], "fresh").swapped
    kinds = {name: type(module.attention).__name__ for name, module in mixed.items()}
    assert kinds == {"cross.1": "BTTAttention", "encoder.0": "StandardAttention"}


@pytest.mark.parametrize(("family", "kind"), [("t5", "swa"), ("chronos2", "fixed_mixing")])
def test_attention_by_position_is_refused(family: str, kind: str) -> None:
    why = "series of a group have no order" if family == "chronos2" else "keys are tokens of the encoder"
    with pytest.raises(UserError, match=rf"attention {kind} uses positions, but in {STACKS[family]}.0 {why}; valid"):
        adapt(tiny_pipeline(family), kind, STACKS[family], "fresh")


@families
def test_it_is_counted_and_calibrated(family: str) -> None:
    adapted = adapt(tiny_pipeline(family), "btt", [f"{STACKS[family]}.0", 1], "project", data=series(60, 80))
    cost = adapted.cost().set_index("layer")
    assert cost.loc[f"{STACKS[family]}.0", "share"] == 3.0
    if family == "chronos2":
        assert cost.loc["group.0", ["tokens", "score_flops"]].isna().all()
        with pytest.raises(UserError, match=r"attention among series \(where: group\) cannot learn from it"):
            adapted.calibrate(series(60, 80))
        return
    queries, keys = {"t5": (7, 31), "bolt": (1, 17)}[family]
    assert cost.loc["cross.0", "tokens"] == keys
    assert cost.loc["cross.0", "original_flops"] == 2 * 3 * 8 * queries * keys
    frame = adapted.calibrate(series(60, 80, 90), steps=12).set_index("layer")
    assert frame.loc["cross.0", "after"] < frame.loc["cross.0", "before"]


LENGTH = 11
DECODERS = {
    "standard": "standard",
    "swa": {"kind": "swa", "window_size": 3},
    "mlr": {"kind": "mlr", "ranks": [4, 2, 2], "blocks": {"lengths": [16, 4, 2]}},
    "global_swa": {"kind": "global_swa", "window_size": 3, "global_rank": 4},
    "btt": {"kind": "btt", "side": "both"},
}


def logits(model: Any, schedule: list[int] | None, cache: Any = None, padding: int = 9) -> torch.Tensor:
    """Those of a given sequence after given contexts, in one pass or step by step."""
    inputs = torch.arange(60).reshape(3, 20) % 60 + 2
    mask = torch.ones_like(inputs)
    mask[1, :7], inputs[1, :7] = 0, padding
    tokens = torch.randint(2, 60, (3, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = model.encoder(inputs, attention_mask=mask)
        given = {"encoder_outputs": states, "attention_mask": mask}
        if schedule is None:
            return model(**given, decoder_input_ids=tokens, use_cache=False).logits
        parts = torch.split(tokens, schedule, 1)
        return torch.cat([model(**given, decoder_input_ids=x, past_key_values=cache).logits for x in parts], 1)


def new_cache() -> EncoderDecoderCache:
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


@pytest.mark.parametrize(
    ("kind", "where"),
    [*((kind, "decoder") for kind in ("standard", "global_swa", "btt")), ("mlr", ["decoder.1"]), ("btt", ["cross.1"])],
)
def test_steps_equal_the_whole_pass(kind: str, where: Any) -> None:
    pipeline = tiny_pipeline("t5", prediction_length=LENGTH)
    adapted = adapt(pipeline, DECODERS[kind], where, "fresh" if kind == "btt" else "copy")
    expected = logits(adapted.model, None)
    torch.testing.assert_close(logits(adapted.model, None, padding=50), expected, rtol=1e-4, atol=1e-4)
    for schedule in ([1] * LENGTH, [4, 3, 1, 1, 2]):
        found = logits(adapted.model, schedule, new_cache())
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    if kind != "standard":
        assert (expected - logits(pipeline.inner_model, None)).abs().max() > 0.01


def test_levels_keep_the_keys_of_their_running_block_alone() -> None:
    adapted = adapt(tiny_pipeline("t5", prediction_length=LENGTH), DECODERS["mlr"], "decoder")
    cache = new_cache()
    logits(adapted.model, [1] * LENGTH, cache)
    layer = cache.self_attention_cache.layers[1]
    assert layer.get_seq_length() == cache.get_seq_length() == LENGTH
    rows = [rows.first(1).shape[1] * rows.nbytes // rows.first(1)[0, 0].nbytes for rows in layer.held.key_rows]
    assert rows[0] > rows[1] > rows[2]
    assert [part.size for part in layer.held.key_rows] == [16, 4, 2]


def test_beams_and_batches_are_reordered() -> None:
    adapted = adapt(tiny_pipeline("t5"), DECODERS["mlr"], "decoder")
    inputs = torch.arange(2, 22).reshape(2, 10)
    beams = {"num_beams": 3, "max_new_tokens": 6, "min_new_tokens": 6}
    with_cache = adapted.model.generate(inputs, **beams)
    assert torch.equal(with_cache, adapted.model.generate(inputs, **beams, use_cache=False))
    cache = new_cache()
    logits(adapted.model, [1] * 5 + [6], cache)
    layer = cache.self_attention_cache.layers[0]
    cache.self_attention_cache.reset()
    assert layer.get_seq_length() == 0


def test_a_cache_of_another_attention_is_refused() -> None:
    pipeline = tiny_pipeline("t5")
    cache = new_cache()
    logits(pipeline.inner_model, [LENGTH], cache)
    adapted = adapt(pipeline, DECODERS["swa"], "decoder")
    with pytest.raises(UserError, match="filled by another attention"):
        logits(adapted.model, [LENGTH], cache)
