"""A pretrained `ChronosBolt` of this package as a pipeline of chronos-forecasting, whose model computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsattn.backbones import complete_backbone
from tsattn.chronos.bolt.bolt_file import load_bolt, read_model
from tsattn.chronos.bolt.bolt_network import UNSCALED
from tsattn.chronos.bolt.bolt_weights import bolt_config, to_chronos_bolt
from tsattn.chronos.models.families import FAMILIES
from tsattn.errors import UserError

__all__ = ["bolt_pipeline"]


def bolt_pipeline(path: Path) -> Any:
    """The pipeline of a file of `tsattn.chronos.bolt.bolt_file`, in float32.

    Raises:
        UserError: for a file that is none, or a network that chronos-forecasting has not got.
    """
    model = read_model(path)
    given = complete_backbone(model.description)
    attention = given["attention"]
    unscaled = attention if isinstance(attention, list) else [attention]
    plain = {"kind": "standard", "scaling": 1.0}
    if any({**plain, **one} != one or one.get("qk_norm") for one in unscaled) or given["arcsinh"]:
        raise UserError(f"{path} has another attention than Chronos-Bolt, {UNSCALED}, and so cannot be adapted")
    config = bolt_config(given, model.context_length, model.prediction_length, model.quantiles)
    pipeline = FAMILIES["bolt"].unloaded(config, "sdpa")
    pipeline.inner_model.load_state_dict(to_chronos_bolt(load_bolt(path).state_dict()))
    pipeline.inner_model.eval()
    return pipeline
