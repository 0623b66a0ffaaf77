"""The attention of a predictor is that of its own queries and keys in the window that it forecasts."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn.attention import Attention
from tsattn.attention.maps import attention_map
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.attention_layers import attention_layers
from tsattn.task import Output, Task

L, T = 40, 6
CHANNELS = ("a", "b", "c")
SMALL: dict[str, Any] = {"d_model": 16, "num_heads": 4, "num_layers": 2}
START = 1_600_000_000 // 3600 * 3600


def task(**more: Any) -> Task:
    return Task("toy", L, T, CHANNELS, "h", 24, **more)


def built(description: Any, of: Task | None = None) -> Predictor:
    torch.manual_seed(0)
    predictor = build_predictor(description)
    predictor.build(of or task(), Output())
    for weight in predictor.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.4)
    return predictor.eval()


def window(length: int = L, **more: Any) -> Batch:
    generator = torch.Generator().manual_seed(1)
    time = START + 3600 * torch.arange(L - length, L + T)[None]
    return Batch(past=torch.randn(1, length, len(CHANNELS), generator=generator), time=time, **more)


def maps_of_a_forecast(predictor: Predictor, batch: Batch, row: int) -> list[np.ndarray[Any, Any]]:
    """Of each attention, the map of the tokens that it is given while the window is forecast."""
    found = []

    def keep(attention: Attention, args: Any, given: dict[str, Any]) -> None:
        said = {name: value for name, value in given.items() if value is not None}
        found.append(attention_map(attention, *args, **said)[row].double().numpy())

    attentions = [part for part in predictor.modules() if isinstance(part, Attention)]
    hooks = [attention.register_forward_pre_hook(keep, with_kwargs=True) for attention in attentions]
    with torch.no_grad():
        predictor(batch)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize(
    ("backbone", "attention"),
    [
        ({"kind": "patchtst", "patch_len": 8}, {"kind": "swa", "window_size": 3}),
        ({"kind": "transformer"}, {"kind": "mlr", "ranks": [2, 2]}),
    ],
)
def test_weights_are_those_that_it_forecasts_with(backbone: dict[str, Any], attention: Any) -> None:
    predictor = built({**backbone, **SMALL, "attention": attention})
    batch = window()
    channel = "b" if backbone["kind"] == "patchtst" else None
    layers = attention_layers(predictor, batch, channel)
    expected = maps_of_a_forecast(predictor, batch, 1 if channel else 0)
    assert [layer.name for layer in layers] == ["layer 0", "layer 1"]
    for layer, weights in zip(layers, expected, strict=True):
        assert layer.channel == channel
        np.testing.assert_allclose(layer.weights, weights, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(layer.weights.sum(-1), 1, rtol=1e-6)
    assert not np.allclose(layers[0].weights, layers[1].weights)


def test_patches_are_known_by_their_last_steps() -> None:
    of_patches = built({"kind": "patchtst", "patch_len": 8, "stride": 5, **SMALL})
    (layer, _) = attention_layers(of_patches, window())
    last = pd.Timestamp(START + 3600 * (L - 1), unit="s")
    # 7 patches of 8 steps, 5 apart, in 40 steps; 2 lack, so that the first one repeats the first step
    assert list(layer.keys) == [last - pd.Timedelta(5 * place, "h") for place in range(7, -1, -1)][-len(layer.keys) :]
    assert (layer.token, layer.keys[-1], layer.channel) == ("patch", last, "a")
    counted = Task("toy", L, T, CHANNELS, "1", 1)
    batch = window()
    batch.time = torch.arange(7, 7 + L + T)[None]
    layer = attention_layers(built({"kind": "transformer", **SMALL}, counted), batch)[0]
    assert list(layer.queries) == list(range(7, 7 + L))


def test_channels_are_known_by_their_names() -> None:
    of = task(past_covariates=("p",), future_covariates=("f",))
    predictor = built({"kind": "itransformer", "calendar": True, **SMALL}, of)
    batch = window(past_covariates=torch.randn(1, L, 1), future_covariates=torch.randn(1, L + T, 1))
    layer = attention_layers(predictor, batch)[0]
    cycles = [f"{wave} of the {cycle}" for cycle in ("day", "week", "year") for wave in ("sine", "cosine")]
    assert list(layer.queries) == ["a", "b", "c", "p", "f", *cycles]
    assert (layer.token, layer.channel) == ("channel", None)
    np.testing.assert_allclose(layer.weights, maps_of_a_forecast(predictor, batch, 0)[0], rtol=1e-4, atol=1e-6)


def test_members_of_an_ensemble_see_their_own_contexts() -> None:
    members = [
        "persistence",
        {"kind": "transformer", **SMALL, "context_length": 16, "attention": ["swa", "mlr"]},
        {"kind": "patchtst", "patch_len": 8, **SMALL, "num_layers": 1},
    ]
    predictor = built({"kind": "ensemble", "members": members, "seeds": 2})
    layers = attention_layers(predictor, window())
    names = [f"member_1_seed_{seed} layer {layer}" for seed in (0, 1) for layer in (0, 1)]
    assert [layer.name for layer in layers] == [*names, "member_2_seed_0 layer 0", "member_2_seed_1 layer 0"]
    assert [layer.kind for layer in layers] == ["swa", "mlr", "swa", "mlr", "standard", "standard"]
    assert layers[0].queries[0] == pd.Timestamp(START + 3600 * (L - 16), unit="s")
    assert layers[0].queries[-1] == layers[-1].queries[-1] == pd.Timestamp(START + 3600 * (L - 1), unit="s")


def test_the_frame_has_a_row_a_head_query_and_key() -> None:
    layer = attention_layers(built({"kind": "transformer", **SMALL, "attention": "mlr"}), window())[1]
    frame = layer.frame()
    assert len(frame) == 4 * L * L
    assert list(frame.columns) == ["layer", "attention", "head", "query", "key", "weight", "level 1", "level 2"]
    shuffled = frame.sample(200, random_state=0)
    for row in shuffled.itertuples():
        place = row.head, layer.queries.get_loc(row.query), layer.keys.get_loc(row.key)
        assert row.weight == layer.weights[place]
        assert row[-1] == layer.levels["level 2"][place]
    np.testing.assert_allclose(frame.groupby(["head", "query"])["weight"].sum(), 1, rtol=1e-6)


def test_channels_that_are_not_there_are_refused() -> None:
    with pytest.raises(UserError, match="there is no channel 'd'; valid: a, b, c"):
        attention_layers(built({"kind": "patchtst", "patch_len": 8, **SMALL}), window(), "d")
    with pytest.raises(UserError, match="sees all channels at once: leave the channel out"):
        attention_layers(built({"kind": "transformer", **SMALL}), window(), "b")
    valid = "valid are transformer, patchtst, itransformer, tiny, chronos, and ensembles of them"
    for kind in ("ridge", "dlinear"):
        with pytest.raises(UserError, match=f"{kind} has no attention to show; {valid}"):
            attention_layers(built(kind), window())
