"""What an experiment may say, and what its words mean: the one parser of YAML, the command line and Python."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import date, timedelta
from functools import lru_cache
from inspect import signature
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import yaml
from jsonargparse import ArgumentParser, Namespace, get_loader, set_loader
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger
from typing_extensions import override

from tsattn.data import DATA_MODULES, ForecastDataModule, FrameDataModule, PanelDataModule, WindowOptions
from tsattn.descriptions import class_at, imported
from tsattn.errors import UserError, find_user_error, shown
from tsattn.experiments.configs import SECTIONS
from tsattn.experiments.sentences import sentence, under_key
from tsattn.training import ForecastingModule
from tsattn.training.loggers import LOGGERS
from tsattn.training.trainer_checks import class_problem
from tsattn.training.trainer_options import TRAINER_DEFAULTS

__all__ = ["ExperimentParser", "add_experiment", "completed", "instantiated", "plain", "user_errors"]

_LIMITED = {
    "limit_train_batches": "training batches of an epoch, a number or a share",
    "limit_val_batches": "validation batches, a number or a share",
}
_Name: TypeAlias = Literal["csv", "tensorboard", "wandb", "mlflow"]  # those of LOGGERS
_Loggers: TypeAlias = bool | _Name | Logger | list[_Name | Logger] | None
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, eight times as fast where libyaml is there
_LOCK = threading.RLock()  # a parser has a state while it parses
_NOT_TYPED = ("frame", "options", "sizes")  # of the arguments of data sets

_load = get_loader("yaml")


def _load_word(text: Any) -> Any:
    """What a word of the command line or a file of YAML says; ``#`` alone is text, where YAML has an empty comment."""
    return text if text == "#" else _load(text)


set_loader("yaml", _load_word, exceptions=(yaml.YAMLError,))


class ExperimentParser(ArgumentParser):
    """Raises a `UserError` of one sentence where argparse would print its usage and exit."""

    @override
    def dump(self, namespace: Namespace, *args: Any, **options: Any) -> str:
        """An experiment alone, as a configuration holds it, without the options of a command beside it."""
        beside = {*vars(namespace)} - {*SECTIONS}
        if not beside or not {*SECTIONS} <= {*vars(namespace)}:  # parts are dumped, too
            return str(super().dump(namespace, *args, **options))
        kept = namespace.clone()
        for name in beside:
            kept.pop(name)
        return str(super().dump(kept, *args, **{**options, "skip_validation": True}))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """One sentence that names the argument and says what is valid."""
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
            options.append("--attention")  # which stands for that of the backbone
        raise UserError(sentence(message, options=options, data_sets=sorted(known), prog=self.prog)) from ex


def add_experiment(parser: ArgumentParser) -> None:
    """Let a parser take the four parts of an experiment."""
    _import_data_sets()
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


def completed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A description with all defaults filled in.

    Raises:
        UserError: for a key or value that is not valid; the message lists what is.
    """
    with _LOCK, user_errors():
        return copy.deepcopy(_known(_completed, content))


def instantiated(content: Mapping[str, Any]) -> Namespace:
    """The parts of an experiment with all classes made: the DataModule, and what the arguments of the Trainer name.

    Raises:
        UserError: for a key or value that is not valid, and for what a class refuses.
    """
    with _LOCK, user_errors():
        given = _sections(copy.deepcopy(_known(_parsed, content)))
        made: Namespace = _parser().instantiate(given)
    return made


def plain(parsed: Namespace) -> dict[str, Any]:
    """Parsed parts as plain data, which `completed` takes."""
    with _LOCK:
        text = _parser().dump(_sections(parsed), skip_unset=False)
    content: dict[str, Any] = yaml.load(text, _LOADER)
    return content


def _sections(parsed: Namespace) -> Namespace:
    return Namespace(**{name: parsed[name] for name in SECTIONS})  # type: ignore[no-untyped-call]


@lru_cache(maxsize=64)
def _completed(text: str, data_classes: tuple[weakref.ref[type[Any]], ...]) -> dict[str, Any]:
    return plain(_parsed(text, data_classes))


@lru_cache(maxsize=64)
def _parsed(text: str, data_classes: tuple[weakref.ref[type[Any]], ...]) -> Namespace:
    """What a description says.

    Args:
        text: the description as JSON.
        data_classes: all that its name could mean; one that is defined anew, as in a notebook, is another one.
    """
    parsed: Namespace = _parser().parse_object(json.loads(text))
    return parsed


def _known(function: Any, content: Mapping[str, Any]) -> Any:
    """What a function makes of a description: a fit asks for the same several times, and parsing it is slow."""
    text = json.dumps(content, default=_plain_value)
    if '"class_path"' in json.dumps({**json.loads(text), "data": None}):
        # of the Trainer's arguments; such classes may have changed since
        _completed.cache_clear()
        _parsed.cache_clear()
    # not to be kept alive by what is remembered, where a name might then mean two
    return function(text, tuple(weakref.ref(cls) for cls in _subclasses(ForecastDataModule)))


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
    """What a user can mend, raised as `UserError`, whatever the libraries make of it."""
    try:
        yield
    except UserError:  # with what it came of
        raise
    except MisconfigurationException as error:
        raise UserError(" ".join(str(error).split())) from error
    except (ValueError, ImportError) as error:  # the parser wraps what a class says of its arguments
        found = find_user_error(error)
        if found is error:
            raise
        if found is not None:
            raise found from found.__cause__  # from `error`, which came of it, the chain would have no end
        reason = class_problem(error)
        if reason is None:
            raise
        raise UserError(reason) from error
    except RuntimeError as error:  # of EarlyStopping, once there is a metric
        if "conditioned on metric" not in str(error):
            raise
        raise UserError(" ".join(str(error).split())) from error


@lru_cache(maxsize=1)
def _parser() -> ExperimentParser:
    parser = ExperimentParser(prog="tsattn", exit_on_error=True)
    add_experiment(parser)
    return parser


def _import_data_sets() -> None:
    """The parser finds classes by their names among those that were imported."""
    for path in DATA_MODULES.values():
        imported(path)


def _of_another_class(text: str, known: Mapping[str, type]) -> str:
    """The sentence about an argument of the data that the class which was named, or none, does not have."""
    found = re.match(r"unknown argument (--data\.(\w+))", text)
    if found is None or found[2] in _NOT_TYPED:
        return text
    required = [name for name, cls in known.items() if [*signature(cls).parameters][:1] == [found[2]]]
    owners = required or [
        name
        for name, cls in known.items()
        if any(
            found[2] in {*_arguments(one)} - {*_arguments(ForecastDataModule)}
            for one in {*cls.__mro__} - {*ForecastDataModule.__mro__}
        )
    ]
    return f"`{found[1]}` belongs to {' or '.join(owners)}; add `--data {owners[0]}`" if owners else text


def _arguments(cls: type[Any]) -> list[str]:
    """The arguments of a data set, those that it hands on included."""
    return [
        *signature(cls).parameters,
        *(one.name for one in fields(getattr(cls, "options", WindowOptions)) if one.init),
    ]


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    return [c for child in cls.__subclasses__() for c in (child, *_subclasses(child))]
