"""The random generators of the process for one at a time: dropout and callbacks know no others."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import numpy as np
import torch

__all__ = ["own_random_state"]

_LOCK = threading.RLock()


@contextlib.contextmanager
def own_random_state(seed: int | None = None) -> Iterator[None]:
    """Draw from the generators of torch, numpy and Python as if nothing else did; then their states are what they were.

    Other threads wait here for their turn, so that what each draws depends on its own seed alone.

    Args:
        seed: where the generators start, below 2^32; None leaves them where they are.
    """
    with _LOCK, torch.random.fork_rng():
        python, array = random.getstate(), np.random.get_state()  # noqa: NPY002  # what callbacks of users draw from
        if seed is not None:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)  # noqa: NPY002
