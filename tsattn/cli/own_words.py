"""Parsers of commands that take no experiment, and the types of their words."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from tsattn.errors import UserError
from tsattn.experiments.sentences import sentence

__all__ = ["SentenceParser", "at_least", "count", "names", "share"]


class SentenceParser(argparse.ArgumentParser):
    """Raises a `UserError` where argparse would print its usage and exit.

    Args:
        options: arguments of argparse's.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise one sentence."""
        refused = re.fullmatch(r"argument (--\w+): (must be .*)", message)
        if refused:
            raise UserError(f"{refused[1]} {refused[2]}")
        options = [name for action in self._actions for name in action.option_strings]
        raise UserError(sentence(message, options=options, data_sets=(), prog=self.prog))


def at_least(least: int) -> Callable[[str], int]:
    """The type of whole numbers from here on."""

    def whole(text: str) -> int:
        if not re.fullmatch(r"\d+", text.strip()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text}")
        return int(text)

    return whole


count = at_least(1)


def share(text: str) -> float:
    """A number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, not {text}")
    return value


def names(text: str) -> list[str]:
    """Names with commas between them."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"must be names with commas between them, not {text!r}")
    return list(dict.fromkeys(found))
