"""What a checkpoint says of its model, as plain data with the number of its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tsattn.descriptions import difference
from tsattn.errors import UserError, shown
from tsattn.scaler import Scaler
from tsattn.task import Output, Task

__all__ = ["FORMAT", "CheckpointContent", "check_format", "check_same", "read_content"]

FORMAT = 2
_KEY = "tsattn"


@dataclass(frozen=True)
class CheckpointContent:
    """What is needed to build a model, but for its weights.

    Attributes:
        task: what it was trained for.
        scaler: of its training part.
        output: what was asked of it.
        predictor: its description.
    """

    task: Task
    scaler: Scaler
    output: Output
    predictor: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: each record under its name, and the description."""
        records = {name: getattr(self, name).to_dict() for name in ("task", "scaler", "output")}
        return {**records, "predictor": self.predictor}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Raises:
            KeyError: for a record that is not there.
            TypeError: for one with other fields than it has, or values of another type.
            ValueError: for values that do not go together.
        """
        task, scaler = Task.from_dict(saved["task"]), Scaler.from_dict(saved["scaler"])
        description = saved["predictor"]
        if not isinstance(description, dict):
            raise TypeError(f"the predictor is no description: {shown(repr(description))}")
        if len(scaler.mean) != task.num_channels:
            raise ValueError(f"{len(scaler.mean)} channels are scaled, and {task.num_channels} forecast")
        return cls(task, scaler, Output.from_dict(saved["output"]), description)

    def write_to(self, checkpoint: dict[str, Any]) -> None:
        """Put it into a checkpoint."""
        checkpoint[_KEY] = {"format": FORMAT, **self.to_dict()}


def read_content(checkpoint: Mapping[str, Any]) -> CheckpointContent:
    """What a checkpoint holds; nothing that it names is imported.

    Raises:
        UserError: for one that is not of this package, is damaged, or is of another format.
    """
    saved = checkpoint.get(_KEY)
    if not isinstance(saved, Mapping):
        raise UserError("the checkpoint was not written by tsattn")
    check_format(saved.get("format"), "the checkpoint")
    try:
        return CheckpointContent.from_dict(saved)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the checkpoint is damaged: {' '.join(str(error).split())[:200]}") from error


def check_format(found: object, source: str) -> None:
    """Refuse a format that this version cannot read.

    Args:
        found: the number of the format.
        source: what is of this format, as the message says it.

    Raises:
        UserError: saying which is read.
    """
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise UserError(f"{source} is damaged: {shown(repr(found))} is no format")
    if found != FORMAT:
        raise UserError(f"{source} is of format {shown(found)}, and this version of tsattn reads format {FORMAT}")


def check_same(
    saved: Mapping[str, Any], saved_output: Output | None, asked: Mapping[str, Any], asked_output: Output | None
) -> None:
    """Refuse weights of another model; this comes before anything that their description names is imported.

    Args:
        saved: the description in the file of the weights.
        saved_output: what was asked of that model.
        asked: the description of the predictor that is wanted.
        asked_output: what is asked of it; None where that is not known.

    Raises:
        UserError: naming the first difference.
    """
    if saved != asked:
        raise UserError(f"the checkpoint is of another model: {difference(dict(saved), dict(asked))}")
    if asked_output is not None and saved_output != asked_output:
        raise UserError(f"the checkpoint is of another model: {(saved_output or Output()).difference(asked_output)}")
