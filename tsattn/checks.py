"""Arguments of the library API as plain data, or one sentence that says what is valid."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from tsattn.errors import UserError, one_of, shown
from tsattn.task import check_quantiles, rounded_level

ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def positive_number(name: str, value: Any) -> float:
    """Check that a number is finite and above 0."""
    if not _is_number(value) or not 0 < value <= sys.float_info.max:
        raise UserError(f"{name} must be a number above 0, not {shown(repr(value))}")
    return float(value)


def calibration_share(value: Any) -> float | None:
    """Return the share of validation rows that calibrate alone; None for none, 1 if all rows also choose weights."""
    if isinstance(value, bool):
        return 1.0 if value else None
    if not _is_number(value) or not 0 < value < 1:
        what = "true, false, or the share of the rows for validation that calibrate alone, between 0 and 1"
        raise UserError(f"calibrate must be {what}, not {shown(repr(value))}")
    return float(value)


def levels(quantiles: Any) -> tuple[float, ...]:
    """Return quantile levels, rounded by `rounded_level`; none for None."""
    given = () if quantiles is None else quantiles
    some: list[Any] = [*given] if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [None]
    if not all(map(_is_number, some)):
        raise UserError(f"quantiles must be a list of numbers, such as [0.1, 0.5, 0.9], not {shown(repr(quantiles))}")
    return check_quantiles(map(rounded_level, some))


def check_accelerator(name: Any) -> None:
    """Refuse an accelerator that is unknown, or not on this machine."""
    if name not in ACCELERATORS:
        raise UserError(f"accelerator must be one of {one_of(ACCELERATORS)}, not {shown(repr(name))}")
    if not has_accelerator(name):
        there = one_of(filter(has_accelerator, ACCELERATORS))
        raise UserError(f"accelerator {name} is not on this machine; valid are {there}")


def has_accelerator(name: str) -> bool:
    """Whether this machine has one of the accelerators."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    return {"auto": True, "cpu": True, "gpu": cuda or mps, "cuda": cuda, "mps": mps}[name]


def folder_path(folder: Any, name: str = "folder") -> Path:
    """Return a path with ``~`` expanded; `name` says in messages what it is."""
    if not isinstance(folder, str | os.PathLike):
        raise UserError(f"the {name} must be a path, not {shown(repr(folder))}")
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:  # of a user who has no home
        raise UserError(f"{folder} cannot be expanded: {error}") from error
