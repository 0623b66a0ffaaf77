"""Arguments of a Forecaster: checked once, as plain data, and as the experiment that they describe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from tsattn.checks import calibration_share, check_accelerator, folder_path, levels, positive_number, whole_number
from tsattn.data import DataOptions
from tsattn.descriptions import DEFAULT_BACKBONE, Description
from tsattn.errors import UserError, did_you_mean, one_of, shown
from tsattn.experiments import Experiment
from tsattn.optim import BETAS
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output
from tsattn.training import ForecastingModule, TrainerOptions
from tsattn.training.loggers import LOGGERS
from tsattn.training.trainer_options import listed

__all__ = ["AUTO", "GROUPS", "MODEL", "SPLIT", "ForecasterOptions", "TrainingOptions"]

AUTO = "auto"
SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
MODEL = (
    *("learning_rate", "weight_decay", "warmup_steps", "loss", "mup", "activation_checkpointing", "compile_mode"),
    *("selection", "schedule", "betas", "patience", "min_delta"),
)
"""Options of a training that are arguments of `ForecastingModule`."""

_UNCHOSEN_CONTEXT = 336  # of what is not fitted, and until `fit` has chosen
_QUANTILES = (0.1, 0.5, 0.9)
_OWN_DEFAULTS = {"context_length": AUTO, "eval_batch_size": 256}
_IN_SUMMARY = ("backbone", "attention", "context_length", "prediction_length", "quantiles")
_WATCHING = {"callbacks": Callback, "logger": Logger}
# of the Trainer, what is an option of its own
_OWN = {"accelerator": "accelerator", "max_steps": "max_steps", "enable_progress_bar": "progress"}


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training: optimizer, length, hardware, logs and checkpoints.

    `Forecaster` also takes `max_steps`, `learning_rate`, `loss`, `seed` and `accelerator` as arguments.

    Attributes:
        max_steps: optimizer steps. By default about 20 epochs, between 400 and 1000 steps, with early stopping.
        learning_rate: peak learning rate of AdamW.
        loss: ``mse``, ``mae``, ``huber`` or ``frequency`` for points, ``pinball`` for quantiles.
        seed: random seed of weights, order and dropout.
        accelerator: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``mps``.
        weight_decay: weight decay of AdamW (matrices only).
        warmup_steps: steps over which the learning rate rises. By default a tenth of all, at most 100.
        schedule: learning rate after that: ``cosine`` falls to zero, ``constant`` stays.
        betas: decay rates of AdamW's running means.
        patience: validations without improvement before training stops. By default 7, or none if you set `max_steps`.
        min_delta: smallest decrease of the validation error that counts.
        selection: validation error that chooses the weights: ``mse``, ``mae`` or ``crps``. By default as the loss.
        mup: follow the muP rules, so that one learning rate serves every width.
        activation_checkpointing: compute activations twice to save memory.
        compile_mode: mode of torch.compile in training; None does not compile.
        progress: show a progress bar.
        logger: ``csv``, ``tensorboard``, ``wandb``, ``mlflow``, a Lightning logger, or a list of these.
        callbacks: Lightning callbacks, or descriptions: ``{class_path: ..., init_args: {...}}``.
        checkpoints: folder for ``step_100.ckpt``, ... and ``last.ckpt``. Resume by ``fit(frame, checkpoint=...)``.
        save_top_k: number of best checkpoints to keep; -1 keeps all.
        trainer: other arguments of Lightning's Trainer, by name.

    Raises:
        UserError: for an option out of its range.
    """

    max_steps: int | None = None
    learning_rate: float = 1e-3
    loss: str | None = None
    seed: int = 1
    accelerator: str = "auto"
    weight_decay: float = 0.01
    warmup_steps: int | None = None
    schedule: str = "cosine"
    betas: Sequence[float] = BETAS
    patience: int | None = None
    min_delta: float = 0.0
    selection: str | None = None
    mup: bool = False
    activation_checkpointing: bool = False
    compile_mode: str | None = None
    progress: bool = False
    logger: Any = None
    callbacks: Any = None
    checkpoints: str | Path | None = None
    save_top_k: int = 1
    trainer: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_accelerator(self.accelerator)
        trainer = {} if self.trainer is None else self.trainer
        if not isinstance(trainer, Mapping):
            raise UserError(f"trainer must hold arguments by their names, not {shown(repr(trainer))}")
        for name, own in _OWN.items():
            if name in trainer:
                raise UserError(f"{own} is an option of its own: give it instead of trainer={{{name!r}: ...}}")
        checked = {
            "max_steps": None if self.max_steps is None else whole_number("max_steps", self.max_steps),
            "seed": whole_number("seed", self.seed, least=0, most=2**32 - 1),
            "learning_rate": positive_number("learning_rate", self.learning_rate),
            "save_top_k": whole_number("save_top_k", self.save_top_k, least=-1),
            "checkpoints": None if self.checkpoints is None else str(folder_path(self.checkpoints)),
            "trainer": dict(trainer),
            **{name: self._watching(name, cls, trainer) for name, cls in _WATCHING.items()},
        }
        for name in checked["logger"]:
            if isinstance(name, str) and name not in LOGGERS:
                valid = f"{one_of(LOGGERS)}, or a Lightning logger"
                raise UserError(f"logger must be one of {valid}, not {shown(repr(name))}")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _watching(self, name: str, cls: type[Any], trainer: Mapping[str, Any]) -> list[Any]:
        """Return callbacks or loggers as a list."""
        value = getattr(self, name)
        found = [value] if isinstance(value, str | Mapping) else listed(value)
        for one in found:
            if not isinstance(one, str | Mapping | cls):
                raise UserError(f"{name} must be Lightning's, or described by class_path, not {shown(repr(one))}")
        if found and name in trainer:
            raise UserError(f"{name} is given twice: on its own and in trainer")
        return found

    def described(self, name: str) -> list[Any]:
        """Return the callbacks, or loggers, that are plain data."""
        return [one for one in getattr(self, name) if isinstance(one, str | Mapping)]

    def objects(self, name: str) -> list[Any]:
        """Return the callbacks, or loggers, that are made already."""
        return [one for one in getattr(self, name) if not isinstance(one, str | Mapping)]


