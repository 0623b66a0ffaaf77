"""Small models of chronos-forecasting with random weights, and ours with the same ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tsattn.backbones import build_backbone, complete_backbone
from tsattn.chronos.bolt.bolt_file import bolt_config, to_chronos_bolt
from tsattn.chronos.bolt.bolt_network import UNSCALED, ChronosBolt
from tsattn.task import Output, Task

chronos_bolt = pytest.importorskip("chronos.chronos_bolt", reason="chronos-forecasting is not installed: extra chronos")

LEVELS = (0.1, 0.3, 0.5, 0.8)
DESCRIPTION = {
    **{"kind": "chronos_bolt", "patch_len": 4, "d_model": 24, "head_dim": 10, "num_heads": 3, "d_ff": 20},
    **{"num_layers": 3, "num_decoder_layers": 2, "num_buckets": 8, "max_distance": 9},
}


def theirs(levels: tuple[float, ...] = LEVELS, prediction_length: int = 7, **changes: Any) -> Any:
    """A small model of chronos-forecasting with random weights, none of which is left near zero."""
    from transformers import T5Config

    config = bolt_config(complete_backbone({**DESCRIPTION, **changes}), 48, prediction_length, levels)
    torch.manual_seed(5)
    model = chronos_bolt.ChronosBoltModelForForecasting(T5Config(**config))
    for part in model.parameters():
        torch.nn.init.normal_(part, part.mean().item(), 0.3)
    return model.eval()


def ours(model: Any, attention: Any = UNSCALED, **changes: Any) -> ChronosBolt:
    """The same model from this package's layers, built with the same changes."""
    sizes = model.chronos_config
    task = Task("toy", sizes.context_length, sizes.prediction_length, ("y",), "h", 24)
    described = {**DESCRIPTION, **changes, "attention": attention}
    backbone = build_backbone(described, task, Output(tuple(sizes.quantiles)))
    assert isinstance(backbone, ChronosBolt)
    backbone.load_state_dict(renamed(model.state_dict(), backbone))
    return backbone.eval()


def renamed(state: dict[str, Any], backbone: ChronosBolt) -> dict[str, Any]:
    """What a state of theirs is by our names."""
    names = to_chronos_bolt({name: name for name in backbone.state_dict()})
    assert names.keys() >= state.keys()
    return {own: state[name] for name, own in names.items() if name in state}
