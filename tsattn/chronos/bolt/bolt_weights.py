"""Weights of Chronos-Bolt, by the names of chronos-forecasting and by those of `ChronosBolt`: one is the other renamed.

The model there is `chronos.chronos_bolt.ChronosBoltModelForForecasting`. This module needs neither package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from tsattn.errors import UserError, one_of

__all__ = ["bolt_config", "bolt_description", "from_chronos_bolt", "to_chronos_bolt"]

_SHARED = "shared.weight"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # of the special tokens, under other names
_MLPS = {"patch_mlp": "input_patch_embedding", "head": "output_patch_embedding"}
_LAYERS = {"hidden": "hidden_layer", "output": "output_layer", "skip": "residual_layer"}
_ATTENTION = {"projection.query": "q", "projection.key": "k", "value": "v", "output": "o"}
_PLAIN_NETWORK = {"hidden": "wi", "output": "wo"}
_GATED_NETWORK = {"hidden": "wi_0", "gate": "wi_1", "output": "wo"}

# the functions of hidden layers, by the names of transformers
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}

# arguments of `ChronosBolt` by the names that a configuration has for them, there and in its chronos_config
_SAME = {
    "d_model": "d_model",
    "num_layers": "num_layers",
    "num_decoder_layers": "num_decoder_layers",
    "num_heads": "num_heads",
    "head_dim": "d_kv",
    "d_ff": "d_ff",
    "num_buckets": "relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance",
    "dropout": "dropout_rate",
}
_SAME_OF_CHRONOS = {"patch_len": "input_patch_size", "stride": "input_patch_stride", "reg_token": "use_reg_token"}
_DEFAULTS = {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "dropout_rate": 0.1}


def from_chronos_bolt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of chronos-forecasting to those of a `ChronosBolt`.

    Its attention has queries and keys by linear maps, as `UNSCALED` has.

    Args:
        state: of the model of chronos-forecasting; copies of the table of special tokens may be left out.

    Raises:
        UserError: naming a weight that is lacking or that has no place here.
    """
    given = {name: part for name, part in state.items() if name not in _COPIES}
    if _SHARED not in given and (copies := [state[name] for name in _COPIES if name in state]):
        given[_SHARED] = copies[0]
    names = {theirs: ours for ours, theirs in _names(_sizes(given))}
    return _renamed(given, names, "Chronos-Bolt")


def to_chronos_bolt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of a `ChronosBolt` to those that the model of chronos-forecasting loads, strictly.

    Args:
        state: of a `ChronosBolt`, see `from_chronos_bolt`.

    Raises:
        UserError: naming a weight that has no place there, as those of an attention of another structure.
    """
    theirs = _renamed(state, dict(_names(_own_sizes(state))), "chronos_bolt")
    return {**theirs, **dict.fromkeys(_COPIES, theirs[_SHARED])}


def bolt_description(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translate a configuration of Chronos-Bolt.

    Args:
        config: as ``config.json`` of such a model holds it, or `to_dict` of its configuration gives it.

    Returns:
        the description of the backbone, and ``context_length``, ``prediction_length`` and ``quantiles``.

    Raises:
        UserError: for a configuration of another model, or a function of hidden layers or a stride that is not here.
    """
    chronos = config.get("chronos_config")
    if not isinstance(chronos, Mapping) or "input_patch_size" not in chronos or "quantiles" not in chronos:
        raise UserError("this is no configuration of a Chronos-Bolt model: it has no chronos_config with patches")
    words = str(config.get("feed_forward_proj", "relu")).split("-")
    activation = str(config.get("dense_act_fn") or ("gelu_new" if words == ["gated", "gelu"] else words[-1]))
    if activation not in _ACTIVATIONS:
        raise UserError(f"feed_forward_proj {config.get('feed_forward_proj')!r} is none of {one_of(_ACTIVATIONS)}")
    given = {**_DEFAULTS, **config}
    given["num_decoder_layers"] = config.get("num_decoder_layers") or config["num_layers"]
    there = {"use_reg_token": False, **chronos}
    description = {
        "kind": "chronos_bolt",
        **{ours: given[theirs] for ours, theirs in _SAME.items()},
        **{ours: there[theirs] for ours, theirs in _SAME_OF_CHRONOS.items()},
        "feed_forward": f"{'gated-' if words[0] == 'gated' else ''}{_ACTIVATIONS[activation]}",
    }
    _check_stride(description)
    sizes = {name: chronos[name] for name in ("context_length", "prediction_length")}
    return description, {**sizes, "quantiles": tuple(chronos["quantiles"])}


