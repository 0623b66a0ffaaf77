"""Attention that sees every pair gives the original's outputs; what is unadapted stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.chronos.tiny_models import FAMILIES, forecast, series, tiny_pipeline
from tsattn.chronos import adapt

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


def outputs(pipeline: Any) -> torch.Tensor:
    return forecast(pipeline, inputs())


def assert_alike(found: torch.Tensor, expected: torch.Tensor, family: str) -> None:
    if family == "chronos2":  # its channels are in another order
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(found, expected)


@pytest.mark.parametrize("attention", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("family", FAMILIES)
def test_whole_attention_is_the_original(family: str, attention: Any) -> None:
    pipeline = tiny_pipeline(family)
    adapted = adapt(pipeline, attention, where="all")
    assert len(adapted.swapped) == (3 if family == "chronos2" else 5)
    assert_alike(outputs(adapted.pipeline), outputs(pipeline), family)
    # every state of the encoder, of padded and missing places too
    states = zip(adapted.pipeline.embed(inputs())[0], pipeline.embed(inputs())[0], strict=True)
    for found, expected in states:
        assert_alike(found, expected, family)


@pytest.mark.parametrize(
    ("implementation", "dtype"),
    [("sdpa", torch.bfloat16), ("sdpa", torch.float16), ("eager", torch.float32), ("eager", torch.bfloat16)],
)
@pytest.mark.parametrize("family", ["t5", "bolt"])
def test_whole_attention_in_other_precisions(family: str, implementation: str, dtype: torch.dtype) -> None:
    """Bit for bit, but where half precision is computed by `eager`, whose every step is rounded."""
    pipeline = tiny_pipeline(family, implementation=implementation)
    pipeline.inner_model.to(dtype)
    adapted = adapt(pipeline, WHOLE["one level"], where="all")
    for found, expected in zip(adapted.pipeline.embed(inputs())[0], pipeline.embed(inputs())[0], strict=True):
        if implementation == "eager" and dtype != torch.float32:
            torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)
        else:
            assert torch.equal(found, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_original_stays_as_it_was(family: str) -> None:
    pipeline = tiny_pipeline(family)
    modules = dict(pipeline.inner_model.named_modules())
    weights = {name: weight.clone() for name, weight in pipeline.inner_model.state_dict().items()}
    expected = outputs(pipeline)
    adapted = adapt(pipeline, {"kind": "swa", "window_size": 3}, where="all")
    with torch.no_grad():
        for weight in adapted.model.parameters():
            weight.add_(1.0)
    restored = adapted.restore()
    assert restored is pipeline
    found = dict(restored.inner_model.named_modules())
    assert found.keys() == modules.keys()
    assert all(found[name] is modules[name] for name in modules)
    assert all(torch.equal(weight, weights[name]) for name, weight in restored.inner_model.state_dict().items())
    assert torch.equal(outputs(restored), expected)
