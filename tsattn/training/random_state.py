"""Torch's random generators for one at a time: they belong to the process, and dropout knows no other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

__all__ = ["own_random_state"]

_LOCK = threading.RLock()


@contextlib.contextmanager
def own_random_state(seed: int | None = None) -> Iterator[None]:
    """Draw from torch's generators as if nothing else did; afterwards their states are what they were.

    Other threads wait here for their turn, so that what each draws depends on its own seed alone.

    Args:
        seed: where the generators start; None leaves them where they are.
    """
    with _LOCK, torch.random.fork_rng():
        if seed is not None:
            torch.manual_seed(seed)
        yield
