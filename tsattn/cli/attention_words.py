"""The options of `tsattn attention`, and what they mean."""

from __future__ import annotations

import re
from typing import Any

from tsattn.errors import UserError

__all__ = ["OPTIONS", "add_options", "numbers"]

OPTIONS = {
    "--window": "of a part of the data, by its number (default: the context that predict forecasts from)",
    "--part": "that the window is of: test or val",
    "--input": "look at the end of the series in this file instead",
    "--series": "the id of a series (default: the first)",
    "--channel": "a channel, where attention sees each by itself (default: the first)",
    "--layer": "all, or numbers as 0,2",
    "--head": "all, mean of all in one map, or numbers as 0,2",
    "--level": "what levels add to the score, in the place of probabilities: all, or numbers as 1,2",
    "--output": "a .png, .pdf or .svg file, or a .parquet or .csv table (default: in the run folder)",
    "--overwrite": "replace the output if it exists",
}
"""Beside those of an experiment, by name, with what they do."""

_DEFAULTS: dict[str, Any] = {"--part": "test", "--layer": "all", "--head": "all"}


def add_options(parser: Any) -> None:
    """Add the options to the parser of an experiment."""
    for name, what in OPTIONS.items():
        if name == "--overwrite":
            parser.add_argument(name, action="store_true", help=what)
        else:
            kind = int | None if name == "--window" else str | None
            parser.add_argument(name, type=kind, default=_DEFAULTS.get(name), help=what)


def numbers(name: str, given: str | None) -> str | list[int] | None:
    """A word such as ``all`` as it is, and ``0,2`` as numbers.

    Raises:
        UserError: for anything else.
    """
    if given is None or given.isalpha():
        return given
    if not re.fullmatch(r"\d+(,\d+)*", given.replace(" ", "").strip("[]")):
        raise UserError(f"{name} must be all, or numbers as 0,2, not {given}")
    return [int(number) for number in given.strip("[]").split(",")]
