"""Fitting a Forecaster: anew, from its own weights, or on from a checkpoint; and who watches a training."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from tsattn.backbones.task_network import load_checkpoint, read_content
from tsattn.checks import folder_path, positive_number, whole_number
from tsattn.data import Panel
from tsattn.errors import UserError, one_of, shown
from tsattn.experiments import Experiment, Hooks
from tsattn.experiments.warm_start import WarmStart
from tsattn.predictors import Predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Task
from tsattn.training.callbacks import BestCheckpoint, Progress
from tsattn.training.loggers import LOGGERS, check_packages
from tsattn.training.trainer_options import listed

__all__ = ["NEW", "Start", "check_watching", "described_watching", "fine_tuning", "hooks_of", "plain_watching"]

_WATCHING = {"callbacks": Callback, "logger": Logger}
_TUNED = 0.1  # of the learning rate of a first training


@dataclass(frozen=True)
class Start:
    """What a fit starts from; by default from nothing.

    Attributes:
        warm: the network that it starts from.
        checkpoint: the file that it goes on from.
        task: that of either; None where it starts from nothing.
    """

    warm: WarmStart | None = None
    checkpoint: Path | None = None
    task: Task | None = None

    @classmethod
    def of(
        cls, fitted: FittedPredictor | None, checkpoint: Any, *, warm_start: bool, rescale: bool, refit: bool
    ) -> Start:
        """What the arguments of `Forecaster.fit` say.

        Args:
            fitted: the predictor of the last fit.
            checkpoint: a path, or None.
            warm_start: whether to start from `fitted`.
            rescale: whether it is scaled anew.
            refit: whether it is fitted once more.

        Raises:
            UserError: for arguments that exclude each other, or a file that is no checkpoint.
        """
        if rescale and not warm_start:
            raise UserError("rescale says how a warm start scales: give warm_start=True with it")
        if checkpoint is not None:
            if warm_start:
                raise UserError(
                    "of warm_start and checkpoint give one: a checkpoint holds the weights that it starts from"
                )
            path = folder_path(checkpoint)
            return cls(checkpoint=path, task=read_content(load_checkpoint(path)).task)
        if not warm_start:
            return cls()
        if fitted is None:
            raise UserError("a warm start needs weights to start from: call fit(frame) first, or load a saved one")
        if refit:
            raise UserError("a refit starts from nothing: of warm_start and refit give one")
        return cls(warm=WarmStart(fitted, rescale), task=fitted.predictor.task)

    def check(self, panel: Panel) -> None:
        """Refuse series of other channels.

        Raises:
            UserError: naming those that are lacking and those that are new.
        """
        if self.task is None:
            return
        known, given = self.task.channels, panel.channels
        lacking, new = ([name for name in one if name not in other] for one, other in ((known, given), (given, known)))
        if lacking or new:
            both = (("lacks", lacking), ("adds", new))
            differs = " and ".join(f"{what} {one_of(map(shown, names))}" for what, names in both if names)
            raise UserError(
                f"the frame {differs}: what is trained further keeps its channels, {one_of(map(shown, known))}"
            )


NEW = Start()


def fine_tuning(arguments: Mapping[str, Any], max_steps: int | None, learning_rate: float | None) -> dict[str, Any]:
    """The arguments of a Forecaster for a further training, by default at a tenth of its learning rate."""
    rate = _TUNED * arguments["learning_rate"] if learning_rate is None else learning_rate
    steps = None if max_steps is None else whole_number("max_steps", max_steps)
    rate = positive_number("learning_rate", rate)
    return {**arguments, "max_steps": steps, "learning_rate": rate, "checkpoints": None}  # those of the fit stay


def check_watching(given: Mapping[str, Any], predictor: Predictor) -> dict[str, Any]:
    """Callbacks, loggers and checkpoints of a Forecaster as they are kept: the first two as lists.

    Raises:
        UserError: for what is neither, or is given twice.
    """
    found: dict[str, Any] = {}
    for name, cls in _WATCHING.items():
        value = given[name]
        found[name] = one_by_one = [value] if isinstance(value, str | Mapping) else listed(value)
        for one in one_by_one:
            if not isinstance(one, str | Mapping | cls):
                raise UserError(f"{name} must be Lightning's, or described by class_path, not {shown(repr(one))}")
        if one_by_one and name in (given["trainer"] or {}):
            raise UserError(f"{name} is given twice: beside trainer and in it")
    _check_logger_names(found["logger"])
    top = whole_number("save_top_k", given["save_top_k"], least=-1)
    folder = None if given["checkpoints"] is None else str(folder_path(given["checkpoints"]))
    if (folder is not None or top != 1) and not isinstance(predictor, NetworkPredictor):
        raise UserError(f"checkpoints are kept of one network, and {predictor.name} is none")
    return {**found, "checkpoints": folder, "save_top_k": top}


def described_watching(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Of callbacks and loggers those that are plain data, as arguments of the Trainer."""
    plain = {name: _split(arguments[name])[0] for name in _WATCHING}
    return {name: some for name, some in plain.items() if some}


def _check_logger_names(given: Iterable[Any]) -> None:
    """Refuse unknown names of loggers.

    Raises:
        UserError: listing the valid ones.
    """
    for one in given:
        if isinstance(one, str) and one not in LOGGERS:
            raise UserError(f"logger must be one of {one_of(LOGGERS)}, or a Lightning logger, not {shown(repr(one))}")


def plain_watching(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments without what is no plain data, and what that is: callbacks and loggers that are made already."""
    parts = {name: _split(arguments[name]) for name in _WATCHING}
    made = [type(one).__name__ for _, others in parts.values() for one in others]
    return {**arguments, **{name: plain for name, (plain, _) in parts.items()}}, made


def hooks_of(
    arguments: Mapping[str, Any], experiment: Experiment, start: Start, folder: Path | None, *, copies: bool = False
) -> Hooks:
    """Who takes part in the fit of a Forecaster.

    Args:
        arguments: of the Forecaster.
        experiment: that is run.
        start: what it starts from.
        folder: of the run, if it has one.
        copies: for a fit beside that of the Forecaster itself, which sees copies of callbacks, and keeps nothing.

    Raises:
        UserError: for checkpoints without a folder, or in one that has others.
    """
    metric = f"val_{experiment.selection}"
    callbacks, loggers = (_split(arguments[name])[1] for name in _WATCHING)
    bar = Progress() if arguments["progress"] else None
    if copies:
        return Hooks(callbacks=copy.deepcopy(callbacks), bar=bar)
    check_packages(loggers)
    kept, top = arguments["checkpoints"], arguments["save_top_k"]
    if kept is not None:
        path = Path(kept)
        others = path.is_dir() and any(path.glob("*.ckpt"))
        goes_on = start.checkpoint is not None and start.checkpoint.resolve().parent == path.resolve()
        if others and not goes_on:
            raise UserError(f"{path} has checkpoints already: name another folder, or go on from one with checkpoint=")
        callbacks = [*callbacks, BestCheckpoint(path, metric, top)]
    elif top != 1:
        if folder is None:
            raise UserError("save_top_k needs a folder for the checkpoints: give checkpoints=, or fit(..., folder=)")
        callbacks = [*callbacks, BestCheckpoint(folder / "checkpoints", metric, top, keeps_last=False)]
    return Hooks(callbacks=callbacks, loggers=loggers, bar=bar, checkpoint=start.checkpoint, start=start.warm)


def _split(given: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """What is plain data, and what is made already."""
    some = list(given)
    return [one for one in some if isinstance(one, str | Mapping)], [
        one for one in some if not isinstance(one, str | Mapping)
    ]
