"""The model of a run, as the Forecaster takes it: with the columns and the text that its data were read with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn.errors import UserError
from tsattn.experiments import RunFolder
from tsattn.experiments.configs import read_config
from tsattn.forecaster.model_folder import SavedModel
from tsattn.predictors.fitted import FittedPredictor, load_predictor

__all__ = ["is_run", "read_run", "run_arguments"]

_READING = ("max_filled", "date_format", "separator", "decimal", "encoding")


def is_run(folder: Path) -> bool:
    """Whether this is the folder of a run that has fitted something."""
    return RunFolder(folder).best.exists()


def read_run(folder: Path) -> SavedModel:
    """The model in the folder of a run; of one that was fitted once more to all rows, that.

    Raises:
        UserError: if it is damaged, or of a newer format.
    """
    run = RunFolder(folder)
    fitted = load_predictor(run.forecasting_checkpoint())
    config = read_config(run.config) if run.config.exists() else {}
    try:
        data = dict((config.get("data") or {}).get("init_args") or {})
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{run.config} is not the configuration of a run: {error}") from error
    return SavedModel(run_arguments(fitted, data), fitted, None, None)


def run_arguments(fitted: FittedPredictor, data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `Forecaster` of a fitted predictor.

    Args:
        fitted: the predictor.
        data: the arguments of its DataModule.
    """
    task, output = fitted.predictor.task, fitted.predictor.output
    assert task is not None
    assert output is not None
    id_column, time_column, target = (data.get(name) for name in ("id_column", "time_column", "target"))
    is_plain = id_column is None and target is None  # then they are found by their names, as they were
    return {
        "backbone": fitted.predictor.description,
        "context_length": task.context_length,
        "prediction_length": task.prediction_length,
        "quantiles": list(output.quantiles),
        "frequency": task.frequency,
        "scaling": fitted.scaler.scaling,
        "past_covariates": list(task.past_covariates),
        "future_covariates": list(task.future_covariates),
        "static": list(task.static),
        **{name: data[name] for name in _READING if data.get(name) is not None},
        "id_column": id_column,
        "time_column": time_column,
        "target": None if is_plain else list(task.channels),
    }
