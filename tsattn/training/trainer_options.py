"""The arguments of Lightning's Trainer in a run: which are refused, what is filled in, and making one."""

from __future__ import annotations

import copy
import pydoc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins import Precision

from tsattn.errors import UserError
from tsattn.training.loggers import check_packages
from tsattn.training.precision import FULL_PRECISION, default_precision
from tsattn.training.trainer_checks import check_trainer

__all__ = ["TRAINER_DEFAULTS", "TrainerOptions", "build_trainer", "check_one_device", "chosen_precision", "listed"]

TRAINER_DEFAULTS = {"devices": 1, "gradient_clip_val": 1.0, "log_every_n_steps": 10, "num_sanity_val_steps": 0}

# under these a table would not say what it seems to
_REFUSED = {
    "limit_test_batches": "test errors are always over all windows",
    "limit_predict_batches": "every series is forecast",
    "overfit_batches": "test errors are always over all windows",
    "barebones": "a run writes its curve and checkpoints",
}


@dataclass(frozen=True)
class TrainerOptions:
    """Arguments of a Trainer that are fit for a run.

    Attributes:
        arguments: by name; all that the Trainer has.
        chooses_steps: whether nobody says how long to train, see `tsattn.training.length`.
        chooses_validation: whether nobody says how often to validate.
    """

    arguments: Mapping[str, Any]
    chooses_steps: bool
    chooses_validation: bool

    @classmethod
    def of(cls, given: Mapping[str, Any], *, is_new: bool = True) -> TrainerOptions:
        """Check arguments, and fill in the precision.

        Args:
            given: all arguments of a Trainer by name, as plain data or made.
            is_new: whether it is for a new training; weights that are there already were trained in full precision
                where none is named.

        Raises:
            UserError: for one under which a result would mean less than it says, naming it and what is valid.
        """
        check_trainer(given)
        for name, reason in _REFUSED.items():
            if given[name] not in (None, False, 0.0):
                raise UserError(f"--trainer.{name} cannot be set: {reason}")
        if is_new:
            check_packages(listed(given["logger"]))
            if given["use_distributed_sampler"] is False:
                check_one_device(given, "use_distributed_sampler cannot be false: the loaders share windows out")
        arguments = dict(given)
        counts_epochs = given["max_epochs"] not in (None, -1)
        is_bounded = counts_epochs or given["max_steps"] not in (None, -1) or given["max_time"] is not None
        # epochs that are asked for are validated one by one
        is_timed = given["val_check_interval"] is not None or given["check_val_every_n_epoch"] != 1
        if isinstance(given["val_check_interval"], int):
            arguments["check_val_every_n_epoch"] = None  # an interval in steps counts across epochs
        arguments["precision"] = chosen_precision(given, is_new=is_new)
        if given["max_epochs"] is None:
            arguments["max_epochs"] = -1
        arguments["use_distributed_sampler"] = False  # the loaders share windows out themselves
        return cls(arguments, chooses_steps=not is_bounded, chooses_validation=not counts_epochs and not is_timed)

    def fresh(self) -> TrainerOptions:
        """The same with copies of what has a state, for another training."""
        stateful = ("callbacks", "plugins", "logger")
        return replace(self, arguments={**self.arguments, **{n: copy.deepcopy(self.arguments[n]) for n in stateful}})

    def without_files(self) -> TrainerOptions:
        """The same without loggers and without callbacks that write checkpoints."""
        callbacks = [one for one in listed(self.arguments["callbacks"]) if not isinstance(one, ModelCheckpoint)]
        return replace(self, arguments={**self.arguments, "callbacks": callbacks, "logger": False})

    def with_max_steps(self, steps: int) -> TrainerOptions:
        """The same for a training of so many optimizer steps."""
        unbounded = {"max_epochs": -1, "max_time": None, "max_steps": steps}
        return replace(self, arguments={**self.arguments, **unbounded}, chooses_steps=False)


def chosen_precision(given: Mapping[str, Any], *, is_new: bool = True) -> Any:
    """The precision of a training: the one that is given, or that of the devices; None where a plugin has its own.

    Args:
        given: all arguments of a Trainer by name.
        is_new: see `TrainerOptions.of`.
    """
    if given["precision"] is not None or _sets_precision(given["plugins"]):
        return given["precision"]
    return default_precision(given["accelerator"], given["devices"]) if is_new else FULL_PRECISION


def check_one_device(given: Mapping[str, Any], what: str, instead: str = "") -> None:
    """Refuse several devices.

    Args:
        given: all arguments of a Trainer by name.
        what: needs one, and why: the beginning of the sentence.
        instead: what to do: its end.
    """
    if given["devices"] not in (1, "1", "auto", [0]) or given["num_nodes"] != 1:
        raise UserError(f"{what}: --trainer.devices must be 1, not {given['devices']}{instead}")


def build_trainer(arguments: Mapping[str, Any], callbacks: Iterable[Callback] = (), **replaced: Any) -> Trainer:
    """A Trainer.

    Args:
        arguments: its arguments by name.
        callbacks: after those that `arguments` have.
        **replaced: take the place of arguments.

    Raises:
        UserError: if it cannot be made of these.
    """
    all_callbacks = [*listed(arguments["callbacks"]), *callbacks]
    try:
        return Trainer(**{**arguments, "callbacks": all_callbacks, **replaced})
    except (ValueError, TypeError, ImportError, MisconfigurationException) as error:
        raise UserError(f"the trainer cannot be made: {' '.join(str(error).split())}") from error


def listed(value: Any) -> list[Any]:
    """One object, several, or none (None, True, False) as a list."""
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _sets_precision(plugins: Any) -> bool:
    """Whether one of the plugins, made or described, is the precision."""

    def kind(plugin: Any) -> object:
        path = plugin.get("class_path") if isinstance(plugin, Mapping) else getattr(plugin, "class_path", None)
        return pydoc.locate(path) if isinstance(path, str) else type(plugin)

    classes = [kind(plugin) for plugin in listed(plugins)]
    return any(isinstance(cls, type) and issubclass(cls, Precision) for cls in classes)
