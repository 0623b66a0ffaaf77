"""Attention among series and to the encoder is swapped where it is named, by attention that scores every pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache

from tests.chronos.tiny_models import FAMILIES, forecast, series, tiny_pipeline
from tsattn.chronos import adapt, load_adapted
from tsattn.chronos.swapped_attention import SwappedCrossAttention, SwappedMHA
from tsattn.errors import UserError

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


@pytest.mark.parametrize(("family", "implementation"), [("t5", "sdpa"), ("bolt", "eager"), ("chronos2", "sdpa")])
def test_standard_attention_computes_what_the_original_does(family: str, implementation: str) -> None:
    pipeline = tiny_pipeline(family, implementation=implementation)
    adapted = adapt(pipeline, "standard", STACKS[family])
    count = 3 if family == "chronos2" else 2
    assert [*adapted.swapped] == [f"{STACKS[family]}.{layer}" for layer in range(count)]
    kind = SwappedMHA if family == "chronos2" else SwappedCrossAttention
    assert {type(module) for module in adapted.swapped.values()} == {kind}
    assert torch.equal(together(adapted.pipeline), together(pipeline))


@pytest.mark.parametrize(("family", "kind"), [*(("t5", kind) for kind in ENOUGH), ("bolt", "btt"), ("chronos2", "btt")])
def test_structures_of_enough_parameters_forecast_alike(family: str, kind: str) -> None:
    pipeline = tiny_pipeline(family)
    attention, convert = ENOUGH[kind]
    adapted = adapt(pipeline, attention, [f"{STACKS[family]}.1"], convert)
    assert max(adapted.score_errors[f"{STACKS[family]}.1"]) < 1e-5
    torch.testing.assert_close(together(adapted.pipeline), together(pipeline), rtol=1e-3, atol=1e-3)


def test_steps_of_a_decoder_equal_the_whole_pass() -> None:
    model: Any = adapt(tiny_pipeline("t5"), {"kind": "btt", "side": "query"}, ["cross.1"], "project").model
    inputs = torch.arange(40).reshape(2, 20) + 2
    mask = torch.ones_like(inputs)
    mask[1, :7] = 0
    tokens = torch.randint(2, 60, (2, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        given = {"encoder_outputs": model.encoder(inputs, attention_mask=mask), "attention_mask": mask}
        whole = model(**given, decoder_input_ids=tokens, use_cache=False).logits
        cache = new_cache()
        steps = [model(**given, decoder_input_ids=part, past_key_values=cache).logits for part in tokens.split(2, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-4)
        changed = inputs.clone()
        changed[1, :7] = 50
        other = model.encoder(changed, attention_mask=mask)
        padded = model(encoder_outputs=other, attention_mask=mask, decoder_input_ids=tokens, use_cache=False).logits
    torch.testing.assert_close(padded, whole, rtol=1e-4, atol=1e-4)


def test_a_list_names_attentions_in_its_order() -> None:
    mixed = adapt(tiny_pipeline("bolt"), ["btt", "standard"], ["cross.1", 0], "fresh").swapped
    kinds = {name: type(module.attention).__name__ for name, module in mixed.items()}
    assert kinds == {"cross.1": "BTTAttention", "encoder.0": "StandardAttention"}


@pytest.mark.parametrize(("family", "kind"), [("t5", "swa"), ("chronos2", "fixed_mixing")])
def test_attention_by_position_is_refused(family: str, kind: str) -> None:
    why = "series of a group have no order" if family == "chronos2" else "keys are tokens of the encoder"
    with pytest.raises(
        UserError, match=rf"attention {kind} of {STACKS[family]}.0 would go by positions, and {why}; valid"
    ):
        adapt(tiny_pipeline(family), kind, STACKS[family], "fresh")


@families
def test_it_is_saved_restored_counted_and_calibrated(family: str, tmp_path: Path) -> None:
    pipeline = tiny_pipeline(family)
    adapted = adapt(pipeline, "btt", [f"{STACKS[family]}.0", 1], "project", data=series(60, 80))
    expected = together(adapted.pipeline)
    loaded = load_adapted(adapted.save(tmp_path / "model"))
    assert torch.equal(together(loaded.pipeline), expected)
    assert adapted.restore() is pipeline
    cost = adapted.cost().set_index("layer")
    assert cost.loc[f"{STACKS[family]}.0", "share"] == 3.0
    if family == "chronos2":
        assert cost.loc["group.0", ["tokens", "score_flops"]].isna().all()
        with pytest.raises(UserError, match="attention among series cannot learn from it"):
            adapted.calibrate(series(60, 80))
        return
    queries, keys = {"t5": (7, 31), "bolt": (1, 17)}[family]
    assert cost.loc["cross.0", "tokens"] == keys
    assert cost.loc["cross.0", "original_flops"] == 2 * 3 * 8 * queries * keys
    frame = adapted.calibrate(series(60, 80, 90), steps=12).set_index("layer")
    assert frame.loc["cross.0", "after"] < frame.loc["cross.0", "before"]


# the decoder of Chronos-T5 generates step by step with the caches of its attention

LENGTH = 11
DECODERS = {
    "standard": "standard",
    "swa": {"kind": "swa", "window_size": 3},
    "mlr": {"kind": "mlr", "ranks": [4, 2, 2], "blocks": {"lengths": [16, 4, 2]}},
    "global_swa": {"kind": "global_swa", "window_size": 3, "global_rank": 4},
    "btt": {"kind": "btt", "side": "both"},
    "uniform": "uniform",
}


def logits(model: Any, schedule: list[int] | None, cache: Any = None) -> torch.Tensor:
    """Those of a given sequence after given contexts, in one pass or step by step."""
    inputs = torch.arange(60).reshape(3, 20) % 60 + 2
    mask = torch.ones_like(inputs)
    mask[1, :7] = 0
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


@pytest.mark.parametrize(("kind", "where"), [*((kind, "decoder") for kind in DECODERS), ("mlr", ["decoder.1"])])
def test_steps_equal_the_whole_pass(kind: str, where: Any) -> None:
    pipeline = tiny_pipeline("t5", prediction_length=LENGTH)
    adapted = adapt(pipeline, DECODERS[kind], where, "fresh" if kind == "btt" else "copy")
    expected = logits(adapted.model, None)
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
