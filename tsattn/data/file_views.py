"""Arrays that are views of files, as another process can open them."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.errors import UserError

__all__ = ["FileView"]


@dataclass(frozen=True)
class FileView:
    """Where the numbers of a mapped array lie: what another process needs to map them, too.

    Attributes:
        path: the file.
        changed: its size, and when it was last written, in nanoseconds since 1970-01-01.
        offset: bytes before the first number.
        dtype: of the numbers.
        shape: of the array.
        strides: bytes from one number to the next on each axis.
    """

    path: str
    changed: tuple[int, int]
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> FileView | None:
        """That of an array in a file, or of a view of one; None of anything else."""
        base: Any = array
        while base is not None and not isinstance(base, np.memmap):
            base = getattr(base, "base", None)
        if base is None or base.filename is None:
            return None
        raw: Any = base
        first = np.frombuffer(raw._mmap, np.uint8).__array_interface__["data"][0]
        begin = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY  # where the map of the file begins
        offset = begin + array.__array_interface__["data"][0] - first
        stat = Path(base.filename).stat()
        state = stat.st_size, stat.st_mtime_ns
        return cls(str(base.filename), state, offset, array.dtype.str, array.shape, array.strides)

    def open(self) -> NDArray[Any]:
        """The array.

        Raises:
            UserError: for a file that is no longer the same.
        """
        stat = Path(self.path).stat()
        if (stat.st_size, stat.st_mtime_ns) != self.changed:
            raise UserError(f"{self.path} was written anew while it was in use; start again")
        size = np.dtype(self.dtype).itemsize
        raw = np.memmap(self.path, np.uint8, "r")[self.offset :]
        numbers = raw[: len(raw) // size * size].view(self.dtype)
        return np.lib.stride_tricks.as_strided(numbers, self.shape, self.strides, subok=True, writeable=False)
