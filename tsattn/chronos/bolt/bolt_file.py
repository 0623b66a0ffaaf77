"""The file of a pretrained `ChronosBolt`: safetensors with its description in their head; its names elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tsattn.backbones import build_backbone
from tsattn.chronos.bolt.bolt_network import ChronosBolt
from tsattn.descriptions import PlainData
from tsattn.errors import UserError, folder_path
from tsattn.task import Output, Task

T = TypeVar("T")

_FORMAT = "tsattn chronos_bolt 1"
_SHIPPED = Path(__file__).parent / "weights"
_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class BoltModel(PlainData):
    """The head of a file: the description of the backbone, its sizes, its levels, and the data sets it has seen."""

    description: dict[str, Any]
    context_length: int
    prediction_length: int
    quantiles: tuple[float, ...]
    trained_on: tuple[str, ...] = ()

    def build(self) -> ChronosBolt:
        """Build the network without weights, on the device ``meta``."""
        task = Task("pretrained", self.context_length, self.prediction_length, ("y",), "1", 1)
        with torch.device("meta"):
            network = build_backbone(self.description, task, Output(self.quantiles))
        assert isinstance(network, ChronosBolt)
        return network


def shipped_names() -> list[str]:
    """List the models that come with this installation."""
    return sorted(path.stem for path in _SHIPPED.glob(f"*{_SUFFIX}"))


def named_file(weights: str | PathLike[str]) -> Path | None:
    """Find the file that a shipped name or a path means; None if there is none.

    A shipped name means that model even if the current folder holds a file of this name, which ``./NAME`` means.
    """
    if isinstance(weights, str) and weights in shipped_names():
        return _SHIPPED / f"{weights}{_SUFFIX}"
    path = folder_path(weights)
    return path if path.suffix == _SUFFIX and path.is_file() else None


def read_model(path: Path) -> BoltModel:
    """Read the description of a model from the head of its file."""
    try:
        with safe_open(path, framework="pt") as file:
            head = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if head.get("format") != _FORMAT:
        raise UserError(f"{path} is not a model that this tsattn has pretrained: its format is {head.get('format')!r}")
    try:
        return BoltModel.from_dict(json.loads(head["model"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error


def load_bolt(path: Path) -> ChronosBolt:
    """Load the network of a file, in float32 and eval mode."""
    network = read_model(path).build()
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118, it is no mapping
        network.load_state_dict(state, assign=True)
    except (SafetensorError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error
    if not all(bool(part.isfinite().all()) for part in state.values()):
        raise UserError(f"{path} is damaged: it holds weights that are not finite")
    return network.eval().requires_grad_(False)


def save_bolt(path: Path, model: BoltModel, state: Mapping[str, Tensor], *, dtype: torch.dtype = torch.float32) -> None:
    """Write a file for `load_bolt`, its weights rounded to `dtype`."""
    if path.suffix != _SUFFIX:
        raise UserError(f"weights are saved as a {_SUFFIX} file, not as {path.name}")
    parts = {name: part.detach().to(dtype).contiguous().cpu() for name, part in state.items()}
    try:
        save_file(parts, path, metadata={"format": _FORMAT, "model": json.dumps(model.to_dict())})
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be written: {' '.join(str(error).split())}") from error


# arguments of `ChronosBolt` by the names of a configuration of chronos-forecasting and of its chronos_config
_CONFIG = {
    **{"d_model": "d_model", "num_layers": "num_layers", "num_decoder_layers": "num_decoder_layers"},
    **{"num_heads": "num_heads", "d_kv": "head_dim", "d_ff": "d_ff", "dropout_rate": "dropout"},
    **{"relative_attention_num_buckets": "num_buckets", "relative_attention_max_distance": "max_distance"},
}
_CHRONOS_CONFIG = {"input_patch_size": "patch_len", "input_patch_stride": "stride", "use_reg_token": "reg_token"}
_ENDS = {"hidden": "hidden_layer", "output": "output_layer", "skip": "residual_layer"}
_BRANCHES = {"attention": "SelfAttention", "across": "EncDecAttention", "network": "DenseReluDense"}
_MAPS = {"projection.query": "q", "projection.key": "k", "value": "v", "output": "o"}


def bolt_config(
    description: Mapping[str, Any], context_length: int, prediction_length: int, quantiles: Sequence[float]
) -> dict[str, Any]:
    """Write the configuration that chronos-forecasting builds the same network from."""
    prefix, _, function = description["feed_forward"].rpartition("-")
    function = "gelu_new" if function == "gelu_tanh" else function
    whole, D = dict(description), description["d_model"]
    for name, value in {"head_dim": D // whole["num_heads"], "d_ff": 4 * D, "stride": whole["patch_len"]}.items():
        whole[name] = whole[name] or value
    if whole["patch_len"] % whole["stride"]:
        raise UserError(
            "weights are exchanged with chronos-forecasting where the stride divides "
            f"patch_len {whole['patch_len']}, not {whole['stride']}"
        )
    chronos = {"context_length": context_length, "prediction_length": prediction_length, "quantiles": [*quantiles]}
    return {
        **{theirs: whole[ours] for theirs, ours in _CONFIG.items()},
        "feed_forward_proj": f"{prefix}-{function}" if prefix else function,
        "dense_act_fn": function,  # which transformers would take as gelu_new from gated-gelu
        **{"pad_token_id": 0, "decoder_start_token_id": 0, "is_encoder_decoder": True},
        **{"architectures": ["ChronosBoltModelForForecasting"], "chronos_pipeline_class": "ChronosBoltPipeline"},
        "chronos_config": {**{theirs: whole[ours] for theirs, ours in _CHRONOS_CONFIG.items()}, **chronos},
    }


def to_chronos_bolt(state: Mapping[str, T]) -> dict[str, T]:
    """Rename the weights of a `ChronosBolt` to those of `ChronosBoltModelForForecasting`."""
    is_gated = any(name.endswith("network.gate.weight") for name in state)
    theirs = {_their_name(name, is_gated): part for name, part in state.items()}
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    return {**theirs, **dict.fromkeys(copies, theirs["shared.weight"])}


def _their_name(name: str, is_gated: bool) -> str:
    owner, _, part = name.rpartition(".")
    if owner == "special":
        return f"shared.{part}"
    first, _, rest = owner.partition(".")
    if first in ("patch_mlp", "head"):
        return f"{'input' if first == 'patch_mlp' else 'output'}_patch_embedding.{_ENDS[rest]}.{part}"
    if rest in ("relative_bias", "norm"):
        shared = {"relative_bias": "block.0.layer.0.SelfAttention.relative_attention_bias", "norm": "final_layer_norm"}
        return f"{first}.{shared[rest]}.{part}"
    match = re.fullmatch(r"blocks\.(\d+)\.(attention|across|network)(?:_norm|\.(.+))", rest)
    if match is None:
        raise KeyError(name)
    number, branch, layer = match.groups()
    place = {"attention": 0, "across": 1, "network": 1 if first == "encoder" else 2}[branch]
    maps = {"hidden": "wi_0" if is_gated else "wi", "gate": "wi_1", "output": "wo"} if branch == "network" else _MAPS
    end = "layer_norm" if layer is None else f"{_BRANCHES[branch]}.{maps[layer]}"
    return f"{first}.block.{number}.layer.{place}.{end}.{part}"
