"""An experiment as plain data: what is forecast, by what, how it is trained. It is read, overridden, parsed, written.

One parser, of jsonargparse, reads YAML, the command line and Python.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import date, timedelta
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeAlias

import numpy as np
import pandas as pd
import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, get_loader, set_loader  # type: ignore[attr-defined]
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger

from tsattn.checks import calibration_share
from tsattn.data import DATA_MODULES, ForecastDataModule, FrameDataModule, PanelDataModule, WindowOptions
from tsattn.data.frequency import counts
from tsattn.descriptions import class_at, imported
from tsattn.errors import UserError, find_user_error, shown
from tsattn.evaluation import selection_metric
from tsattn.experiments.configs import (
    SECTIONS,
    check_sections,
    find_config,
    full_path,
    read_config,
    sentence,
    under_key,
    with_values,
)
from tsattn.layers.optim import Optimization
from tsattn.predictors import complete_predictor
from tsattn.task import Output
from tsattn.training import ForecastingModule
from tsattn.training.loggers import LOGGERS
from tsattn.training.losses import choose_loss
from tsattn.training.trainer_options import TRAINER_DEFAULTS, chosen_precision

__all__ = ["NOT_IN_KEY", "OF_DATA", "RESULTS_VERSION", "Experiment", "ExperimentParser", "add_experiment"]
__all__ += ["experiment_parser", "fingerprint", "instantiated", "parsed", "parsed_words", "plain", "user_errors"]

RESULTS_VERSION = 3
"""Raised in the commit that changes any number of a result: results of other versions are not comparable."""

# of the Trainer, what says where and how it computes or writes, not what comes out
NOT_IN_KEY = (
    *("accelerator", "strategy", "logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"),
    *("log_every_n_steps", "profiler", "default_root_dir", "benchmark", "inference_mode", "detect_anomaly"),
    *("enable_autolog_hparams", "model_registry"),
)
OF_DATA = (
    *("context_length", "prediction_length", "batch_size", "eval_batch_size", "scaling", "val_windows", "transform"),
)
# left out of keys and of drawn seeds at these values, so that the keys of committed records hold
_UNSAID = {
    **{"schedule": "cosine", "betas": [0.9, 0.999], "distribution": None, "transform": None, "calibrate": False},
    **{"patience": None, "min_delta": 0.0, "until": None, "comment": "", "skip_rows": 0},
}
_UNSAID_IN_NETWORKS = {"patch_mask": 0.0, "subtract_last": False, "pad_end": False}
_CHUNK = 1 << 26  # bytes
_FILES = ("path", "root", "folder")  # arguments of data sets that say where files lie


@dataclass(frozen=True)
class Experiment:
    """Complete description of a run, all defaults included.

    In YAML it has the keys ``data``, ``model``, ``trainer`` and ``seed_everything``, as the command line has options.

    Attributes:
        data: the DataModule and its arguments: ``class_path`` and ``init_args``.
        model: ``backbone``, the description of the predictor, and how it is trained: ``learning_rate``, ``loss`` and so
            on, the arguments of `ForecastingModule`.
        trainer: the arguments of Lightning's Trainer.
        seed: of weights, order and dropout; None draws from the generators as they are. ``true`` in the YAML is one
            that the description decides, wherever its files lie.
        parts: data and trainer as parsed, and as given here: where one is replaced, they are parsed again.
    """

    data: Mapping[str, Any]
    model: Mapping[str, Any]
    trainer: Mapping[str, Any]
    seed: int | None
    parts: tuple[Namespace, Mapping[str, Any], Mapping[str, Any]] = field(repr=False, compare=False)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Complete a description, plain data by the keys of the YAML, with all defaults.

        Raises:
            UserError: for a key or value that is not valid; the message lists what is.
        """
        check_sections(content)
        return cls.of_parts(parsed(content))

    @classmethod
    def of_parts(cls, parts: Namespace) -> Self:
        """Check parsed parts together; a `UserError` names a value that is not valid."""
        whole = plain(parts)
        data, model, trainer, seed = whole["data"], whole["model"], whole["trainer"], whole["seed_everything"]
        seed = False if seed is None else seed
        if not isinstance(seed, bool) and not 0 <= seed < 2**32:  # what numpy takes
            raise UserError(f"--seed_everything must be from 0 to {2**32 - 1}, or true or false, not {seed}")
        model["backbone"] = complete_predictor(model["backbone"])
        Optimization(**{one.name: model[one.name] for one in fields(Optimization)})
        calibration_share(model["calibrate"])
        files = data.get("init_args") or {}
        given = {name: files[name] for name in _FILES if files.get(name)}
        if seed is True:  # wherever the files lie
            files.update(dict.fromkeys(given))
            said = {**data, "init_args": _without(data.get("init_args") or {}, _UNSAID)}
            text = json.dumps({**whole, "data": said, "model": _said(model)})
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        parts = copy.deepcopy(parts)
        for name, path in given.items():  # the description is read from anywhere
            files[name] = parts[f"data.init_args.{name}"] = str(Path(path).expanduser().absolute())
        return cls(data, model, trainer, None if seed is False else seed, (parts, data, trainer))

    @classmethod
    def read(cls, name: str | Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a YAML file, which is found by its bare name if it is included in tsattn.

        Args:
            name: of the file.
            overrides: values by their dotted paths, see `with_values`.

        Raises:
            UserError: if it is not there, or is not valid.
        """
        return cls.of(with_values(read_config(find_config(name)), _full(overrides)))

    def with_values(self, overrides: Mapping[str, Any] | None) -> Self:
        """Return the experiment with other values.

        Args:
            overrides: values by their dotted paths, written as on the command line: ``trainer.max_steps``,
                ``data.batch_size``, ``model.backbone``, ``attention.ranks``. Naming another kind replaces the whole
                description.

        Raises:
            UserError: for a path or value that is not valid.
        """
        return type(self).of(with_values(self.to_dict(), _full(overrides))) if overrides else self

    def to_dict(self) -> dict[str, Any]:
        """Plain data by the keys of the YAML."""
        seed: int | bool = False if self.seed is None else self.seed
        parts = {"data": self.data, "model": self.model, "trainer": self.trainer}
        return {"seed_everything": seed, **copy.deepcopy(parts)}

    def to_yaml(self) -> str:
        """A configuration that `fit --config` and `Experiment.read` take."""
        text: str = yaml.safe_dump(self.to_dict(), sort_keys=False)
        return text

    def made(self) -> tuple[ForecastDataModule, Mapping[str, Any]]:
        """Make the DataModule, and the arguments of the Trainer; a `UserError` says what a class refuses."""
        parts, data, trainer = self.parts
        is_parsed = data is self.data and trainer is self.trainer
        made = instantiated(parts if is_parsed else parsed(self.to_dict()))
        return made.data, dict(vars(made.trainer))

    def with_precision(self, precision: Any) -> Self:
        """Return the experiment in the precision that a training has chosen, so that resuming it has it too."""
        return replace(self, trainer={**self.trainer, "precision": precision})

    @property
    def selection(self) -> str:
        """The validation error that weights and trials are chosen by, see `tsattn.evaluation.selection`."""
        quantiles = self.model["quantiles"]
        loss = choose_loss(self.model["loss"], quantiles, self.model["distribution"])
        return selection_metric(loss, quantiles, self.model["selection"])

    @property
    def output(self) -> Output:
        """Quantiles or distribution that the predictor forecasts."""
        return Output(tuple(self.model["quantiles"]), self.model["distribution"])

    @property
    def key(self) -> str:
        """A hash of all that decides the numbers of the result; the data are read for it.

        Included are this description, the data (values, names and time stamps after reading, how they are split, and
        what a data set does to each batch), and `RESULTS_VERSION`. Left out are where files lie, logging, loader
        processes, the device, and threads.
        """
        data, _ = self.made()
        data.prepare_data()
        data.setup("fit")
        return self.key_with(data)

    def key_with(self, data: ForecastDataModule, data_fingerprint: str | None = None) -> str:
        """The `key`, of data that are set up, and their `fingerprint` if it is known."""
        trainer = {name: value for name, value in self.trainer.items() if name not in NOT_IN_KEY}
        if trainer["devices"] in ("1", "auto", [0]):
            trainer["devices"] = 1
        trainer["precision"] = chosen_precision(self.trainer)
        of_data = _without({name: getattr(data, name) for name in OF_DATA}, _UNSAID)
        content = {
            "version": RESULTS_VERSION,
            "model": _said(self.model),
            "trainer": trainer,
            "seed": self.seed,
            "data": {**of_data, **{name: getattr(data, name) for name in data.in_key}},
            "splits": [astuple(split) for split in data.splits],
            "fingerprint": data_fingerprint or fingerprint(data),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def fingerprint(data: ForecastDataModule) -> str:
    """Hash the series of data that are set up: values, names and time stamps after reading, not the place of a file."""
    panel = data.panel
    assert panel is not None
    zone = (str(panel.time.tz), True) if isinstance(panel.time, pd.DatetimeIndex) else (None, False)
    parts = [panel.ids, panel.channels, panel.past_names, panel.future_names, panel.static_names]
    more = [panel.covariate_categories] if panel.covariate_categories else []
    names = [*map(list, parts), panel.static_categories, panel.frequency, *zone, *more]
    found = hashlib.blake2b(json.dumps(names, default=str).encode(), digest_size=32)
    rows = panel.values, panel.past_covariates, panel.future_covariates
    for array in (panel.time, panel.starts, *rows, panel.static, panel.weights):
        if array is None:
            continue
        is_float = array.dtype.kind == "f"
        step = max(1, _CHUNK // (8 * max(1, int(np.prod(array.shape[1:])))))
        found.update(f"{'<f8' if is_float else '<i8'}{array.shape}".encode())
        for start in range(0, len(array), step):
            part: Any = array[start : start + step]
            if isinstance(part, pd.Index):  # the unit of the time stamps is a matter of the reader
                part = counts(part)
            elif is_float:  # one missing value is as good as another, and so are the two zeros; so is the precision
                part = np.where(np.isnan(part), np.nan, part).astype(np.float64) + 0.0
            found.update(part.tobytes())
    return found.hexdigest()


def _said(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**_without(model, _UNSAID), "backbone": _network_without(model["backbone"])}


def _without(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in values or values[name] != value}


def _network_without(description: Any) -> Any:
    if isinstance(description, Mapping):
        kept = _without(description, _UNSAID_IN_NETWORKS)
        return {name: _network_without(value) for name, value in kept.items()}
    return [*map(_network_without, description)] if isinstance(description, list) else description


def _full(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    return {full_path(path): value for path, value in (overrides or {}).items()}


# the parser

_LIMITED = {
    "limit_train_batches": "training batches of an epoch, a number or a share",
    "limit_val_batches": "validation batches, a number or a share",
}
_Name: TypeAlias = Literal["csv", "tensorboard", "wandb", "mlflow"]  # those of LOGGERS
_Loggers: TypeAlias = bool | _Name | Logger | list[_Name | Logger] | None
_LOCK = threading.RLock()  # a parser has a state while it parses
_NOT_TYPED = ("frame", "options", "sizes")  # of the arguments of data sets

_load = get_loader("yaml")
# `#` alone is text, where YAML has an empty comment
set_loader("yaml", lambda text: text if text == "#" else _load(text), exceptions=(yaml.YAMLError,))


class ExperimentParser(ArgumentParser):
    """Raises a `UserError` of one sentence where argparse would print its usage and exit.

    Attributes:
        more: options that stand beside those of the parser, which a message may mean.
    """

    more: tuple[str, ...] = ("--attention",)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Name the argument in one sentence, and say what is valid."""
        found = find_user_error(ex)
        if found is None:  # the parser hides an error of a user's module
            for path in re.findall(
                r"class_path'?:? '([\w.]+)'|(?s:^Parser key \"data\".*)Given value: ([\w.]+)$", message
            ):
                class_at("".join(path), "class")
        in_memory = FrameDataModule, PanelDataModule  # cannot be typed
        known = {cls.__name__: cls for cls in _subclasses(ForecastDataModule) if cls not in in_memory}
        if found is not None:  # a mistake found while building something keeps its own sentence
            raise UserError(_of_another_class(under_key(str(found), message), known)) from found
        options = [option for action in self._actions for option in action.option_strings]
        if "--data" in options:  # whose arguments are those of a class, which is not known yet
            arguments = [name for cls in (*known.values(), FrameDataModule) for name in _arguments(cls)]
            options += [f"--data.{name}" for name in dict.fromkeys(arguments) if name not in _NOT_TYPED]
            options += self.more
        raise UserError(sentence(message, options=options, data_sets=sorted(known), prog=self.prog)) from ex


class _NamedConfig(ActionConfigFile):
    """Reads a configuration that may be given by its name."""

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        path = find_config(values)
        read_config(path)  # its sections, checked
        super().__call__(parser, cfg, str(path), option_string)  # type: ignore[no-untyped-call]


def add_experiment(parser: ArgumentParser) -> None:
    """Let a parser take the four parts of an experiment."""
    for path in DATA_MODULES.values():  # the parser finds classes by name among those that were imported
        imported(path)
    parser.add_argument("--seed_everything", type=bool | int, default=1, help="random seed")
    parser.add_subclass_arguments(ForecastDataModule, "data", fail_untyped=False, required=True)
    parser.add_class_arguments(ForecastingModule, "model", fail_untyped=False, instantiate=False, sub_configs=True)
    parser.add_class_arguments(
        Trainer, "trainer", fail_untyped=False, instantiate=False, sub_configs=True, skip={*_LIMITED, "logger"}
    )
    named = f"{', '.join(LOGGERS)}, a Lightning logger, or a list of these"
    parser.add_argument("--trainer.logger", type=_Loggers, default=None, help=named)
    for name, what in _LIMITED.items():  # Lightning's annotation would read a number of batches as a share of them
        parser.add_argument(f"--trainer.{name}", type=int | float | None, default=None, help=what)
    parser.set_defaults({f"trainer.{name}": value for name, value in TRAINER_DEFAULTS.items()})


@lru_cache(maxsize=1)
def experiment_parser() -> ExperimentParser:
    """The parser of all descriptions."""
    parser = ExperimentParser(prog="tsattn", exit_on_error=True, allow_abbrev=False)
    what = "configuration: a file, or the name of an included one"
    parser.add_argument("-c", "--config", action=_NamedConfig, help=what)
    add_experiment(parser)
    return parser


def parsed(content: Mapping[str, Any]) -> Namespace:
    """Parse plain data, and fill in all defaults; a `UserError` lists what is valid."""
    with _LOCK, user_errors():
        found = experiment_parser().parse_object(json.loads(json.dumps(content, default=_plain_value)))
    return _sections(found)


def parsed_words(words: list[str], prog: str, more: tuple[str, ...]) -> Namespace:
    """Parse the options of an experiment on a command line; messages name its command and its other options."""
    parser = experiment_parser()
    with _LOCK, user_errors():
        parser.prog, parser.more = prog, more
        try:
            return _sections(parser.parse_args(words))
        finally:
            parser.prog, parser.more = "tsattn", ExperimentParser.more


def instantiated(parts: Namespace) -> Namespace:
    """Make the DataModule, and what the arguments of the Trainer name."""
    with _LOCK, user_errors():
        made: Namespace = experiment_parser().instantiate(copy.deepcopy(parts))
    return made


def plain(parts: Namespace) -> dict[str, Any]:
    """Parsed parts as plain data."""
    with _LOCK:
        text = experiment_parser().dump(parts, format="json", skip_unset=False, skip_validation=True)
    content: dict[str, Any] = json.loads(text)
    return content


def _sections(found: Namespace) -> Namespace:
    return Namespace(**{name: found[name] for name in SECTIONS})  # type: ignore[no-untyped-call]


def _plain_value(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, timedelta | date):
        return str(value)
    raise UserError(
        f"an experiment is plain data, and {shown(repr(value))} is none; callbacks that are made already go into "
        "Hooks(callbacks=[...])"
    )


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Raise what a user can mend as `UserError`, whatever the libraries make of it."""
    try:
        yield
    except UserError:  # with its cause
        raise
    except (ValueError, ImportError) as error:  # the parser wraps what a class says of its arguments
        found = find_user_error(error)
        if found is not None:
            raise found from found.__cause__  # from `error`, which came of it, the chain would have no end
        reason = _class_problem(error)
        if reason is None:
            raise
        raise UserError(reason) from error
    except (MisconfigurationException, RuntimeError) as error:
        # a RuntimeError of EarlyStopping, once there is a metric
        if not isinstance(error, MisconfigurationException) and "conditioned on metric" not in str(error):
            raise
        raise UserError(" ".join(str(error).split())) from error


def _class_problem(error: BaseException) -> str | None:
    """Why a class of the configuration, or what it needs, cannot be made; None for an error of something else."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ImportError):
        cause = cause.__cause__ or cause.__context__
    found = re.search(r"class_path[= ]'(?:\w+\.)*(\w+)'", str(error))
    name = found[1] if found else "a class of the configuration"
    if cause is not None:
        return f"{name} needs a package that is not installed: {' '.join(str(cause).split())}"
    reason = re.search(
        r"Problem with given class_path .*:\s*\n\s*(.*)|^  - (?!Expected|Not a valid|Problem)(.*)", str(error), re.M
    )
    if not found or not reason:
        return None
    said = reason[1] or reason[2]  # where several classes were tried, there is text alone
    is_missing = re.search(r"Requirement '|No module named|pip install", said)
    return f"{name} {'needs a package that is not installed' if is_missing else 'cannot be made'}: {said}"


def _of_another_class(text: str, known: Mapping[str, type]) -> str:
    """The sentence about an argument of the data that the class which was named, or none, does not have."""
    found = re.match(r"unknown argument (--data\.(\w+))", text)
    if found is None or found[2] in _NOT_TYPED:
        return text
    shared, common = {*ForecastDataModule.__mro__}, {*_arguments(ForecastDataModule)}
    owners = [name for name, cls in known.items() if [*signature(cls).parameters][:1] == [found[2]]] or [
        name
        for name, cls in known.items()
        if any(found[2] in {*_arguments(one)} - common for one in {*cls.__mro__} - shared)
    ]
    return f"`{found[1]}` belongs to {' or '.join(owners)}; add `--data {owners[0]}`" if owners else text


def _arguments(cls: type[Any]) -> list[str]:
    """The arguments of a data set, those that it hands on included."""
    own = getattr(cls, "options", WindowOptions)
    return [*signature(cls).parameters, *(one.name for one in fields(own) if one.init)]


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    return [c for child in cls.__subclasses__() for c in (child, *_subclasses(child))]
