"""What a checkpoint says of its model, as plain data with the number of its format; every format that ever was is read.

Format 1 had no number: its task held scaler and quantiles, too. Format 2 keeps the three apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tsattn.errors import UserError, shown
from tsattn.scaler import Scaler
from tsattn.task import Output, Task

__all__ = ["FORMAT", "CheckpointContent", "check_format", "read_content", "read_records"]

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

    def write_to(self, checkpoint: dict[str, Any]) -> None:
        """Put it into a checkpoint, in the newest format."""
        records = {name: getattr(self, name).to_dict() for name in ("task", "scaler", "output")}
        checkpoint[_KEY] = {"format": FORMAT, **records, "predictor": self.predictor}


def read_content(checkpoint: Mapping[str, Any]) -> CheckpointContent:
    """What a checkpoint of any format holds.

    Raises:
        UserError: for one that is not of this package, is damaged, or is of a newer format.
    """
    saved = checkpoint.get(_KEY)
    if not isinstance(saved, Mapping):
        raise UserError("the checkpoint was not written by tsattn")
    found = saved.get("format", 1)
    check_format(found, "the checkpoint")
    try:
        return CheckpointContent(
            *read_records(saved, found), predictor=saved["backbone" if found == 1 else "predictor"]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the checkpoint is damaged: {' '.join(str(error).split())}") from error


def check_format(found: object, source: str) -> None:
    """Refuse a format that this version cannot read.

    Args:
        found: the number of the format.
        source: what is of this format, as the message says it.

    Raises:
        UserError: saying which can be read.
    """
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise UserError(f"{source} is damaged: {shown(repr(found))} is no format")
    if found > FORMAT:
        raise UserError(
            f"{source} is of format {found}, which a newer tsattn wrote; this one reads formats up to {FORMAT}"
        )


def read_records(saved: Mapping[str, Any], found: int) -> tuple[Task, Scaler, Output]:
    """The records among plain data of a format that can be read, each under its own name.

    Raises:
        KeyError: for a record that is not there.
        TypeError: for one with other fields than it has.
    """
    if found > 1:
        return (
            Task.from_dict(saved["task"]),
            Scaler.from_dict(saved["scaler"]),
            Output.from_dict(saved["output"]),
        )
    everything = dict(saved["task"])  # fields that came later are lacking in the oldest ones
    scaler, output = (
        {field.name: everything.pop(field.name) for field in fields(record) if field.name in everything}
        for record in (Scaler, Output)
    )
    return Task.from_dict(everything), Scaler.from_dict(scaler), Output.from_dict(output)
