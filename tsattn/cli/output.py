"""Standard output, whose reader may be gone before the end, as with `| head`."""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["drop_output", "say"]


def say(text: str) -> None:
    """Print a line at once; once nobody reads it any more, say no more and go on, as work is not to be lost by that."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Let what is printed from now on, and what is left to be printed at the end, go nowhere."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:  # no file, or a closed one
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
