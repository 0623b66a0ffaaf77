"""The decoder of Chronos-T5 generates step by step with the caches of its attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from tests.chronos.tiny_models import tiny_pipeline
from tsattn.chronos import adapt
from tsattn.errors import UserError

LENGTH = 11
KINDS = {
    "standard": "standard",
    "swa": {"kind": "swa", "window_size": 3},
    "mlr": {"kind": "mlr", "ranks": [4, 2, 2], "blocks": {"lengths": [16, 4, 2]}},
    "global_swa": {"kind": "global_swa", "window_size": 3, "global_rank": 4},
    "btt": {"kind": "btt", "side": "both"},
    "bilinear_mlr": "bilinear_mlr",
    "uniform": "uniform",
    "identity": "identity",
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


@pytest.mark.parametrize("where", ["decoder", ["decoder.1"]])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_equal_the_whole_pass(kind: str, where: Any) -> None:
    structured = kind in ("btt", "bilinear_mlr")
    pipeline = tiny_pipeline("t5", prediction_length=LENGTH)
    adapted = adapt(pipeline, KINDS[kind], where, "fresh" if structured else "copy")
    expected = logits(adapted.model, None)
    for schedule in ([1] * LENGTH, [4, 3, 1, 1, 2]):
        found = logits(adapted.model, schedule, new_cache())
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    if kind != "standard":
        assert (expected - logits(pipeline.inner_model, None)).abs().max() > 0.01


def test_levels_keep_the_keys_of_their_running_block_alone() -> None:
    adapted = adapt(tiny_pipeline("t5", prediction_length=LENGTH), KINDS["mlr"], "decoder")
    cache = new_cache()
    logits(adapted.model, [1] * LENGTH, cache)
    layer = cache.self_attention_cache.layers[1]
    assert layer.get_seq_length() == cache.get_seq_length() == LENGTH
    rows = [rows.first(1).shape[1] * rows.nbytes // rows.first(1)[0, 0].nbytes for rows in layer.held.key_rows]
    assert rows[0] > rows[1] > rows[2]
    assert [part.size for part in layer.held.key_rows] == [16, 4, 2]


def test_beams_and_batches_are_reordered() -> None:
    adapted = adapt(tiny_pipeline("t5"), KINDS["mlr"], "decoder")
    inputs = torch.arange(2, 22).reshape(2, 10)
    beams = {"num_beams": 3, "max_new_tokens": 6, "min_new_tokens": 6}
    with_cache = adapted.model.generate(inputs, **beams)
    assert torch.equal(with_cache, adapted.model.generate(inputs, **beams, use_cache=False))
    cache = new_cache()
    logits(adapted.model, [1] * 5 + [6], cache)
    layer = cache.self_attention_cache.layers[0]
    cache.self_attention_cache.batch_select_indices(torch.tensor([2, 0]))
    cache.self_attention_cache.batch_repeat_interleave(2)
    assert layer.held.batch_size == 4
    cache.self_attention_cache.reset()
    assert layer.get_seq_length() == 0


def test_a_cache_of_another_attention_is_refused() -> None:
    pipeline = tiny_pipeline("t5")
    cache = new_cache()
    logits(pipeline.inner_model, [LENGTH], cache)
    adapted = adapt(pipeline, KINDS["swa"], "decoder")
    with pytest.raises(UserError, match="filled by another attention"):
        logits(adapted.model, [LENGTH], cache)
