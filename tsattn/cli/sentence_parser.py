"""A parser of commands that take no experiment."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from tsattn.errors import UserError
from tsattn.experiments.sentences import sentence

__all__ = ["SentenceParser"]


class SentenceParser(argparse.ArgumentParser):
    """Raises a `UserError` where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """One sentence instead of the usage and an exit."""
        refused = re.fullmatch(r"argument (--\w+): (must be .*)", message)
        if refused:
            raise UserError(f"{refused[1]} {refused[2]}")
        options = [name for action in self._actions for name in action.option_strings]
        raise UserError(sentence(message, options=options, data_sets=(), prog=self.prog))
