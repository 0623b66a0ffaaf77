"""An experiment as plain data; one parser, of jsonargparse, reads it from YAML, the command line and Python."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields
from datetime import date, timedelta
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeAlias

import numpy as np
import pandas as pd
import yaml
from jsonargparse import ArgumentParser, Namespace, get_loader, set_loader
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger

from tsattn.data import DATA_MODULES, ForecastDataModule, FrameDataModule, PanelDataModule
from tsattn.data.frequency import counts
from tsattn.descriptions import class_at, imported
from tsattn.errors import UserError, did_you_mean, one_line, one_of, shown
from tsattn.evaluation import selection_metric
from tsattn.experiments.configs import BACKBONE, SECTIONS, check_sections, find_config, read_config, with_values
from tsattn.layers.optim import Optimization
from tsattn.predictors import DEFAULT, complete_predictor, network_for
from tsattn.task import Output, calibration_share
from tsattn.training import ForecastingModule
from tsattn.training.loggers import LOGGERS
from tsattn.training.losses import choose_loss
from tsattn.training.trainer_options import TRAINER_DEFAULTS, chosen_precision

RESULTS_VERSION = 3
"""Raised in the commit that changes any number of a result: results of other versions are not comparable."""

# Trainer options about where and how it computes or writes, which do not change the result
NOT_IN_KEY = (
    *("accelerator", "strategy", "logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"),
    *("log_every_n_steps", "profiler", "default_root_dir", "benchmark", "inference_mode", "detect_anomaly"),
    *("enable_autolog_hparams", "model_registry"),
)
OF_DATA: tuple[str, ...] = ("context_length", "prediction_length", "batch_size", "eval_batch_size", "scaling")
OF_DATA += ("val_windows", "transform", "season_length")
# options that came later, left out of keys and of drawn seeds at these values: keys of committed records stay valid
_LATER_OF_MODEL: dict[str, Any] = {"schedule": "cosine", "betas": [0.9, 0.999], "distribution": None}
_LATER_OF_MODEL |= {"calibrate": False, "patience": None, "min_delta": 0.0}
_LATER_OF_DATA = {"transform": None, "season_length": None, "until": None, "comment": "", "skip_rows": 0}
_LATER_OF_NETWORKS = {"patch_mask": 0.0, "subtract_last": False, "pad_end": False}
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
        seed: of weights, order and dropout; None draws from the generators as they are. ``true`` in the YAML is a seed
            that the description decides, wherever its files lie.
    """

    data: Mapping[str, Any]
    model: Mapping[str, Any]
    trainer: Mapping[str, Any]
    seed: int | None
    # as parsed, with their data and trainer: if one of these is replaced, they are parsed again
    _parts: tuple[Namespace, Mapping[str, Any], Mapping[str, Any]] = field(repr=False, compare=False)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Complete a description, plain data by the keys of the YAML, with all defaults.

        Raises:
            UserError: for a key or value that is not valid; the message lists the valid ones.
        """
        check_sections(content)
        return cls.of_parts(parsed(content))

    @classmethod
    def of_parts(cls, parts: Namespace) -> Self:
        """Check parsed parts together; a `UserError` names a value that is not valid."""
        whole, parts = plain(parts), copy.deepcopy(parts)
        data, model, trainer, seed = whole["data"], whole["model"], whole["trainer"], whole["seed_everything"]
        if seed is not None and not isinstance(seed, bool) and not 0 <= seed < 2**32:  # what numpy takes
            raise UserError(f"--seed_everything must be from 0 to {2**32 - 1}, or true or false, not {seed}")
        named = model["backbone"] if model["distribution"] is None else network_for(model["backbone"])
        model["backbone"] = complete_predictor(named)
        Optimization(**{one.name: model[one.name] for one in fields(Optimization)})
        calibration_share(model["calibrate"])
        files = data.setdefault("init_args", {})
        given = {name: files[name] for name in _FILES if files.get(name)}
        if seed is True:  # wherever the files lie
            files.update(dict.fromkeys(given))
            said = {**data, "init_args": _without(files, _LATER_OF_DATA)}
            text = json.dumps({**whole, "data": said, "model": _said(model)})
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        for name, path in given.items():  # the description is read from anywhere
            files[name] = parts[f"data.init_args.{name}"] = str(Path(path).expanduser().absolute())
        return cls(data, model, trainer, None if seed is False else seed, (parts, data, trainer))

    @classmethod
    def read(cls, name: str | Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a YAML file, which is found by its bare name if it is included in tsattn; see `with_values`.

        Raises:
            UserError: if it is not there, or is not valid.
        """
        return cls.of(with_values(read_config(find_config(name)), overrides or {}))

    def with_values(self, overrides: Mapping[str, Any] | None) -> Self:
        """Return the experiment with other values.

        Args:
            overrides: values by their dotted paths, written as on the command line: ``trainer.max_steps``,
                ``data.batch_size``, ``model.backbone``, ``attention.ranks``. Naming another kind replaces the whole
                description.

        Raises:
            UserError: for a path or value that is not valid.
        """
        return type(self).of(with_values(self.to_dict(), overrides)) if overrides else self

    def to_dict(self) -> dict[str, Any]:
        """Plain data by the keys of the YAML."""
        seed = False if self.seed is None else self.seed
        return copy.deepcopy({"seed_everything": seed, "data": self.data, "model": self.model, "trainer": self.trainer})

    def to_yaml(self) -> str:
        """A configuration that `fit --config` and `Experiment.read` take."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def data_module(self) -> ForecastDataModule:
        """Make the DataModule; a `UserError` says what its class refuses."""
        return instantiated(self._parsed, "data")  # type: ignore[no-any-return]

    def trainer_arguments(self) -> dict[str, Any]:
        """The arguments of the Trainer, with the objects that they name; a `UserError` says what a class refuses."""
        return dict(vars(instantiated(self._parsed, "trainer")))

    @property
    def _parsed(self) -> Namespace:
        parts, data, trainer = self._parts
        return parts if data is self.data and trainer is self.trainer else parsed(self.to_dict())

    @property
    def training_options(self) -> dict[str, Any]:
        """The options of the training: all of the model but its predictor."""
        return {name: value for name, value in self.model.items() if name != "backbone"}

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

        It covers this description, `RESULTS_VERSION`, and the data: values, names and time stamps after reading,
        splits, and what a data set does to each batch. Left out are where files lie, logging, loader processes, the
        device, and threads.
        """
        data = self.data_module()
        data.prepare("fit")
        return self.key_with(data)

    def key_with(self, data: ForecastDataModule, data_fingerprint: str | None = None) -> str:
        """The `key`, given data that are set up, and their `fingerprint` if it is known."""
        trainer = {name: value for name, value in self.trainer.items() if name not in NOT_IN_KEY}
        if trainer["devices"] in ("1", "auto", [0]):
            trainer["devices"] = 1
        trainer["precision"] = chosen_precision(self.trainer)
        of_data = _without({name: getattr(data, name) for name in OF_DATA}, _LATER_OF_DATA)
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
    panel, _, _ = data.contents
    zone = (str(panel.time.tz), True) if isinstance(panel.time, pd.DatetimeIndex) else (None, False)
    parts = [panel.ids, panel.channels, panel.past_names, panel.future_names, panel.static_names]
    more = [panel.covariate_categories] if panel.covariate_categories else []
    names = [*map(list, parts), panel.static_categories, panel.frequency, *zone, *more]
    found = hashlib.blake2b(json.dumps(names, default=str).encode(), digest_size=32)
    rows = panel.values, panel.past_covariates, panel.future_covariates
    for array in [one for one in (panel.time, panel.starts, *rows, panel.static, panel.weights) if one is not None]:
        is_float = array.dtype.kind == "f"
        step = max(1, _CHUNK // (8 * max(1, int(np.prod(array.shape[1:])))))
        found.update(f"{'<f8' if is_float else '<i8'}{array.shape}".encode())
        for start in range(0, len(array), step):
            part: Any = array[start : start + step]
            if isinstance(part, pd.Index):  # the unit of the time stamps is a matter of the reader
                part = counts(part)
            elif is_float:  # missing values are equal, so are both zeros, and the precision does not count
                part = np.where(np.isnan(part), np.nan, part).astype(np.float64) + 0.0
            found.update(part.tobytes())
    return found.hexdigest()


def _said(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**_without(model, _LATER_OF_MODEL), "backbone": _network_without(model["backbone"])}


def _without(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in values or values[name] != value}


def _network_without(description: Any) -> Any:
    if isinstance(description, Mapping):
        kept = _without(description, _LATER_OF_NETWORKS)
        if kept.get("linear_path") == "ridge" or (kept.get("kind") == "auto" and kept.get("members") is None):
            kept["version"] = 2  # numbers of these alone changed
        return {name: _network_without(value) for name, value in kept.items()}
    return [*map(_network_without, description)] if isinstance(description, list) else description


_LIMITED = {"limit_train_batches": "training batches of an epoch, a number or a share"}
_LIMITED |= {"limit_val_batches": "validation batches, a number or a share"}
_Name: TypeAlias = Literal["csv", "tensorboard", "wandb", "mlflow"]  # the names in LOGGERS
_Loggers: TypeAlias = bool | _Name | Logger | list[_Name | Logger] | None
_LOCK = threading.RLock()  # a parser has a state while it parses

_load, _is_name = get_loader("yaml"), re.compile("#.*").fullmatch
# `#id` is the name of a column, where YAML has a comment; a file may begin with a comment
set_loader("yaml", lambda text: text if _is_name(text) else _load(text), exceptions=(yaml.YAMLError,))

_HERE = "--\0"  # begins an option in a message of the parser of a class, which does not know where it is an argument
_UNKNOWN = r"unrecognized arguments: (\S+)|(?:Group '([^']+)' does not accept o|O)ption '([^']+)'|Key '([^']+)' is not"
_NO_DATA = "give `--config NAME`, `--data CSVDataModule --data.path FILE` or `--data PublicDataModule --data.name NAME`"
_SENTENCES = {  # by the parser's message
    r"argument (?:-\w/)?(--[\w.-]+)\S*: expected": "{} needs a value",
    r"are required: (?:data|source)\b": f"`--data` names no class; {_NO_DATA}",
    r"are required: (\w+)": "{key}{} is missing",
    r"Multiple subclasses with name (\S+)\. .*?: (.*)\.": "{key} {} names more than one class; give the import path of "
    "one: {}",
}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "NoneType": ""}
_KINDS |= {**dict.fromkeys(("Sequence", "list"), 'a list, such as "[a, b]"'), "dot": "a class by name or import path"}


