"""The options of `tsattn attention`, and what they mean."""

from __future__ import annotations

import re
from typing import Any

from tsattn.errors import UserError

__all__ = ["OPTIONS", "add_options", "numbers"]

OPTIONS = {
    "--window": "number of a window of the part (default: the context of predict)",
    "--part": "part of --window: test or val",
    "--input": "look at the end of the series in this file",
    "--series": "series id (default: the first)",
    "--channel": "channel, where each is seen alone (default: the first)",
    "--layer": "layers to draw: all, or numbers as 0,2",
    "--head": "heads to draw: all, mean, or numbers as 0,2",
    "--level": "draw the scores of levels instead of probabilities: all, or numbers as 1,2",
    "--output": "figure (.png, .pdf, .svg) or table (.csv, .parquet) (default: in the run folder)",
    "--overwrite": "replace existing files",
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
