"""The signal by which a scheduler ends a job, as an interruption that leaves time to write."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["stopped_by_sigterm"]


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM, as a scheduler sends it at the end of the time, stops like Ctrl-C."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
