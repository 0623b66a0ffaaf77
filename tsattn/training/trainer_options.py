"""Arguments of Lightning's Trainer in a run: which are refused, which are filled in, and how a Trainer is made."""

from __future__ import annotations

import copy
import math
import pydoc
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch

from tsattn.errors import UserError, one_line, one_of, shown
from tsattn.training.loggers import check_packages

if TYPE_CHECKING:  # forecasting alone needs no Lightning
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import Callback

TRAINER_DEFAULTS = {"devices": 1, "gradient_clip_val": 1.0, "log_every_n_steps": 10, "num_sanity_val_steps": 0}
FULL_PRECISION: Literal["32-true"] = "32-true"

_HOPPER = (9, 0)  # compute capability; AMD's GPUs of this number are as fast in bfloat16
# these would make reported scores misleading
_REFUSED = {
    **dict.fromkeys(("limit_test_batches", "overfit_batches"), "test errors always cover all windows"),
    **{"limit_predict_batches": "every series is forecast", "barebones": "a run writes its curve and checkpoints"},
}
_VALID: dict[str, tuple[Callable[[Any], bool], str]] = {
    "val_check_interval": (
        lambda value: value >= 1 if isinstance(value, int) else 0 < value <= 1,
        "a number of steps, at least 1, or a share of an epoch above 0 and at most 1.0",
    ),
    "check_val_every_n_epoch": (lambda value: value >= 1, "at least 1"),
    **dict.fromkeys(("max_epochs", "max_steps"), (lambda value: value >= -1, "above 0, or -1 for no limit")),
    **dict.fromkeys(
        ("limit_train_batches", "limit_val_batches"),
        (
            lambda value: value >= 0 if isinstance(value, int) else 0 <= value <= 1,
            "a number of batches, or a share of 0.0 to 1.0",
        ),
    ),
    "gradient_clip_val": (lambda value: 0 <= value < math.inf, "at least 0 (0 or null for no clipping)"),
    "log_every_n_steps": (lambda value: value >= 0, "at least 0"),
    "num_nodes": (lambda value: value >= 1, "at least 1"),
}


ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")


def check_accelerator(name: Any) -> None:
    """Refuse an accelerator that is unknown, or not on this machine."""
    if name not in ACCELERATORS:
        raise UserError(f"accelerator must be one of {one_of(ACCELERATORS)}, not {shown(repr(name))}")
    if not has_accelerator(name):
        valid = one_of(filter(has_accelerator, ACCELERATORS))
        raise UserError(f"accelerator {name} is not on this machine; valid are {valid}")


