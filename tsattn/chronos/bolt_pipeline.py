"""A pretrained `ChronosBolt` of this package as a pipeline of chronos-forecasting, whose model computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsattn.backbones import complete_backbone
from tsattn.backbones.bolt import UNSCALED
from tsattn.backbones.bolt_weights import to_chronos_bolt
from tsattn.chronos.families import FAMILIES
from tsattn.errors import UserError
from tsattn.pretrained.bolt_file import load_bolt, read_model

__all__ = ["bolt_pipeline"]

# the functions of hidden layers, by the names of transformers
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}


def bolt_pipeline(path: Path) -> Any:
    """The pipeline of a file of `tsattn.pretrained.bolt_file`, in float32.

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
    prefix, _, activation = given["feed_forward"].rpartition("-")
    theirs = _ACTIVATIONS[activation]
    d_model, heads = given["d_model"], given["num_heads"]
    config = {
        "d_model": d_model,
        "d_kv": given["head_dim"] or d_model // heads,
        "num_heads": heads,
        "d_ff": given["d_ff"] or 4 * d_model,
        "num_layers": given["num_layers"],
        "num_decoder_layers": given["num_decoder_layers"],
        "dropout_rate": given["dropout"],
        "feed_forward_proj": f"{prefix}-gelu" if prefix and theirs == "gelu_new" else f"{prefix}-{theirs}".lstrip("-"),
        "relative_attention_num_buckets": given["num_buckets"],
        "relative_attention_max_distance": given["max_distance"],
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
        "architectures": ["ChronosBoltModelForForecasting"],
        "chronos_pipeline_class": "ChronosBoltPipeline",
        "chronos_config": {
            "context_length": model.context_length,
            "prediction_length": model.prediction_length,
            "input_patch_size": given["patch_len"],
            "input_patch_stride": given["stride"] or given["patch_len"],
            "quantiles": list(model.quantiles),
            "use_reg_token": given["reg_token"],
        },
    }
    pipeline = FAMILIES["bolt"].unloaded(config, "sdpa")
    pipeline.inner_model.load_state_dict(to_chronos_bolt(load_bolt(path).state_dict()))
    pipeline.inner_model.eval()
    return pipeline
