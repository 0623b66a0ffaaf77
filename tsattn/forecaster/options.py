"""Arguments of a Forecaster: checked once, as plain data, and as the experiment that they describe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tsattn.data import Panel
from tsattn.data.data_options import DataOptions
from tsattn.data.table_options import COLUMNS
from tsattn.descriptions import DEFAULT_BACKBONE, imported
from tsattn.errors import UserError, did_you_mean, folder_path, one_of, positive_number, shown, whole_number
from tsattn.layers.optim import BETAS
from tsattn.predictors import Predictor, build_predictor, network_for
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, calibration_share
from tsattn.training.execution import COMPUTING, Execution
from tsattn.training.loggers import LOGGERS
from tsattn.training.trainer_options import FULL_PRECISION, TrainerOptions, as_list, check_accelerator

if TYPE_CHECKING:  # forecasts without a fit need no Lightning
    from tsattn.experiments import Experiment

AUTO = "auto"
MODEL = (
    *("learning_rate", "weight_decay", "warmup_steps", "loss", "mup", "activation_checkpointing", "compile_mode"),
    *("selection", "schedule", "betas", "patience", "min_delta"),
)
"""Options of a training that are arguments of `ForecastingModule`."""

_UNCHOSEN_CONTEXT = 336  # without a fit, and until `fit` has chosen one
_QUANTILES = (0.1, 0.5, 0.9)
_OWN_DEFAULTS = {"context_length": AUTO, "eval_batch_size": 256}
_IN_SUMMARY = ("backbone", "attention", "context_length", "prediction_length", "quantiles")
_WATCHING = {"callbacks": "lightning.pytorch.callbacks.Callback", "logger": "lightning.pytorch.loggers.Logger"}
_OF_TRAINER = {"accelerator": "accelerator", "max_steps": "max_steps", "enable_progress_bar": "progress"}  # own options


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a training: optimizer, length, hardware, logs and checkpoints.

    See `Forecaster` for `max_steps`, `learning_rate`, `loss`, `seed` and `accelerator`.

    Attributes:
        weight_decay: weight decay of AdamW (matrices only).
        warmup_steps: steps over which the learning rate rises. By default a tenth of all, at most 100.
        schedule: learning rate after that: ``cosine`` falls to zero, ``constant`` stays.
        betas: decay rates of AdamW's running means.
        patience: validations without improvement that stop training. By default 7, each 10 % worse; none with steps.
        min_delta: smallest decrease of the validation error that counts.
        selection: validation error that chooses the weights: ``mse``, ``mae`` or ``crps``. By default as the loss.
        mup: follow the muP rules, so that one learning rate serves every width.
        activation_checkpointing: compute activations twice to save memory.
        compile_mode: mode of torch.compile in training; None does not compile.
        progress: show a progress bar.
        logger: ``csv``, ``tensorboard``, ``wandb``, ``mlflow``, a Lightning logger, or a list of these.
        callbacks: Lightning callbacks, or descriptions: ``{class_path: ..., init_args: {...}}``. Each fit begins with
            the state that they had before the first fit. Members of an ensemble are trained with copies.
        checkpoints: folder for ``step_100.ckpt``, ... and ``last.ckpt``. Resume by ``fit(frame, checkpoint=...)``.
        save_top_k: number of best checkpoints to keep; -1 keeps all.
        trainer: other arguments of Lightning's Trainer, by name.
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
        for name in trainer.keys() & _OF_TRAINER.keys():
            given = f"trainer={{{name!r}: ...}}"
            raise UserError(f"{_OF_TRAINER[name]} is an option of training: give it there instead of {given}")
        checked: dict[str, Any] = {
            "max_steps": None if self.max_steps is None else whole_number("max_steps", self.max_steps),
            "seed": whole_number("seed", self.seed, least=0, most=2**32 - 1),
            "learning_rate": positive_number("learning_rate", self.learning_rate),
            "save_top_k": whole_number("save_top_k", self.save_top_k, least=-1),
            "checkpoints": None if self.checkpoints is None else str(folder_path(self.checkpoints)),
            "trainer": dict(trainer),
        }
        for name, path in _WATCHING.items():
            value = getattr(self, name)
            checked[name] = [value] if isinstance(value, str | Mapping) else as_list(value)
            for one in checked[name]:
                if not isinstance(one, str | Mapping) and not isinstance(one, imported(path)):
                    raise UserError(f"{name} must be Lightning objects, or have a class_path, not {shown(repr(one))}")
                if name == "logger" and isinstance(one, str) and one not in LOGGERS:
                    valid = f"one of {one_of(LOGGERS)}, or a Lightning logger"
                    raise UserError(f"logger must be {valid}, not {shown(repr(one))}")
            if checked[name] and name in trainer:
                raise UserError(f"{name} is given twice: in training and in its trainer; remove one")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def described(self, name: str) -> list[Any]:
        """Return the callbacks, or loggers, that are plain data."""
        return [one for one in getattr(self, name) if isinstance(one, str | Mapping)]

    def objects(self, name: str) -> list[Any]:
        """Return the callbacks, or loggers, that are made already."""
        return [one for one in getattr(self, name) if not isinstance(one, str | Mapping)]


_GROUPS: dict[str, Any] = {"data": DataOptions, "training": TrainingOptions}


@dataclass(frozen=True)
class ForecasterOptions:
    """All arguments of a Forecaster, as given and checked, and the predictor that they describe, not built."""

    given: Mapping[str, Any]
    predictor: Predictor
    output: Output
    chooses_context: bool
    data: DataOptions
    training: TrainingOptions
    # attributes of callbacks that are objects, before their first fit; each further fit begins with these
    states: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ForecasterOptions:
        """Check the arguments of `Forecaster` by name; a `UserError` for an argument that is wrong, or given twice."""
        training, quantiles = TrainingOptions(**_group("training", given)), given["quantiles"]
        attention, keeps = given["attention"], bool(training.checkpoints or training.save_top_k != 1)
        is_plain = attention is None and given["distribution"] is None and not keeps
        described = given["backbone"] if is_plain else network_for(given["backbone"])
        if attention is not None and isinstance(described, str | Mapping):
            described = {**({"kind": described} if isinstance(described, str) else described), "attention": attention}
        predictor, asked = build_predictor(described), _group("data", given)
        is_auto = isinstance(asked["context_length"], str) and asked["context_length"] == AUTO
        data = DataOptions(**{**asked, **({"context_length": _UNCHOSEN_CONTEXT} if is_auto else {})})
        predictor = predictor if is_auto else predictor.with_context(data.context_length)
        calibration_share(given["calibrate"])
        if isinstance(quantiles, str) and quantiles == AUTO:
            quantiles = _QUANTILES if predictor.emits_quantiles else ()
        output = Output(quantiles, given["distribution"])
        predictor.check_output(output)
        if keeps and not isinstance(predictor, NetworkPredictor):
            raise UserError(f"checkpoints and save_top_k need a single network, not {predictor.name}: leave them out")
        return cls(given, predictor, output, is_auto, data, training)

    @cached_property
    def _plain_data(self) -> dict[str, Any]:
        reader = self.data.reader
        given = {name: getattr(self.data, name) for name in _defaults(DataOptions)}
        columns = {name: getattr(reader, name) for name in ("frequency", *COLUMNS, "weight_column")}
        return {**given, **columns, **reader.weights.plain()}

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `Forecaster` as plain data, but for callbacks and loggers that are objects."""
        data = {**self._plain_data, **({"context_length": AUTO} if self.chooses_context else {})}
        return {**self.given, "quantiles": self.output.quantiles, **nested(data, vars(self.training), self.given)}

    @cached_property
    def experiment(self) -> Experiment:
        """Experiment that `fit` runs; a `UserError` for an option that training would refuse later."""
        training = self.training
        from tsattn.experiments import Experiment
        from tsattn.training import ForecastingModule

        steps = -1 if training.max_steps is None else training.max_steps
        experiment = Experiment.of(
            {
                "seed_everything": training.seed,
                "data": {"class_path": "PanelDataModule", "init_args": self._plain_data},
                "model": {
                    **{name: getattr(training, name) for name in MODEL},
                    **{"backbone": self.predictor.description, "quantiles": list(self.output.quantiles)},
                    **{"distribution": self.output.distribution, "calibrate": self.given["calibrate"]},
                },
                "trainer": {
                    **{"max_steps": steps, "accelerator": training.accelerator, **(training.trainer or {})},
                    **{name: some for name in _WATCHING if (some := training.described(name))},
                },
            }
        )
        ForecastingModule(**{**experiment.model, "backbone": DEFAULT_BACKBONE})
        TrainerOptions.of(experiment.trainer_arguments(), is_new=False)
        return experiment

    def checked(self) -> Self:
        """Refuse now what a training would refuse later; a `UserError` says what."""
        if self.trains:
            _ = self.experiment
        return self

    @property
    def trains(self) -> bool:
        """Whether the arguments describe a training: the predictor needs one, or an option of it is given."""
        return self.predictor.needs_fit or not _named(TrainingOptions, self.training).keys() <= {"accelerator", "seed"}

    @cached_property
    def batches(self) -> tuple[int, Execution]:
        """Size of the batches of a forecast, and its device and precision; few options of them need an experiment."""
        if not set(COMPUTING).isdisjoint(self.training.trainer or ()):
            trainer = TrainerOptions.of(self.experiment.trainer_arguments(), is_new=False)
        else:
            given = {**dict.fromkeys(COMPUTING), "accelerator": self.training.accelerator, "precision": FULL_PRECISION}
            trainer = TrainerOptions(given, chooses_steps=True, chooses_validation=True)
        return self.data.eval_batch_size, Execution(trainer)

    def built_for(self, panel: Panel) -> FittedPredictor:
        """Return a predictor that needs no fit for these series, which may be short."""
        task, scaler = self.data.describe(panel)
        predictor = build_predictor(self.predictor.description)
        predictor.build(task, self.output)
        return FittedPredictor(predictor.eval(), scaler)

    def summary(self, defaults: Mapping[str, Any]) -> str:
        """Describe model and forecast in a few words, and name the arguments that are not the defaults."""
        description, quantiles = self.predictor.description, self.output.quantiles
        kinds = "/".join(dict.fromkeys(layer["kind"] for layer in as_list(description.get("attention"))))
        context = description.get("context_length") or (AUTO if self.chooses_context else self.data.context_length)
        parts = [description["kind"], *([f"attention {kinds}"] if kinds else [])]
        parts += [f"{context} -> {self.data.prediction_length} steps"]
        parts += [f"quantiles {' '.join(map(str, quantiles))}" if quantiles else "point forecast"]
        parts += [f"distribution {self.output.distribution}"] if self.output.distribution else []
        given = dict(self.given)
        for name, cls in _GROUPS.items():
            named, usual = _named(cls, given[name]), _defaults(cls)
            given[name] = {key: value for key, value in named.items() if _plain(value) != _plain(usual[key])}
        plain = {name: _plain(value) for name, value in given.items() if name not in _IN_SUMMARY}
        return ", ".join(parts + [f"{name}={one!r}" for name, one in plain.items() if one != _plain(defaults[name])])