def has_accelerator(name: str) -> bool:
    """Whether this machine has one of the accelerators."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    return {"auto": True, "cpu": True, "gpu": cuda or mps, "cuda": cuda, "mps": mps}[name]


@dataclass(frozen=True)
class TrainerOptions:
    """Arguments of a Trainer that are fit for a run."""

    arguments: Mapping[str, Any]  # all of the Trainer, by name
    chooses_steps: bool  # nobody says how long to train, see `tsattn.training.length`
    chooses_validation: bool  # nobody says how often to validate

    @classmethod
    def of(cls, given: Mapping[str, Any], *, is_new: bool = True) -> TrainerOptions:
        """Check all arguments of a Trainer by name, and fill in the precision.

        Without a named precision, weights of an earlier training (`is_new` is false) have full precision.
        """
        _check(given)
        if is_new:
            check_packages(as_list(given["logger"]))
            if given["use_distributed_sampler"] is False:
                check_one_device(given, "use_distributed_sampler cannot be false: the loaders share windows out")
        arguments = dict(given)
        counts_epochs = given["max_epochs"] not in (None, -1)
        is_bounded = counts_epochs or given["max_steps"] not in (None, -1) or given["max_time"] is not None
        is_timed = given["val_check_interval"] is not None or given["check_val_every_n_epoch"] != 1
        if isinstance(given["val_check_interval"], int):
            arguments["check_val_every_n_epoch"] = None  # an interval in steps counts across epochs
        arguments["precision"] = chosen_precision(given, is_new=is_new)
        if given["max_epochs"] is None:
            arguments["max_epochs"] = -1
        arguments["use_distributed_sampler"] = False  # the loaders share windows out themselves
        # epochs that are asked for are validated one by one
        return cls(arguments, chooses_steps=not is_bounded, chooses_validation=not counts_epochs and not is_timed)

    def fresh(self) -> TrainerOptions:
        """Return these options for a further training, with copies of stateful callbacks, plugins and loggers."""
        stateful = ("callbacks", "plugins", "logger")
        return replace(self, arguments={**self.arguments, **{n: copy.deepcopy(self.arguments[n]) for n in stateful}})

    def without_files(self) -> TrainerOptions:
        """Return these options without loggers and without callbacks that write checkpoints."""
        from lightning.pytorch.callbacks import ModelCheckpoint

        callbacks = [one for one in as_list(self.arguments["callbacks"]) if not isinstance(one, ModelCheckpoint)]
        return replace(self, arguments={**self.arguments, "callbacks": callbacks, "logger": False})

    def with_max_steps(self, steps: int) -> TrainerOptions:
        """Return these options for a training of this number of optimizer steps."""
        length = {"max_epochs": -1, "max_time": None, "max_steps": steps}
        return replace(self, arguments={**self.arguments, **length}, chooses_steps=False)


def _check(given: Mapping[str, Any]) -> None:
    if isinstance(interval := given["val_check_interval"], str | dict | timedelta):
        raise UserError(
            f"--trainer.val_check_interval must be a number of steps or a share of an epoch, not {interval}"
        )
    for name, (is_valid, what) in _VALID.items():
        if given[name] is not None and not is_valid(given[name]):
            raise UserError(f"--trainer.{name} must be {what}, not {given[name]}")
    if given["limit_val_batches"] == 0:
        raise UserError("--trainer.limit_val_batches must be above 0: validation chooses the checkpoint")
    if given["max_time"] is not None and _is_no_time(given["max_time"]):
        raise UserError("--trainer.max_time must be above 0: there is nothing to train")
    for name, reason in _REFUSED.items():
        if given[name] not in (None, False, 0.0):
            raise UserError(f"--trainer.{name} cannot be set: {reason}")


def _is_no_time(time: Any) -> bool:
    if isinstance(time, str):  # the Trainer itself refuses another text
        return re.fullmatch(r"[0:]*0", time) is not None
    return not (timedelta(**time) if isinstance(time, dict) else time)


def chosen_precision(given: Mapping[str, Any], *, is_new: bool = True) -> Any:
    """Return the given precision, by default the devices' default; None if a plugin has its own."""
    if given["precision"] is not None:
        return given["precision"]
    for plugin in as_list(given["plugins"]):
        from lightning.pytorch.plugins import Precision

        path = plugin.get("class_path") if isinstance(plugin, Mapping) else getattr(plugin, "class_path", None)
        kind = pydoc.locate(path) if isinstance(path, str) else type(plugin)
        if isinstance(kind, type) and issubclass(kind, Precision):
            return None
    return default_precision(given["accelerator"], given["devices"]) if is_new else FULL_PRECISION


def default_precision(accelerator: Any, devices: Any) -> Literal["32-true", "bf16-mixed"]:
    """Return ``bf16-mixed`` if every device is a CUDA device of Hopper or newer, else ``32-true``.

    bfloat16 has the range of float32, so the loss is not scaled. Weights, sums and metrics stay as they are.
    """
    if accelerator not in ("auto", "gpu", "cuda") or not torch.cuda.is_available():
        return FULL_PRECISION
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.accelerators import CUDAAccelerator

    try:
        used = CUDAAccelerator.parse_devices(-1 if devices == "auto" else devices)
    except (MisconfigurationException, TypeError, ValueError):
        return FULL_PRECISION  # the Trainer says what is wrong with the devices
    is_new = used and all(torch.cuda.get_device_capability(device) >= _HOPPER for device in used)
    return "bf16-mixed" if is_new else FULL_PRECISION


def check_one_device(given: Mapping[str, Any], what: str, instead: str = "") -> None:
    """Refuse several devices, by a sentence that begins and ends with the given words."""
    if given["devices"] not in (1, "1", "auto", [0]) or given["num_nodes"] != 1:
        raise UserError(f"{what}: --trainer.devices must be 1, not {given['devices']}{instead}")


def build_trainer(arguments: Mapping[str, Any], callbacks: Iterable[Callback] = (), **replaced: Any) -> Trainer:
    """Build a Trainer of arguments, further callbacks, and arguments that replace others."""
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch import Trainer

    all_callbacks = [*as_list(arguments["callbacks"]), *callbacks]
    try:
        return Trainer(**{**arguments, "callbacks": all_callbacks, **replaced})
    except (ValueError, TypeError, ImportError, MisconfigurationException) as error:
        raise UserError(f"the trainer cannot be made: {one_line(error)}") from error


def as_list(value: Any) -> list[Any]:
    """Return one object, several, or none (None, True, False) as a list."""
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
