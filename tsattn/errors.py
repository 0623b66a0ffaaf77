"""The one exception for mistakes that a user can mend."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["UserError", "one_of"]


class UserError(ValueError):
    """Input that cannot be used: the message is one sentence that names the thing and says what is valid.

    The command line prints the message alone and exits with code 2; a library caller sees an ordinary
    ``ValueError``.
    """


def one_of(names: Iterable[str]) -> str:
    """``a, b, c``: the valid names, as error messages list them."""
    return ", ".join(names)