class ExperimentParser(ArgumentParser):
    """Raises a `UserError` of one sentence where argparse would print its usage and exit."""

    more: tuple[str, ...] = ("--attention",)  # more options, which a message may mean

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Name the argument in one sentence, and say what is valid."""
        options = [name for action in self._actions for name in action.option_strings]
        here, of_sets = "--" if "--data" in options else _HERE, _arguments_of_sets()
        key = here + next(iter(re.findall(r'[Kk]ey "([^"]+)"', message)), "")
        found = _user_error_behind(ex)
        if found is not None:  # a mistake found while building something keeps its own sentence
            raise UserError(str(found).replace(_HERE, f"{key}.")) from found
        # the parser hides an error of a user's module
        for path in re.findall(r"class_path'?:? '([\w.]+)'|(?s:^Parser key \"data\".*)Given value: ([\w.]+)$", message):
            class_at("".join(path), "class")
        if unknown := re.search(_UNKNOWN, message):
            typed, *parts = unknown.groups()
            name = typed or here + ".".join(filter(None, parts))
            owners = [cls for cls, names in of_sets.items() if name.removeprefix(_HERE) in names]
            if here == _HERE and owners and "--prediction_length" in options:  # the parser of a data set
                raise UserError(f"`{name}` belongs to {' or '.join(owners)}; add `--data {owners[0]}`") from ex
            if here == "--":  # the arguments of a data set belong to a class that is not known yet
                options += [*self.more, *(f"--data.{name}" for names in of_sets.values() for name in names)]
            raise _unknown(name, options, here, self.prog) from ex
        for pattern, text in _SENTENCES.items():
            if said := re.search(pattern, message):
                raise UserError(text.format(*said.groups(), key=key)) from ex
        value = re.search(r"(?:Given|Got) value: (.{0,100})", message)
        if key == here or not value:
            raise UserError(one_line(message, 400)) from ex
        kinds = re.findall(r"Expected a (?:<class '(?:\w+\.)*(\w+)'>|typing\.Literal\[(.*?)\]|(dot))", message)
        words = [word for name, some, dot in kinds for word in (name, dot, *some.replace("'", "").split(", "))]
        valid = [*filter(None, dict.fromkeys(_KINDS.get(word, word) for word in words))] or ["another kind of value"]
        if key == "--data":
            valid = [*sorted(of_sets), "or the import path of a ForecastDataModule"]
        raise UserError(f"{key} must be {'one of ' * (len(valid) > 1)}{one_of(valid)}, not {value[1].strip()}") from ex


def _unknown(name: str, options: list[str], here: str, prog: str) -> UserError:
    """The sentence for a name that is not among the options."""
    hidden = ("-c", "-h", "--help", "--print_config", "--print_shtab")
    # with a plus at its end an option adds to a list
    names = [here + one[2:] for one in options if not (one.startswith(hidden) or one.endswith(("+", ".help")))]
    option = "--config" if name.endswith((".yaml", ".yml")) else "--input"
    if option in names and "." in name and not name.startswith("-"):
        return UserError(f"Did you mean: {prog} {option} {name}?")
    group = name.rpartition(".")[0]
    near = [one for one in names if one.rpartition(".")[0] == group]
    is_short = here == _HERE or (group and 0 < len(near) < 20)
    # who names an option of a group does not mean the whole group
    hint = did_you_mean(name, (one for one in names if not name.startswith(f"{one}.")))
    if prog.endswith(" fit"):  # where `predict` and Python have a horizon
        hint = hint.replace("--horizon", "--data.prediction_length")
    valid = one_of(near) if is_short else "those that `--help-all` lists"
    return UserError(f"unknown argument {name}{hint}; valid: {valid}")


def add_experiment(parser: ArgumentParser) -> None:
    """Let a parser take the four parts of an experiment."""
    for path in DATA_MODULES.values():  # the parser finds classes by name among those that were imported
        imported(path)
    parser.add_argument("--seed_everything", type=bool | int, default=1, help="random seed")
    parser.add_subclass_arguments(ForecastDataModule, "data", fail_untyped=False, required=True)
    parser.add_class_arguments(ForecastingModule, "model", fail_untyped=False, instantiate=False, sub_configs=True)
    parser.set_defaults({BACKBONE: DEFAULT})
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
    parser.add_argument("-c", "--config", action="config", help=what)
    add_experiment(parser)
    return parser


def parsed(content: Mapping[str, Any]) -> Namespace:
    """Parse plain data, and fill in all defaults; a `UserError` lists what is valid."""
    with _LOCK, user_errors():
        plain_data = json.loads(json.dumps(content, default=plain_value))
        return experiment_parser().parse_object(plain_data)  # type: ignore[no-any-return]


def parsed_words(words: list[str], prog: str, more: tuple[str, ...]) -> Namespace:
    """Parse the options of an experiment on a command line; messages name its command and its other options."""
    parser = experiment_parser()
    with _LOCK, user_errors():
        parser.prog, parser.more = prog, more
        try:
            return parser.parse_args(words)
        finally:
            parser.prog, parser.more = "tsattn", ExperimentParser.more


def instantiated(parts: Namespace, section: str) -> Any:
    """Make the DataModule of ``data``, or the objects that the arguments of the ``trainer`` name."""
    alone = Namespace(**{section: copy.deepcopy(parts[section])})  # type: ignore[no-untyped-call]
    with _LOCK, user_errors():
        return experiment_parser().instantiate(alone)[section]


def plain(parts: Namespace) -> dict[str, Any]:
    """Parsed parts as plain data."""
    with _LOCK:
        text = experiment_parser().dump(parts, format="json", skip_unset=False, skip_validation=True)
    return {name: value for name, value in json.loads(text).items() if name in SECTIONS}


def plain_value(value: object) -> object:
    """Return a path, date or number of NumPy as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, date):
        return str(value)
    if isinstance(value, timedelta):  # as the Trainer takes it
        return f"{value.days:02}:{timedelta(seconds=value.seconds)!s:0>8}"
    raise UserError(f"experiments hold plain data, not {shown(repr(value))}; pass callback objects with Hooks")


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Raise errors that a user can mend as `UserError`, even if libraries wrap them."""
    try:
        yield
    except UserError:  # with its cause
        raise
    except (ValueError, ImportError) as error:  # the parser wraps what a class says of its arguments
        if (found := _user_error_behind(error)) is not None:
            raise found from found.__cause__  # from `error`, which came of it, the chain would have no end
        text, missing = str(error), "needs a package that is not installed"
        if isinstance(error, ImportError):
            raise UserError(f"a class of the configuration {missing}: {one_line(text)}") from error
        # only text remains where several classes were tried
        cls = re.search(r"class_path[= ]'(?:\w+\.)*(\w+)'", text)
        pattern = r"Problem with given class_path .*:\s*\n\s*(.*)|^  - (?!Expected|Not a valid|Problem)(.*)"
        reason = re.search(pattern, text, re.M)
        if not (cls and reason):
            raise
        said = reason[1] or reason[2]
        is_missing = re.search(r"Requirement '|No module named|pip install", said)
        raise UserError(f"{cls[1]} {missing if is_missing else 'cannot be made'}: {said}") from error
    except (MisconfigurationException, RuntimeError) as error:
        # a RuntimeError of EarlyStopping, once there is a metric
        if not isinstance(error, MisconfigurationException) and "conditioned on metric" not in str(error):
            raise
        raise UserError(one_line(error)) from error


def _user_error_behind(error: BaseException | None) -> UserError | None:
    """The `UserError` that another exception was raised from, if there is one."""
    while error is not None and not isinstance(error, UserError):
        error = error.__cause__ or error.__context__
    return error


def _arguments_of_sets() -> dict[str, list[str]]:
    """Arguments of each data set that can be typed, by its name, including arguments that it passes on."""
    sets, found = [*ForecastDataModule.__subclasses__()], dict[str, list[str]]()
    for cls in sets:
        sets += cls.__subclasses__()
        names = [*signature(cls).parameters, *(one.name for one in fields(cls.options) if one.init)]
        if cls not in (FrameDataModule, PanelDataModule):
            found[cls.__name__] = [name for name in names if name not in ("frame", "options", "sizes")]
    return found
