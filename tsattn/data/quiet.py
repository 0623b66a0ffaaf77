"""What is done to a table is logged when a user gives it, not again when the same rows are read for another purpose."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar

__all__ = ["quiet"]

_is_quiet = ContextVar("_is_quiet", default=False)
logging.getLogger("tsattn").addFilter(lambda record: not _is_quiet.get())


@contextlib.contextmanager
def quiet(is_quiet: bool = True) -> Iterator[None]:
    """Nothing is logged to ``tsattn`` from this thread inside; it is again inside that, if `is_quiet` is False."""
    token = _is_quiet.set(is_quiet)
    try:
        yield
    finally:
        _is_quiet.reset(token)
