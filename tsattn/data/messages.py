"""What is done to a table is said when a user gives it, not again when the same rows are read for another purpose."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar

__all__ = ["counted", "quiet"]

_is_quiet = ContextVar("_is_quiet", default=False)
logging.getLogger("tsattn").addFilter(lambda record: not _is_quiet.get())


@contextlib.contextmanager
def quiet(is_quiet: bool = True) -> Iterator[None]:
    """Without what the logger ``tsattn`` is told in this thread; with it again inside, if `is_quiet` is False."""
    token = _is_quiet.set(is_quiet)
    try:
        yield
    finally:
        _is_quiet.reset(token)


def counted(number: int, noun: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{number} {noun if number == 1 or noun.endswith('series') else noun + 's'}"
