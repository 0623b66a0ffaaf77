"""Memory that stays with the process from one step of a training to the next.

The allocator of glibc gives large blocks back to the system when they are freed, and the system hands them out anew,
page by page, filled with zeros: up to a tenth of the time of a small network's step.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

__all__ = ["memory_kept"]

# numbers of parameters in malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

_KEPT = 2**30
# where glibc's own rule ends in a process that frees large blocks: DEFAULT_MMAP_THRESHOLD_MAX, and twice that
_USUAL_MMAP, _USUAL_TRIM = 2**25, 2**26

_SAID_BY_USERS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


@contextlib.contextmanager
def memory_kept() -> Iterator[None]:
    """Within it, up to 1 GiB that is freed is kept for what comes next; at its end what is free goes to the system.

    It does nothing without glibc, or where the environment says how its allocator is to work.
    """
    libc = None if _is_said() else _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(_TRIM_THRESHOLD, _KEPT)
    if not libc.mallopt(_MMAP_THRESHOLD, _KEPT):  # glibc before 2.35 refuses more than
        libc.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP)
    try:
        yield
    finally:
        libc.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
        libc.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP)
        libc.malloc_trim(0)


def _is_said() -> bool:
    return "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "") or any(name in os.environ for name in _SAID_BY_USERS)


def _glibc() -> ctypes.CDLL | None:
    """The library of C, if it has glibc's allocator."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version, libc.mallopt, libc.malloc_trim  # noqa: B018  # raises
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except (AttributeError, OSError, TypeError):  # TypeError: a system without a library of the whole program
        return None
    return libc