GROUPS: dict[str, Any] = {"data": DataOptions, "training": TrainingOptions}


@dataclass(frozen=True)
class ForecasterOptions:
    """All arguments of a Forecaster, checked.

    Attributes:
        backbone: description of the predictor, as given.
        attention: its attention, as given.
        predictor: predictor that these describe, not built.
        output: form of its forecasts.
        calibrate: whether a fit calibrates intervals, or the share of the validation rows for that.
        chooses_context: whether a fit chooses the context length.
        data: columns, split, lengths and batches.
        training: how it is trained.
    """

    backbone: Description
    attention: Description | Sequence[Description] | None
    predictor: Predictor
    output: Output
    calibrate: bool | float
    chooses_context: bool
    data: DataOptions
    training: TrainingOptions

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ForecasterOptions:
        """Check the arguments of `Forecaster` by name.

        Raises:
            UserError: for one out of its range, unknown, or given twice.
        """
        backbone, attention = given["backbone"], given["attention"]
        described = backbone
        if attention is not None and isinstance(backbone, str | Mapping):
            described = {**({"kind": backbone} if isinstance(backbone, str) else backbone), "attention": attention}
        predictor = build_predictor(described)
        data = _group("data", given)
        is_auto = isinstance(data["context_length"], str) and data["context_length"] == AUTO
        if not is_auto:
            predictor = predictor.with_context(whole_number("context_length", data["context_length"]))
        data["context_length"] = _UNCHOSEN_CONTEXT if is_auto else data["context_length"]
        training = TrainingOptions(**_group("training", given))
        calibration_share(given["calibrate"])
        quantiles = given["quantiles"]
        if isinstance(quantiles, str) and quantiles == AUTO:
            quantiles = _QUANTILES if predictor.emits_quantiles else ()
        output = Output(levels(quantiles), given["distribution"])
        predictor.check_output(output)
        if (training.checkpoints or training.save_top_k != 1) and not isinstance(predictor, NetworkPredictor):
            raise UserError(f"checkpoints are kept of one network, and {predictor.name} is none")
        of_model = backbone, attention, predictor, output, given["calibrate"]
        return cls(*of_model, is_auto, DataOptions(**data), training)

    def aside(self) -> ForecasterOptions:
        """Return the same for a model that is trained aside: no rows for testing, no bar, no checkpoints."""
        training = replace(self.training, progress=False, checkpoints=None, save_top_k=1)
        return replace(self, data=replace(self.data, **dict.fromkeys(SPLIT)), training=training)

    @cached_property
    def _plain_data(self) -> dict[str, Any]:
        reader = self.data.reader
        given = {one.name: getattr(self.data, one.name) for one in fields(DataOptions) if one.init}
        return {**given, "frequency": reader.frequency, **reader.plain(), **reader.plain_weights()}

    def arguments(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """Return them as plain data, but for callbacks and loggers that are objects.

        Args:
            names: arguments that `Forecaster` takes; all others stand in their group.
        """
        data = {**self._plain_data, **({"context_length": AUTO} if self.chooses_context else {})}
        training = {one.name: getattr(self.training, one.name) for one in fields(TrainingOptions)}
        groups = {"data": data, "training": training}
        return {
            **{"backbone": self.backbone, "attention": self.attention, "calibrate": self.calibrate},
            **{"quantiles": self.output.quantiles, "distribution": self.output.distribution},
            **{name: value for group in groups.values() for name, value in group.items() if name in names},
            **{
                name: {one: value for one, value in group.items() if one not in names} for name, group in groups.items()
            },
        }

    @cached_property
    def experiment(self) -> Experiment:
        """Experiment that `fit` runs.

        Raises:
            UserError: for an option that is not valid, even one that training would refuse later.
        """
        training = self.training
        watching = {name: some for name in _WATCHING if (some := training.described(name))}
        steps = -1 if training.max_steps is None else training.max_steps
        experiment = Experiment.of(
            {
                "seed_everything": training.seed,
                "data": {"class_path": "PanelDataModule", "init_args": self._plain_data},
                "model": {
                    **{name: getattr(training, name) for name in MODEL},
                    **{"backbone": self.predictor.description, "quantiles": list(self.output.quantiles)},
                    **{"distribution": self.output.distribution, "calibrate": self.calibrate},
                },
                "trainer": {"max_steps": steps, "accelerator": training.accelerator, **training.trainer, **watching},
            }
        )
        ForecastingModule(**{**experiment.model, "backbone": DEFAULT_BACKBONE})
        TrainerOptions.of(experiment.made()[1], is_new=False)
        return experiment

    def summary(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
        """Return what is forecast and by what, in a few words, and the arguments that are not the defaults."""
        description, quantiles = self.predictor.description, self.output.quantiles
        kinds = "/".join(dict.fromkeys(layer["kind"] for layer in listed(description.get("attention"))))
        context = description.get("context_length") or (AUTO if self.chooses_context else self.data.context_length)
        parts = (
            description["kind"],
            *([f"attention {kinds}"] if kinds else []),
            f"{context} -> {self.data.prediction_length} steps",
            f"quantiles {' '.join(map(str, quantiles))}" if quantiles else "point forecast",
            *([f"distribution {self.output.distribution}"] if self.output.distribution else []),
        )
        groups = {name: _not_default(cls, given[name]) for name, cls in GROUPS.items()}
        plain = {name: _plain(value) for name, value in {**given, **groups}.items() if name not in _IN_SUMMARY}
        differing = (f"{name}={value!r}" for name, value in plain.items() if value != _plain(defaults[name]))
        return ", ".join([*parts, *differing])


def _group(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a group: those given for it, and the arguments of the same names."""
    cls, part = GROUPS[name], given[name]
    if part is not None and not isinstance(part, cls | Mapping):
        raise UserError(f"{name} must be {cls.__name__}(...) or a dictionary, not {shown(repr(part))}")
    known, named = _defaults(cls), _not_default(cls, part) if isinstance(part, cls) else part or {}
    for key in named:
        if key not in known:
            hint = did_you_mean(key, known)
            raise UserError(f"{name} has no option {shown(repr(key))}{hint}; valid are {one_of(known)}")
        if key in given and _plain(given[key]) not in (_plain(known[key]), _plain(named[key])):
            raise UserError(f"{key} is given twice: as an argument and in {name}")
    options = {key: getattr(part, key, value) for key, value in known.items()}
    options |= {key: value for key, value in given.items() if key in known} | {**named}
    values = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
    return {key: str(value) if isinstance(value, date) else value for key, value in values.items()}


def _defaults(cls: type[Any]) -> dict[str, Any]:
    known = {one.name: one.default for one in fields(cls) if one.init}
    return known | {name: value for name, value in _OWN_DEFAULTS.items() if name in known}


def _not_default(cls: type[Any], part: Any) -> dict[str, Any]:
    """Return the options of a group that differ from its defaults."""
    known = (
        _defaults(cls)
        if isinstance(part, Mapping | None)
        else {one.name: one.default for one in fields(cls) if one.init}
    )
    given = part or {} if isinstance(part, Mapping | None) else {name: getattr(part, name) for name in known}
    return {name: value for name, value in given.items() if _plain(value) != _plain(known.get(name, ...))}


def _plain(value: Any) -> Any:
    """Return a value as it would be once saved; nothing is as good as none of something."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = list(value) if isinstance(value, tuple) else value
    return None if value in ([], {}) else value
