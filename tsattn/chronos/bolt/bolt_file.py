"""A pretrained `ChronosBolt` in one file: weights in safetensors, with what it was built for in their head."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tsattn.backbones import build_backbone
from tsattn.checks import folder_path
from tsattn.chronos.bolt.bolt_network import ChronosBolt
from tsattn.descriptions import PlainData
from tsattn.errors import UserError, one_of
from tsattn.task import Output, Task

__all__ = ["BoltModel", "find_weights", "load_bolt", "named_file", "read_model", "save_bolt", "shipped_names"]

_FORMAT = "tsattn chronos_bolt 1"
_SHIPPED = Path(__file__).parent / "weights"
_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class BoltModel(PlainData):
    """The description of a model that its file holds.

    Attributes:
        description: of the backbone.
        context_length: the most past steps that it sees.
        prediction_length: steps that it forecasts at once.
        quantiles: the levels that it forecasts.
        trained_on: names of the public data sets whose training parts it has seen.
    """

    description: dict[str, Any]
    context_length: int
    prediction_length: int
    quantiles: tuple[float, ...]
    trained_on: tuple[str, ...] = ()

    def build(self) -> ChronosBolt:
        """The network, without its weights: they lie on the device ``meta``."""
        task = Task("pretrained", self.context_length, self.prediction_length, ("y",), "1", 1)
        with torch.device("meta"):
            network = build_backbone(self.description, task, Output(self.quantiles))
        assert isinstance(network, ChronosBolt)
        return network


def shipped_names() -> list[str]:
    """The names of the models that come with this installation."""
    return sorted(path.stem for path in _SHIPPED.glob(f"*{_SUFFIX}"))


def named_file(weights: str | PathLike[str]) -> Path | None:
    """Find the file that a shipped name or a path means; None if there is none.

    A shipped name means that model wherever it is typed, whatever else has this name in the current folder, which
    ``./NAME`` means.
    """
    if isinstance(weights, str) and weights in shipped_names():
        return _SHIPPED / f"{weights}{_SUFFIX}"
    path = folder_path(weights)
    return path if path.suffix == _SUFFIX and path.is_file() else None


def find_weights(weights: str | PathLike[str]) -> Path:
    """The file of a shipped model's name, or a path to one.

    Raises:
        UserError: if there is no such file; the message lists the shipped names.
    """
    path = named_file(weights)
    if path is not None:
        return path
    shipped = f"one of {one_of(shipped_names())}, or " if shipped_names() else ""
    raise UserError(
        f"weights must be {shipped}the path of a {_SUFFIX} file of a pretrained model, not {str(weights)!r}"
    )


def read_model(path: Path) -> BoltModel:
    """Read the description of a model from the head of its file, without its weights.

    Raises:
        UserError: for a file that `save_bolt` has not written.
    """
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
    """Load the network of a file, in float32 and eval mode.

    Raises:
        UserError: for a file that `save_bolt` has not written, or whose weights are not those of its model.
    """
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
    """Write a file that `load_bolt` reads.

    Args:
        path: of the file, ``NAME.safetensors``.
        model: what it says of the network.
        state: the weights.
        dtype: that they are rounded to; they are computed with in float32.

    Raises:
        UserError: for another suffix, or if it cannot be written.
    """
    if path.suffix != _SUFFIX:
        raise UserError(f"weights are saved as a {_SUFFIX} file, not as {path.name}")
    parts = {name: part.detach().to(dtype).contiguous().cpu() for name, part in state.items()}
    try:
        save_file(parts, path, metadata={"format": _FORMAT, "model": json.dumps(model.to_dict())})
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be written: {' '.join(str(error).split())}") from error
