"""What Lightning's Trainer would take, and fail over when a run folder is there already, or never."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tsattn.errors import UserError

__all__ = ["check_files", "check_seed", "check_trainer", "class_problem"]

MOST_SEED = 2**32 - 1  # of numpy

_MISSING = re.compile(r"Requirement '|No module named|pip install")


def check_seed(seed: Any) -> None:
    """Refuse a seed that a generator does not take; true (any) and false (none) are seeds, too."""
    if not isinstance(seed, bool) and seed is not None and not 0 <= seed <= MOST_SEED:
        raise UserError(f"--seed_everything must be from 0 to {MOST_SEED}, or true or false, not {seed}")


def check_trainer(trainer: Mapping[str, Any]) -> None:
    """Refuse arguments of a Trainer that lead to no training, or to none that is validated.

    Raises:
        UserError: naming the option and what is valid.
    """
    interval = trainer["val_check_interval"]
    if isinstance(interval, str | dict | timedelta):
        raise UserError(
            f"--trainer.val_check_interval must be a number of steps or a share of an epoch, not {interval}"
        )
    if interval is not None and not (interval >= 1 if isinstance(interval, int) else 0 < interval <= 1):
        raise UserError(
            f"--trainer.val_check_interval must be a number of steps, at least 1, or a share of an epoch above 0 and "
            f"at most 1.0, not {interval}"
        )
    every = trainer["check_val_every_n_epoch"]
    if every is not None and every < 1:
        raise UserError(f"--trainer.check_val_every_n_epoch must be at least 1, not {every}")
    for name in ("max_epochs", "max_steps"):
        value = trainer[name]
        if value is not None and value < -1:
            raise UserError(f"--trainer.{name} must be above 0, or -1 for no limit, not {value}")
    if trainer["max_time"] is not None and _seconds(trainer["max_time"]) == 0:
        raise UserError("--trainer.max_time must be above 0: there is nothing to train")
    for name in ("limit_train_batches", "limit_val_batches"):
        value = trainer[name]
        if (isinstance(value, float) and not 0 <= value <= 1) or (isinstance(value, int) and value < 0):
            raise UserError(f"--trainer.{name} must be a number of batches, or a share of 0.0 to 1.0, not {value}")
    if trainer["limit_val_batches"] == 0:
        raise UserError("--trainer.limit_val_batches must be above 0: validation chooses the checkpoint")
    clip = trainer["gradient_clip_val"]
    if clip is not None and not (clip >= 0 and math.isfinite(clip)):
        raise UserError(f"--trainer.gradient_clip_val must be at least 0 (0 or null for no clipping), not {clip}")
    for name in ("log_every_n_steps", "num_nodes"):
        value, least = trainer[name], int(name == "num_nodes")
        if value is not None and value < least:
            raise UserError(f"--trainer.{name} must be at least {least}, not {value}")


def check_files(trainer: Mapping[str, Any], has_folder: bool) -> None:
    """Refuse to write checkpoints where there is no folder, and none where there is one.

    Raises:
        UserError: saying what would do it.
    """
    if trainer["enable_checkpointing"] is True and not has_folder:
        raise UserError("--trainer.enable_checkpointing needs a folder for the run: name one")
    if trainer["enable_checkpointing"] is False and has_folder:
        raise UserError(
            "--trainer.enable_checkpointing cannot be false: the folder of a run has its checkpoints; leave the folder "
            "out, in Python, to write none"
        )


def class_problem(error: BaseException) -> str | None:
    """Why a class of the configuration, or what it needs, cannot be made; None for an error that says nothing of that.

    Args:
        error: what came of making it, raised from what it came from.
    """
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
    said = reason[1] or reason[2]
    is_missing = _MISSING.search(said) is not None  # where several classes were tried, what came of each is text alone
    return f"{name} {'needs a package that is not installed' if is_missing else 'cannot be made'}: {said}"


def _seconds(time: Any) -> float:
    """Of days, hours, minutes and seconds as the Trainer takes them; what it does not take is left to it to refuse."""
    if isinstance(time, str):
        return sum(int(part) for part in time.split(":")) if re.fullmatch(r"[\d:]*\d", time) else math.nan
    return timedelta(**time).total_seconds() if isinstance(time, dict) else time.total_seconds()