def bolt_config(
    description: Mapping[str, Any], context_length: int, prediction_length: int, quantiles: Sequence[float]
) -> dict[str, Any]:
    """Write the configuration of a network, from which `bolt_description` reads it.

    Args:
        description: of a `chronos_bolt` with the attention of Chronos-Bolt, all arguments written out.
        context_length: the most past steps that it sees.
        prediction_length: steps that it forecasts at once.
        quantiles: the levels that it forecasts.

    Raises:
        UserError: for a stride that is another one there.
    """
    prefix, _, activation = description["feed_forward"].rpartition("-")
    function = next(name for name, own in _ACTIVATIONS.items() if own == activation)
    whole = {
        **description,
        "head_dim": description["head_dim"] or description["d_model"] // description["num_heads"],
        "d_ff": description["d_ff"] or 4 * description["d_model"],
        "stride": description["stride"] or description["patch_len"],
    }
    _check_stride(whole)
    return {
        **{theirs: whole[ours] for ours, theirs in _SAME.items()},
        "feed_forward_proj": f"{prefix}-{function}" if prefix else function,
        "dense_act_fn": function,  # which transformers would take as gelu_new from gated-gelu
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
        "architectures": ["ChronosBoltModelForForecasting"],
        "chronos_pipeline_class": "ChronosBoltPipeline",
        "chronos_config": {
            **{theirs: whole[ours] for ours, theirs in _SAME_OF_CHRONOS.items()},
            "context_length": context_length,
            "prediction_length": prediction_length,
            "quantiles": [*quantiles],
        },
    }


def _check_stride(description: Mapping[str, Any]) -> None:
    """Refuse patches that lie elsewhere here than in chronos-forecasting, which leaves the last steps out."""
    patch_len, stride = description["patch_len"], description["stride"]
    if patch_len % stride:
        raise UserError(
            "weights are exchanged with chronos-forecasting where the stride divides "
            f"patch_len {patch_len}, not {stride}"
        )


def _names(sizes: tuple[int, int, bool]) -> Iterator[tuple[str, str]]:
    """Each weight here with its name there, for so many blocks of the encoder and decoder, gated or not."""
    *depths, is_gated = sizes
    yield "special.weight", _SHARED
    for ours, theirs in _MLPS.items():
        for layer, name in _LAYERS.items():
            for part in ("weight", "bias"):
                yield f"{ours}.{layer}.{part}", f"{theirs}.{name}.{part}"
    for stack, depth in zip(("encoder", "decoder"), depths, strict=True):
        owner = f"{stack}.block.0.layer.0.SelfAttention"
        yield f"{stack}.relative_bias.weight", f"{owner}.relative_attention_bias.weight"
        yield f"{stack}.norm.weight", f"{stack}.final_layer_norm.weight"
        for number in range(depth):
            yield from _block(f"{stack}.blocks.{number}", f"{stack}.block.{number}.layer", stack, is_gated)


def _block(ours: str, theirs: str, stack: str, is_gated: bool) -> Iterator[tuple[str, str]]:
    branches: list[tuple[str, str, Mapping[str, str]]] = [("attention", "SelfAttention", _ATTENTION)]
    if stack == "decoder":
        branches.append(("across", "EncDecAttention", _ATTENTION))
    branches.append(("network", "DenseReluDense", _GATED_NETWORK if is_gated else _PLAIN_NETWORK))
    for number, (branch, name, maps) in enumerate(branches):
        yield f"{ours}.{branch}_norm.weight", f"{theirs}.{number}.layer_norm.weight"
        for own, other in maps.items():
            yield f"{ours}.{branch}.{own}.weight", f"{theirs}.{number}.{name}.{other}.weight"


def _sizes(state: Mapping[str, Tensor]) -> tuple[int, int, bool]:
    depths = [_depth(state, rf"{stack}\.block\.(\d+)\.") for stack in ("encoder", "decoder")]
    return depths[0], depths[1], any(".wi_1." in name for name in state)


def _own_sizes(state: Mapping[str, Tensor]) -> tuple[int, int, bool]:
    depths = [_depth(state, rf"{stack}\.blocks\.(\d+)\.") for stack in ("encoder", "decoder")]
    return depths[0], depths[1], any(name.endswith("network.gate.weight") for name in state)


def _depth(state: Mapping[str, Tensor], pattern: str) -> int:
    found: Sequence[int] = [int(match[1]) for name in state if (match := re.match(pattern, name))]
    return max(found, default=-1) + 1


def _renamed(state: Mapping[str, Tensor], names: Mapping[str, str], what: str) -> dict[str, Tensor]:
    strange = [name for name in state if name not in names]
    lacking = [name for name in names if name not in state]
    if strange:
        raise UserError(f"weight {strange[0]} has no place in a Chronos-Bolt model with queries and keys of its own")
    if lacking:
        raise UserError(f"the weights lack {lacking[0]}: these are not all of a {what} model")
    return {name: state[own] for own, name in names.items()}
