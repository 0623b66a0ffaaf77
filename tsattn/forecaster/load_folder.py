"""A Forecaster of what was saved, or of a run."""

from __future__ import annotations

import logging
from inspect import signature
from pathlib import Path

from tsattn.checks import ACCELERATORS, folder_path, has_accelerator
from tsattn.errors import UserError, shown
from tsattn.experiments import Experiment, Result
from tsattn.forecaster import model_folder
from tsattn.forecaster.arguments import AUTO
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.forecaster import Forecaster
from tsattn.forecaster.from_runs import is_run, read_run, run_arguments
from tsattn.forecaster.model_folder import SavedModel
from tsattn.predictors.fitted import load_predictor
from tsattn.saved_folders import restore_folder

__all__ = ["forecaster_from", "forecaster_of", "load"]

logger = logging.getLogger("tsattn")


def load(folder: str | Path) -> Forecaster:
    """Load a forecaster that `Forecaster.save` has written, on any machine.

    A run folder, of `fit` on the command line or of ``Forecaster.fit(frame, folder=...)``, is taken too: such a model
    knows no series, so that `predict` and `evaluate` need a frame, and `evaluate` cannot tell which rows were trained
    on. Of one that was fitted once more to all rows, that is loaded. An accelerator that is not on this machine becomes
    ``auto``, which is logged.

    Raises:
        UserError: for a folder that is not there, is no saved model, is damaged, or is of a newer version.
    """
    path = folder_path(folder)
    restore_folder(path, model_folder.CONTENT)
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "is not there"
        raise UserError(f"{path} {what}; valid is a folder that a forecaster was saved to, or that of a run")
    saved = read_run(path) if is_run(path) else model_folder.read(path, [*signature(Forecaster).parameters])
    arguments = dict(saved.arguments)
    accelerator = arguments.get("accelerator", "auto")
    if accelerator in ACCELERATORS and not has_accelerator(accelerator):
        logger.warning("%s: accelerator %s is not on this machine; auto takes its place", path, accelerator)
        arguments["accelerator"] = "auto"
    try:
        forecaster = Forecaster(**arguments)
    except UserError:
        raise
    except Exception as error:  # the folder may have been edited
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error
    _check_agrees(forecaster, saved, path)
    forecaster.fitted, forecaster.series, forecaster.copula = saved.fitted, saved.series, saved.copula
    return forecaster


def _check_agrees(forecaster: Forecaster, saved: SavedModel, path: Path) -> None:
    """Refuse a folder whose arguments describe another model than its weights, or whose series do."""
    fitted, series, given = saved.fitted, saved.series, forecaster.arguments
    task, output = fitted.predictor.task, fitted.predictor.output
    # a table of a folder may have named them, not the arguments
    roles = ("past_covariates", "future_covariates", "static")
    pairs = {
        "prediction_length": (given["prediction_length"], task.prediction_length),
        **{name: (given[name], getattr(task, name)) for name in roles if given[name]},
        **{name: (given[name], getattr(output, name)) for name in ("quantiles", "distribution")},
        "scaling": (given["scaling"], fitted.scaler.scaling),
        "transform": tuple(one and one["kind"] for one in (given["transform"], fitted.scaler.to_dict()["transform"])),
        "backbone": tuple(
            {**one.description, "context_length": None} for one in (forecaster.predictor, fitted.predictor)
        ),
    }
    if given["context_length"] != AUTO:
        pairs["context_length"] = (given["context_length"], task.context_length)
    if series is not None:
        panel = series.panel
        pairs["frequency"] = (panel.frequency, task.frequency)
    for name, (one, other) in pairs.items():
        if one != other:
            raise UserError(f"{path} is damaged: its {name} is {shown(one)} in one place and {shown(other)} in another")


def forecaster_from(experiment: Experiment, checkpoint: str | Path) -> Forecaster:
    """A forecaster of the predictor in a checkpoint, which knows no series, as `load` gives that of a run.

    Args:
        experiment: of its run.
        checkpoint: of the predictor.

    Raises:
        UserError: for a checkpoint that cannot be read, or is of another model.
    """
    fitted = load_predictor(checkpoint, experiment.model["backbone"], experiment.output)
    forecaster = Forecaster(**run_arguments(fitted, experiment.to_dict()))
    forecaster.fitted = fitted
    return forecaster


def forecaster_of(result: Result) -> Forecaster:
    """A forecaster of the predictor of a run, which knows the series that it was fitted to."""
    fitted = result.refitted or result.fitted
    forecaster = Forecaster(**run_arguments(fitted, result.experiment.to_dict()))
    forecaster.fitted, forecaster.result = fitted, result
    forecaster.series = FittedSeries.of(result)
    return forecaster
