"""Arguments of the library API as plain data, or one sentence that says what is valid."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch

from tsattn.errors import UserError, one_of, shown
from tsattn.task import check_quantiles, rounded_level

__all__ = ["ACCELERATORS", "calibration_share", "check_accelerator", "folder_path", "has_accelerator", "levels"]
__all__ += ["positive_number", "share", "whole_number"]

ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")


def whole_number(name: str, value: Any, least: int = 1, most: int = sys.maxsize) -> int:
    """An int, of Python or numpy."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UserError(f"{name} must be a whole number, not {shown(repr(value))}")
    number = int(value)
    if number < least:
        raise UserError(f"{name} must be at least {least}, not {number}")
    if number > most:
        raise UserError(f"{name} must be at most {most}, not {shown(number)}")
    return number


def positive_number(name: str, value: Any) -> float:
    """A finite number above 0."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise UserError(f"{name} must be a number above 0, not {shown(repr(value))}")
    return number


def _number(value: Any) -> float:
    """NaN for what is no number; infinite for a whole number beyond the largest float."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    number = _number(value)
    if not 0 <= number <= 1:
        raise UserError(f"{name} must be a number from 0 to 1, not {shown(repr(value))}")
    return number


def calibration_share(value: Any) -> float | None:
    """The share of the rows for validation, the last of them, that calibrate alone.

    Args:
        value: of the option ``calibrate``.

    Returns:
        None where nothing is calibrated, 1 where all rows are used, to choose weights, too.
    """
    if isinstance(value, bool):
        return 1.0 if value else None
    number = _number(value)
    if not 0 < number < 1:
        raise UserError(
            "calibrate must be true, false, or the share of the rows for validation that calibrate alone, between 0 "
            f"and 1, not {shown(repr(value))}"
        )
    return number


def levels(quantiles: Any) -> tuple[float, ...]:
    """Quantile levels, rounded as `rounded_level` does; none for None."""
    given = () if quantiles is None else quantiles
    some: list[Any] = [*given] if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [None]
    if not all(isinstance(level, Real) and not isinstance(level, bool) for level in some):
        raise UserError(f"quantiles must be a list of numbers, such as [0.1, 0.5, 0.9], not {shown(repr(quantiles))}")
    return check_quantiles(map(rounded_level, some))


def check_accelerator(name: Any) -> None:
    """Refuse an accelerator that is unknown, or not on this machine."""
    if name not in ACCELERATORS:
        raise UserError(f"accelerator must be one of {one_of(ACCELERATORS)}, not {shown(repr(name))}")
    if not has_accelerator(name):
        there = one_of(other for other in ACCELERATORS if has_accelerator(other))
        raise UserError(f"accelerator {name} is not on this machine; valid are {there}")


def has_accelerator(name: Any) -> bool:
    """Whether this machine has one of the accelerators."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    there = {"auto": True, "cpu": True, "gpu": cuda or mps, "cuda": cuda, "mps": mps}
    return isinstance(name, str) and there.get(name, False)


def folder_path(folder: Any, name: str = "folder") -> Path:
    """A path, ``~`` being the user's home.

    Args:
        folder: the path of a folder or a file.
        name: which of the two, for the message.
    """
    if not isinstance(folder, str | os.PathLike):
        raise UserError(f"the {name} must be a path, not {shown(repr(folder))}")
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:  # of a user who has no home
        raise UserError(f"{folder} cannot be expanded: {error}") from error
