"""Going on with a run that was left, or training it longer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn.errors import UserError, one_of
from tsattn.experiments.experiment import Experiment
from tsattn.experiments.result import Result
from tsattn.experiments.run_folder import LIMITS, RunFolder
from tsattn.experiments.running import Hooks, fit_experiment
from tsattn.ops.native.record import kernels_as_noted
from tsattn.predictors import build_predictor
from tsattn.training.execution import is_first_process

__all__ = ["resume"]

_NONE = {"max_steps": -1, "max_epochs": -1, "max_time": None}


def resume(
    folder: str | Path,
    limits: Mapping[str, Any] | None = None,
    *,
    refit: bool = False,
    hooks: Hooks | None = None,
) -> Result:
    """Resume a run from its last checkpoint, to the result of an unbroken run.

    Args:
        folder: of the run.
        limits: ``max_steps``, ``max_epochs`` or ``max_time`` of the Trainer in place of all those that the run had, to
            train it longer; the results so far are kept under another name.
        refit: see `tsattn.run`; a finished run is fitted once more, too. One that was to be refitted is in any case.
        hooks: what the caller takes part in.

    Raises:
        UserError: for a folder that nothing can go on with, or limits that it is beyond already.
    """
    for name in limits or {}:
        if name not in LIMITS:
            raise UserError(f"a run that goes on takes no other {name}; valid are {one_of(LIMITS)}, to train it longer")
    run = RunFolder(folder)
    if run.noted("started"):
        raise UserError(f"the run {run.path} began with the weights of another, which it does not keep: start it again")
    is_new_refit = refit and not run.refit.exists()
    run.check_resumable(longer=bool(limits) or is_new_refit)
    if is_first_process():
        run.hold()
    try:
        before = Experiment.read(run.config)
        predictor = build_predictor(before.model["backbone"])
        if limits and not predictor.is_trained:
            raise UserError(f"{predictor.name} is fitted at once, so it cannot be trained longer")
        asked = {f"trainer.{name}": value for name, value in {**_NONE, **limits}.items()} if limits else {}
        experiment = before.with_values(asked)
        differs = any(experiment.trainer[name] != before.trainer[name] for name in LIMITS)
        if is_first_process():  # it may have come to its end while its lock was waited for
            run.check_resumable(longer=differs or is_new_refit)
        refit = refit or run.is_to_be_refitted
        test = run.noted("test") is not False
        with kernels_as_noted(run.noted("kernels")):
            return fit_experiment(experiment, run, goes_on=True, test=test, refit=refit, hooks=hooks or Hooks())
    finally:
        run.release()