def nested(data: Mapping[str, Any], training: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return options as arguments of `Forecaster`, if it has these names; all others go into their group."""
    own, groups = {*names}, {"data": data, "training": training}
    flat = {name: value for name, value in {**data, **training}.items() if name in own}
    return {**flat, **{key: {name: group[name] for name in group if name not in own} for key, group in groups.items()}}


def _group(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a group: those given for it, and the arguments of the same names."""
    cls, part = _GROUPS[name], given[name]
    if part is not None and not isinstance(part, cls | Mapping):
        raise UserError(f"{name} must be {cls.__name__}(...) or a dictionary, not {shown(repr(part))}")
    known, named = _defaults(cls), _named(cls, part)
    if isinstance(part, cls):  # an object has its own defaults, which only arguments override
        named |= {key: getattr(part, key) for key in known if _plain(given.get(key)) in (None, _plain(known[key]))}
    for key in named:
        if key not in known:
            hint = " (it is an argument of Forecaster)" if key in given else did_you_mean(key, known)
            raise UserError(f"{name} has no option {shown(repr(key))}{hint}; valid are {one_of(known)}")
        if key in given and _plain(given[key]) not in (_plain(known[key]), _plain(named[key])):
            raise UserError(f"{key} is given twice, as an argument and in {name}: remove one")
    options = known | {key: value for key, value in given.items() if key in known} | named
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
    return {key: str(value) if isinstance(value, date) else value for key, value in plain.items()}


def where_it_went(name: str) -> str:
    """Return a hint that an argument is an option of a group, or nothing."""
    return next((f" (give {key}={{{name!r}: ...}})" for key, cls in _GROUPS.items() if name in _defaults(cls)), "")


def _defaults(cls: type[Any]) -> dict[str, Any]:
    return {one.name: _OWN_DEFAULTS.get(one.name, one.default) for one in fields(cls) if one.init}


def _named(cls: type[Any], part: Any) -> dict[str, Any]:
    """Return the options of a group that are named; of an object, all that differ from its defaults."""
    if part is None or isinstance(part, Mapping):
        return dict(part or {})
    values = {one.name: (getattr(part, one.name), one.default) for one in fields(cls) if one.init}
    return {name: value for name, (value, default) in values.items() if _plain(value) != _plain(default)}


def _plain(value: Any) -> Any:
    """Return a value as it would be once saved; None for an empty list or mapping."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    value = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, os.PathLike) else value
    return None if value in ([], {}) else value
