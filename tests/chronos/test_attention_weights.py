"""The attention of adapted models can be looked at, with what their tokens stand for; that of the originals cannot."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tests.chronos.saved_weights import weights_of
from tests.chronos.tiny_models import FAMILIES
from tests.toy_windows import toy_task
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.attention_layers import attention_layers
from tsattn.task import Output

L, T = 20, 4


def built(family: str, attention: str | None) -> Predictor:
    predictor = build_predictor(
        {"kind": "chronos", "weights": weights_of(family), "attention": attention, "context_length": L}
    )
    predictor.build(toy_task(L, T, 1), Output())
    return predictor.eval()


def window() -> Batch:
    torch.manual_seed(0)
    return Batch(torch.randn(1, L, 1), time=3600 * torch.arange(L + T)[None])


@pytest.mark.parametrize("family", FAMILIES)
def test_adapted_models_show_the_steps_that_they_look_at(family: str) -> None:
    layers = attention_layers(built(family, "standard"), window())
    for layer in layers:
        np.testing.assert_allclose(layer.weights.sum(-1), 1, rtol=1e-5)
        stamps = [end for end in layer.keys if isinstance(end, pd.Timestamp)]
        assert stamps == sorted(stamps)
        assert pd.Timestamp(3600 * (L - 1), unit="s") in stamps
        # of Chronos-2 patches of the horizon too
        assert (stamps[-1] > pd.Timestamp(3600 * (L - 1), unit="s")) == (family == "chronos2")
    assert {layer.token for layer in layers} == {"step" if family == "t5" else "patch"}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_original_attention_is_refused_in_a_sentence(family: str) -> None:
    with pytest.raises(UserError, match=f"attention of tiny-{family} is that of its own library, .* --attention stand"):
        attention_layers(built(family, None), window())
