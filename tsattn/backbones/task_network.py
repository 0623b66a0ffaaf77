"""A network that is built for a task, and its checkpoint file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from typing_extensions import override

from tsattn.backbones import Backbone, build_backbone
from tsattn.batch import Batch
from tsattn.errors import FormatError, UserError, one_line, shown
from tsattn.layers import distribution
from tsattn.saved_folders import atomic_write
from tsattn.scaler import Scaler
from tsattn.task import Output, Task

FORMAT = 4
_KEY = "tsattn"


class Network(nn.Module):
    """A backbone that is built for a task: the module that is trained, saved and used to forecast."""

    def __init__(
        self, description: dict[str, Any], task: Task, output: Output, backbone: Backbone | None = None
    ) -> None:
        super().__init__()
        self.description, self.task, self.output = description, task, output
        self.backbone = build_backbone(description, task, output) if backbone is None else backbone
        self.family = distribution(output)

    @override
    def forward(self, batch: Batch) -> Tensor:
        return self.forecast_of(self.backbone(batch), batch)

    def forecast_of(self, made: Tensor, batch: Batch) -> Tensor:
        """Turn the backbone's output, which may be parameters of a distribution, into a forecast."""
        return made if self.family is None else self.family.forecast(made, self.output.quantiles, batch)


@dataclass(frozen=True)
class CheckpointContent:
    """Plain data from which a saved predictor is built, before its weights are loaded."""

    task: Task
    scaler: Scaler
    output: Output
    predictor: dict[str, Any]  # description of the predictor

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: each record under its name, and the description."""
        records = {name: getattr(self, name).to_dict() for name in ("task", "scaler", "output")}
        return {**records, "predictor": self.predictor}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Invert `to_dict`; raise KeyError, TypeError or ValueError for missing, mistyped or contradictory values."""
        task, scaler = Task.from_dict(saved["task"]), Scaler.from_dict(saved["scaler"])
        description = saved["predictor"]
        if not isinstance(description, dict):
            raise TypeError(f"the predictor is no description: {shown(repr(description))}")
        if len(scaler.mean) != task.num_channels:
            raise ValueError(f"{len(scaler.mean)} channels are scaled, and {task.num_channels} forecast")
        return cls(task, scaler, Output.from_dict(saved["output"]), description)

    def write_to(self, checkpoint: dict[str, Any]) -> None:
        """Put the content into a checkpoint."""
        checkpoint[_KEY] = {"format": FORMAT, **self.to_dict()}


def read_content(checkpoint: Mapping[str, Any]) -> CheckpointContent:
    """Return the content of a checkpoint, without importing anything that the checkpoint names."""
    saved = checkpoint.get(_KEY)
    if not isinstance(saved, Mapping):
        raise UserError("the checkpoint was not written by tsattn")
    check_format(saved.get("format"), "the checkpoint")
    try:
        return CheckpointContent.from_dict(saved)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the checkpoint is damaged: {one_line(error, 200)}") from error


def check_format(found: object, source: str) -> None:
    """Refuse a format number that this version cannot read; the message names `source`."""
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise UserError(f"{source} is damaged: {shown(repr(found))} is no format number")
    if found != FORMAT:
        raise FormatError(f"{source} is of format {shown(found)}, and this version of tsattn reads format {FORMAT}")


def check_same(
    saved: Mapping[str, Any], saved_output: Output, asked: Mapping[str, Any], asked_output: Output | None
) -> None:
    """Refuse saved weights of another model. Call it before importing anything that their description names."""
    other = "the checkpoint is of another model"
    if asked.get("context_length", 0) is None:  # the fit chose it
        asked = {**asked, "context_length": saved.get("context_length")}
    if saved != asked:
        raise UserError(f"{other}: {difference(dict(saved), dict(asked))}")
    outputs = [saved_output, saved_output if asked_output is None else asked_output]
    mine, theirs = (list(output.quantiles) or "none" for output in outputs)
    if mine != theirs:
        raise UserError(f"{other}: its quantiles are {mine}, but {theirs} are asked for")
    mine, theirs = (output.distribution or "none" for output in outputs)
    if mine != theirs:
        raise UserError(f"{other}: its distribution is {mine}, but {theirs} is asked for")


def difference(saved: dict[str, Any], asked: dict[str, Any], name: str = "backbone") -> str:
    """Return the first argument in which two descriptions differ, with both values."""
    for key in [*saved, *asked]:
        one, other = saved.get(key), asked.get(key)
        if one != other and isinstance(one, dict) and isinstance(other, dict) and one.get("kind") == other.get("kind"):
            return difference(one, other, f"{name}.{key}")
        if one != other:
            return f"its {name}.{key} is {one}, but {other} is asked for"
    return f"its {name} is {saved}, but {asked} is asked for"


def refuse_imports(description: object, source: str) -> None:
    """Refuse a network or attention in a weight file that would import a module; imported classes are safe."""
    if isinstance(description, Mapping):  # only kinds are imported; other texts may have a point, too
        refuse_imports((description.get("kind"), description.get("attention")), source)
    elif isinstance(description, list | tuple):
        for part in description:
            refuse_imports(part, source)
    elif isinstance(description, str) and "." in description:
        module, _, name = description.rpartition(".")
        # not getattr: it would import what a module loads lazily
        if not inspect.isclass(vars(sys.modules.get(module, object)).get(name)):
            what = f"{source} needs the class {shown(description)}, and loading weights imports no modules"
            raise UserError(f"{what}. If you trust that module, import it first, then load again")


def check_weights(weights: Mapping[str, Tensor], source: str) -> None:
    """Refuse weights that are not finite; the message names the first."""
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            raise UserError(f"{source} is damaged: its weight {name} holds numbers that are not finite")


def write_checkpoint(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Write a checkpoint completely or not at all."""
    path = Path(path)
    try:
        with atomic_write(path, alone=True) as file:
            torch.save(checkpoint, file)
    except (OSError, RuntimeError) as error:  # torch's writer turns an OSError into a RuntimeError
        before = "; the checkpoint before it is intact" if path.exists() else ""
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"the checkpoint {path} cannot be written: {reason}{before}") from error


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Load a checkpoint to the CPU, without running code from it."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"the checkpoint {path} does not exist") from error
    except Exception as error:  # torch.load raises many kinds of error for a file that is not a checkpoint
        raise UserError(f"{path} is not a readable checkpoint ({type(error).__name__})") from error
    return content
