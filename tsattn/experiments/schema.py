"""What an experiment may say: one parser, of jsonargparse, for YAML, the command line and Python."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import date, timedelta
from functools import lru_cache
from inspect import signature
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, get_loader, set_loader  # type: ignore[attr-defined]
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger

from tsattn.data import DATA_MODULES, ForecastDataModule, FrameDataModule, PanelDataModule, WindowOptions
from tsattn.descriptions import class_at, imported
from tsattn.errors import UserError, find_user_error, shown
from tsattn.experiments.configs import SECTIONS, find_config, read_config
from tsattn.experiments.sentences import sentence, under_key
from tsattn.training import ForecastingModule
from tsattn.training.loggers import LOGGERS
from tsattn.training.trainer_options import TRAINER_DEFAULTS

__all__ = [
    "ExperimentParser",
    "add_experiment",
    "experiment_parser",
    "instantiated",
    "parsed",
    "parsed_words",
    "plain",
    "user_errors",
]

_LIMITED = {
    "limit_train_batches": "training batches of an epoch, a number or a share",
    "limit_val_batches": "validation batches, a number or a share",
}
_Name: TypeAlias = Literal["csv", "tensorboard", "wandb", "mlflow"]  # those of LOGGERS
_Loggers: TypeAlias = bool | _Name | Logger | list[_Name | Logger] | None
_MISSING = re.compile(r"Requirement '|No module named|pip install")
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
    parser.add_argument(
        "-c", "--config", action=_NamedConfig, help="configuration: a file, or the name of an included one"
    )
    add_experiment(parser)
    return parser


def parsed(content: Mapping[str, Any]) -> Namespace:
    """Parse plain data, and fill in all defaults.

    Raises:
        UserError: for a key or value that is not valid; the message lists what is.
    """
    with _LOCK, user_errors():
        found = experiment_parser().parse_object(json.loads(json.dumps(content, default=_plain_value)))
    return _sections(found)


def parsed_words(words: list[str], prog: str, more: tuple[str, ...]) -> Namespace:
    """Parse the words of a command line.

    Args:
        words: options of an experiment.
        prog: the command, for messages.
        more: its other options, for messages.

    Raises:
        UserError: as `parsed`.
    """
    parser = experiment_parser()
    with _LOCK, user_errors():
        parser.prog, parser.more = prog, more
        try:
            return _sections(parser.parse_args(words))
        finally:
            parser.prog, parser.more = "tsattn", ExperimentParser.more


def instantiated(parts: Namespace) -> Namespace:
    """Make the DataModule, and what the arguments of the Trainer name.

    Raises:
        UserError: for what a class refuses.
    """
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
    """What a value of Python is in YAML."""
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
    except MisconfigurationException as error:
        raise UserError(" ".join(str(error).split())) from error
    except (ValueError, ImportError) as error:  # the parser wraps what a class says of its arguments
        found = find_user_error(error)
        if found is not None:
            raise found from found.__cause__  # from `error`, which came of it, the chain would have no end
        reason = _class_problem(error)
        if reason is None:
            raise
        raise UserError(reason) from error
    except RuntimeError as error:  # of EarlyStopping, once there is a metric
        if "conditioned on metric" not in str(error):
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
    return f"{name} {'needs a package that is not installed' if _MISSING.search(said) else 'cannot be made'}: {said}"


def _of_another_class(text: str, known: Mapping[str, type]) -> str:
    """The sentence about an argument of the data that the class which was named, or none, does not have."""
    found = re.match(r"unknown argument (--data\.(\w+))", text)
    if found is None or found[2] in _NOT_TYPED:
        return text
    required = [name for name, cls in known.items() if [*signature(cls).parameters][:1] == [found[2]]]
    shared = {*ForecastDataModule.__mro__}
    owners = required or [
        name
        for name, cls in known.items()
        if any(found[2] in {*_arguments(one)} - {*_arguments(ForecastDataModule)} for one in {*cls.__mro__} - shared)
    ]
    return f"`{found[1]}` belongs to {' or '.join(owners)}; add `--data {owners[0]}`" if owners else text


def _arguments(cls: type[Any]) -> list[str]:
    """The arguments of a data set, those that it hands on included."""
    own = getattr(cls, "options", WindowOptions)
    return [*signature(cls).parameters, *(one.name for one in fields(own) if one.init)]


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    return [c for child in cls.__subclasses__() for c in (child, *_subclasses(child))]
