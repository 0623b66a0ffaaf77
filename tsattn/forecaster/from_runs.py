"""The model of a run, as the Forecaster takes it: with the columns and the text that its data were read with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from tsattn.checks import ACCELERATORS
from tsattn.errors import UserError
from tsattn.experiments import RunFolder
from tsattn.experiments.configs import read_config
from tsattn.experiments.reopened import fitted_in
from tsattn.forecaster.arguments import MODEL, SPLIT
from tsattn.forecaster.model_folder import SavedModel
from tsattn.predictors import Predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.training.trainer_options import TRAINER_DEFAULTS

__all__ = ["is_run", "read_run", "run_arguments"]

_OF_DATA = (
    *("max_filled", "date_format", "separator", "decimal", "encoding", "comment", "skip_rows"),
    *("batch_size", "eval_batch_size", "val_windows", "transform"),
    *("weight_column", "series_weights", "row_weights"),
    *SPLIT,
)
# where, how long and in which precision: the rest is of the machine
_OF_TRAINER = (
    *("precision", "plugins", "deterministic", "max_epochs", "max_time", "gradient_clip_val"),
    *("gradient_clip_algorithm", "accumulate_grad_batches", "val_check_interval", "check_val_every_n_epoch"),
    *("limit_train_batches", "limit_val_batches", "callbacks"),
)


def is_run(folder: Path) -> bool:
    """Whether this is the folder of a run that has fitted something."""
    return RunFolder(folder).best.exists()


def read_run(folder: Path) -> SavedModel:
    """The model in the folder of a run; of one that was fitted once more to all rows, that.

    Raises:
        UserError: if it is damaged, or of a newer format.
    """
    run = RunFolder(folder)
    fitted, config = fitted_in(run), read_config(run.config)
    try:
        arguments = run_arguments(fitted, config)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{run.config} is not the configuration of a run: {error}") from error
    return SavedModel(arguments, fitted, None)


def run_arguments(fitted: FittedPredictor, config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `Forecaster` of a fitted predictor, which forecasts and is fitted anew as the run was.

    Args:
        fitted: the predictor.
        config: the configuration of its run; that of an older version lacks what came later.
    """
    task, output = fitted.predictor.task, fitted.predictor.output
    data = dict((config.get("data") or {}).get("init_args") or {})
    model, trainer = dict(config.get("model") or {}), dict(config.get("trainer") or {})
    id_column, time_column, target = (data.get(name) for name in ("id_column", "time_column", "target"))
    is_plain = id_column is None and target is None  # then they are found by their names, as they were
    seed = config.get("seed_everything")
    return {
        "backbone": _description(fitted.predictor),
        "context_length": task.context_length,
        "prediction_length": task.prediction_length,
        "quantiles": list(output.quantiles),
        "frequency": task.frequency,
        "scaling": fitted.scaler.scaling,
        "past_covariates": list(task.past_covariates),
        "future_covariates": list(task.future_covariates),
        "static": list(task.static),
        **{name: data[name] for name in _OF_DATA if data.get(name) is not None},
        **{name: model[name] for name in MODEL if model.get(name) is not None},
        "id_column": id_column,
        "time_column": time_column,
        "target": None if is_plain else list(task.channels),
        **({} if isinstance(seed, bool) or seed is None else {"seed": seed}),
        "max_steps": trainer["max_steps"] if (trainer.get("max_steps") or 0) > 0 else None,
        **({"accelerator": trainer["accelerator"]} if trainer.get("accelerator") in ACCELERATORS else {}),
        # None may be what was asked for, where it is not the default
        "trainer": {
            name: trainer[name] for name in _OF_TRAINER if name in trainer and trainer[name] != _defaults().get(name)
        },
        **({"progress": True} if trainer.get("enable_progress_bar") else {}),
    }


def _description(predictor: Predictor) -> dict[str, Any]:
    """What describes a predictor, with the context that it looks at, if that is not the one of the run."""
    description, task = predictor.description, predictor.task
    if task is None or predictor.needs_fit or "context_length" not in description:
        return description
    own = description["context_length"] or predictor.context_length
    return description if own == task.context_length else {**description, "context_length": own}


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    """The arguments of a Trainer where nobody names them."""
    own = {name: one.default for name, one in inspect.signature(Trainer).parameters.items()}
    return {**own, **TRAINER_DEFAULTS}
