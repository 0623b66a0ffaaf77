"""A fitted predictor in one file, of the form of a Lightning checkpoint: its state, and plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tsattn.descriptions import Description
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors.base import Predictor
from tsattn.predictors.conformal import ConformalScores, intervals_of
from tsattn.scaler import Scaler
from tsattn.task import Output
from tsattn.training.checkpoint_content import CheckpointContent, check_same, read_content
from tsattn.training.checkpoint_io import AtomicCheckpointIO, load_checkpoint
from tsattn.training.weight_checks import check_weights

__all__ = ["FittedPredictor", "calibrate_checkpoint", "load_predictor", "restored_predictor", "save_predictor"]

_CONFORMAL = "conformal"  # the key of a checkpoint


@dataclass(frozen=True)
class FittedPredictor:
    """A predictor, and the scaler of the data that it was fitted to.

    Attributes:
        predictor: built, fitted, on the CPU and in eval mode.
        scaler: takes its forecasts back to units.
        conformal: what its intervals are calibrated by; None where they are not.

    Raises:
        ValueError: for scores of other intervals than it forecasts.
    """

    predictor: Predictor
    scaler: Scaler
    conformal: ConformalScores | None = None

    def __post_init__(self) -> None:
        output = self.predictor.output or Output()
        if self.conformal is not None and [*self.conformal.intervals] != intervals_of(output.quantiles):
            raise ValueError("the predictor is calibrated for other intervals than it forecasts")


def save_predictor(path: Path, fitted: FittedPredictor, **facts: Any) -> None:
    """Write a file that `load_predictor` reads, all or nothing.

    Args:
        path: of the file.
        fitted: what to write.
        **facts: plain data that is kept beside it, such as ``global_step``.

    Raises:
        UserError: if it cannot be written.
    """
    predictor = fitted.predictor
    assert predictor.task is not None
    assert predictor.output is not None
    checkpoint: dict[str, Any] = {"state_dict": predictor.state_dict(), **facts}
    CheckpointContent(predictor.task, fitted.scaler, predictor.output, predictor.description).write_to(checkpoint)
    if fitted.conformal is not None:
        checkpoint[_CONFORMAL] = fitted.conformal.to_dict()
    AtomicCheckpointIO().save_checkpoint(checkpoint, path)


def calibrate_checkpoint(path: Path, conformal: ConformalScores) -> None:
    """Put what a predictor is calibrated by into a checkpoint that is there, all or nothing.

    Args:
        path: of the file.
        conformal: its scores.

    Raises:
        UserError: if it cannot be read or written.
    """
    AtomicCheckpointIO().save_checkpoint({**load_checkpoint(path), _CONFORMAL: conformal.to_dict()}, path)


def load_predictor(path: str | Path, description: Description, output: Output | None = None) -> FittedPredictor:
    """The predictor in a checkpoint: that of a run, or of a training.

    A checkpoint imports nothing: only classes of tsattn and those that the given description names are made.

    Args:
        path: of the checkpoint.
        description: the predictor that it must hold, as a configuration says it.
        output: what must have been asked of it; None takes any.

    Raises:
        UserError: if it is not there, cannot be read, is damaged, is of another format, or is of another model.
    """
    checkpoint = load_checkpoint(path)
    content = read_content(checkpoint)
    check_same(content.predictor, content.output, build_predictor(description).description, output)
    fitted = restored_predictor(content, checkpoint.get("state_dict", {}), "the checkpoint")
    saved = checkpoint.get(_CONFORMAL)
    try:
        return fitted if saved is None else replace(fitted, conformal=ConformalScores.from_dict(saved))
    except (TypeError, ValueError) as error:
        raise UserError(f"the checkpoint is damaged: {error}") from error


def restored_predictor(content: CheckpointContent, state: Mapping[str, Any], source: str) -> FittedPredictor:
    """A predictor of what was saved of it.

    Args:
        content: what it was built for, and its description, which is trusted: what it names is imported.
        state: its `state_dict`.
        source: where they are from, as messages say it.

    Raises:
        UserError: for a state that is not its own, or holds numbers that are not finite.
    """
    check_weights(state, source)
    predictor = build_predictor(content.predictor)
    predictor.build(content.task, content.output, empty=True)
    try:
        predictor.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise UserError(f"{source} is damaged: {' '.join(str(error).split())[:200]}") from error
    return FittedPredictor(predictor.eval(), content.scaler)
