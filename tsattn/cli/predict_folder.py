"""`tsattn predict --input FOLDER --output FOLDER`: forecasts of partitioned Parquet, here or on a Ray cluster."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tsattn.checks import whole_number
from tsattn.cli.output import say
from tsattn.errors import UserError, number_of
from tsattn.experiments import Experiment
from tsattn.forecaster.forecast_files import WRITERS
from tsattn.forecaster.load_folder import forecaster_from
from tsattn.forecaster.partition_forecasts import FolderForecasts, forecast_folder
from tsattn.forecaster.ray_forecasts import each_by_ray
from tsattn.predictors.fitted import beyond_training
from tsattn.ray_cluster import connect

__all__ = ["is_of_folders", "predict_folder"]


def is_of_folders(options: Any) -> bool:
    """Whether partitions of a folder are to be forecast into a folder.

    Args:
        options: of the command.

    Raises:
        UserError: if a cluster is asked for without folders.
    """
    has_folder = options.output is not None and Path(options.output).suffix.lower() not in WRITERS
    is_wanted = has_folder and options.input is not None and Path(options.input).is_dir()
    if options.ray is not None and not is_wanted:
        raise UserError("--ray forecasts the partitions of a folder: give --input FOLDER, and --output FOLDER")
    return is_wanted


def predict_folder(experiment: Experiment, options: Any) -> int:
    """Forecast; the exit code is 0, or a `UserError` is raised.

    Args:
        experiment: of the run.
        options: of the command.
    """
    if not isinstance(options.figure, bool):
        raise UserError("--figure draws the forecast of a file, not those of the partitions of a folder")
    if options.future:
        raise UserError(
            "--future goes with a file; in a folder, the rows of a series after its last target hold what is known of "
            "the future"
        )
    horizon = None if options.horizon is None else whole_number("--horizon", options.horizon)
    forecaster = forecaster_from(experiment, options.ckpt_path)
    assert forecaster.fitted is not None
    steps = horizon or forecaster.task.prediction_length
    if (warning := beyond_training(forecaster.fitted.predictor, steps)) is not None:
        logging.getLogger("tsattn").warning(warning)
    places: dict[str, Any] = {"source": Path(options.input), "output": Path(options.output)}
    how: dict[str, Any] = {"horizon": horizon, "level": options.level, "overwrite": options.overwrite, "say": say}
    if options.ray is None:
        done = forecast_folder(forecaster, **places, **how)
    else:
        ray = connect(options.ray)
        try:
            each = each_by_ray(ray, forecaster.arguments["accelerator"])
            done = forecast_folder(forecaster, **places, **how, each=each)
        finally:
            ray.shutdown()
    say(f"{options.output}: {_sentence(done)}; {number_of(steps, 'step')}, in original units")
    return 0


def _sentence(done: FolderForecasts) -> str:
    words = [f"{number_of(len(done.made), 'partition')} forecast"]
    if done.changed:
        words.append(f"{len(done.changed)} of them anew, as they had changed")
    if done.kept:
        words.append(f"{len(done.kept)} there already")
    if done.empty:
        words.append(f"{len(done.empty)} without rows")
    return ", ".join(words)
