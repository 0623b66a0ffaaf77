"""The arguments of a Forecaster: checked, as plain data, and as the experiment that they describe."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from tsattn.checks import calibration_share, check_accelerator, levels, positive_number, whole_number
from tsattn.data.table_options import READING, check_choices
from tsattn.descriptions import DEFAULT_BACKBONE, Description
from tsattn.errors import UserError, did_you_mean, one_of, shown
from tsattn.experiments import Experiment
from tsattn.forecaster.fitting import check_watching, described_watching, plain_watching
from tsattn.predictors import Predictor
from tsattn.target_transform import check_transform
from tsattn.task import Output
from tsattn.training import ForecastingModule, TrainerOptions

__all__ = [
    "AUTO",
    "MODEL",
    "SPLIT",
    "checked",
    "described",
    "differing",
    "experiment_of",
    "saved_arguments",
    "summary",
    "with_arguments",
]

logger = logging.getLogger("tsattn")

AUTO = "auto"
_UNCHOSEN_CONTEXT = 336  # of what is not fitted, and until `fit` has chosen

_IN_SUMMARY = ("backbone", "attention", "context_length", "prediction_length", "quantiles")
_QUANTILES = (0.1, 0.5, 0.9)
SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
_SIZES = ("context_length", "prediction_length", "batch_size", "eval_batch_size", "scaling", "val_windows", "transform")
MODEL = (
    *("learning_rate", "weight_decay", "warmup_steps", "loss", "mup", "activation_checkpointing", "compile_mode"),
    *("selection", "schedule", "betas", "distribution", "calibrate", "patience", "min_delta"),
)
# of the Trainer, what the Forecaster has arguments for, and their names
_OWN = {"accelerator": "accelerator", "max_steps": "max_steps", "enable_progress_bar": "progress"}


def described(backbone: Description, attention: Description | Sequence[Description] | None) -> Description:
    """A description with its attention replaced, if one is given."""
    if attention is None or not isinstance(backbone, str | Mapping):
        return backbone
    return {**({"kind": backbone} if isinstance(backbone, str) else backbone), "attention": attention}


def checked(given: Mapping[str, Any], predictor: Predictor) -> dict[str, Any]:
    """The arguments as plain data.

    Args:
        given: all arguments by name.
        predictor: what they describe.

    Raises:
        UserError: for one out of its range.
    """
    arguments = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
    for name in ("context_length", "prediction_length", "batch_size", "eval_batch_size"):
        if name != "context_length" or given[name] != AUTO:
            arguments[name] = whole_number(name, given[name])
    if given["max_steps"] is not None:
        arguments["max_steps"] = whole_number("max_steps", given["max_steps"])
    for name in ("val_from", "test_from"):
        arguments[name] = str(given[name]) if isinstance(given[name], date) else given[name]
    arguments["seed"] = whole_number("seed", given["seed"], least=0, most=2**32 - 1)
    arguments["learning_rate"] = positive_number("learning_rate", given["learning_rate"])
    check_accelerator(given["accelerator"])
    calibration_share(given["calibrate"])
    check_choices(arguments["scaling"], arguments["val_windows"])
    arguments["transform"] = check_transform(given["transform"])
    quantiles = given["quantiles"]
    if isinstance(quantiles, str) and quantiles == "auto":
        quantiles = _QUANTILES if predictor.emits_quantiles else ()
    arguments["quantiles"] = levels(quantiles)
    predictor.check_output(Output(arguments["quantiles"], arguments["distribution"]))
    trainer = {} if given["trainer"] is None else given["trainer"]
    if not isinstance(trainer, Mapping):
        raise UserError(f"trainer must hold arguments by their names, not {shown(repr(trainer))}")
    arguments["trainer"] = dict(trainer)
    for name, own in _OWN.items():
        if name in arguments["trainer"]:
            raise UserError(f"{own} is an argument of the Forecaster: give it beside trainer, not in it")
    return {**arguments, **check_watching(given, predictor)}


def experiment_of(arguments: Mapping[str, Any], predictor: Predictor) -> Experiment:
    """The experiment that `fit` runs.

    Args:
        arguments: as `checked` gives them.
        predictor: what they describe.

    Raises:
        UserError: for an argument that is not valid.
    """
    data = {name: arguments[name] for name in (*READING, *SPLIT, *_SIZES) if name in arguments}
    if data["context_length"] == AUTO:
        data["context_length"] = _UNCHOSEN_CONTEXT
    model = {name: arguments[name] for name in MODEL}
    steps = -1 if arguments["max_steps"] is None else arguments["max_steps"]
    experiment = Experiment.of(
        {
            "seed_everything": arguments["seed"],
            "data": {"class_path": "PanelDataModule", "init_args": data},
            "model": {"backbone": predictor.description, "quantiles": list(arguments["quantiles"]), **model},
            "trainer": {
                **{"max_steps": steps, "accelerator": arguments["accelerator"], **arguments["trainer"]},
                **described_watching(arguments),
            },
        }
    )
    # what would be refused once the data are read is refused now
    ForecastingModule(**{**experiment.model, "backbone": DEFAULT_BACKBONE})
    TrainerOptions.of(experiment.made()[1], is_new=False)
    return experiment


def with_arguments(given: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with others in their place.

    Raises:
        UserError: for a name that is none.
    """
    for name in others:
        if name not in given:
            hint = did_you_mean(name, given)
            raise UserError(f"a Forecaster has no argument {shown(repr(name))}{hint}; valid are {one_of(given)}")
    return {**given, **others}


def saved_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as they are saved: without callbacks and loggers that are made already, which is logged."""
    plain, made = plain_watching(arguments)
    if made:
        logger.warning("callbacks and loggers that are objects are not saved: %s", one_of(made))
    return plain


def differing(cls: type[Any], given: Mapping[str, Any]) -> str:
    """The arguments that are not the defaults of a class, but for those that `summary` has, after a comma."""
    defaults = {name: one.default for name, one in inspect.signature(cls).parameters.items()}
    plain = {name: _plain(value) for name, value in given.items() if name not in _IN_SUMMARY}
    return "".join(f", {name}={value!r}" for name, value in plain.items() if value != _plain(defaults[name]))


def _plain(value: Any) -> Any:
    """A value as it would be once saved; nothing is as good as none of something."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, tuple):
        value = list(value)
    return None if value in ([], {}) else value


def summary(arguments: Mapping[str, Any], predictor: Predictor) -> str:
    """What is forecast and by what, in a few words."""
    description, quantiles = predictor.description, arguments["quantiles"]
    attention = description.get("attention") or []
    layers = attention if isinstance(attention, list) else [attention]
    kinds = "/".join(dict.fromkeys(layer["kind"] for layer in layers))
    parts = (
        description["kind"],
        *([f"attention {kinds}"] if kinds else []),
        f"{description.get('context_length') or arguments['context_length']} -> {arguments['prediction_length']} steps",
        f"quantiles {' '.join(map(str, quantiles))}" if quantiles else "point forecast",
        *([f"distribution {arguments['distribution']}"] if arguments["distribution"] else []),
    )
    return ", ".join(parts)
