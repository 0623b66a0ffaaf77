"""The threads that PyTorch computes with, for a library that is not built against them."""

from __future__ import annotations

import ctypes
import functools

__all__ = ["openmp_team"]


@functools.cache
def openmp_team() -> int | None:
    """The address of `GOMP_parallel` of the OpenMP library that PyTorch has loaded; None where it has another.

    A pool of threads of the kernel's own would compete with those of PyTorch, which wait in a loop for some time.
    """
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError, TypeError):  # TypeError: a system without a library of the whole program
        return None
