"""Files of every kind: whether one is there and the same, what is wrong with it, and arrays that are views of one."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.errors import UserError

__all__ = ["FileView", "check_columns", "check_file", "first_line", "sha256_of"]

_MAX_COLUMNS = 100_000


def check_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if path.is_dir() or not path.exists():
        raise UserError(f"{path} is {'a folder, not a file' if path.is_dir() else 'not there: no such file'}")


def check_columns(path: Path, count: int) -> None:
    """Refuse a table of so many columns that it can only be a mistake."""
    if count > _MAX_COLUMNS:
        raise UserError(
            f"{path} has {count} columns or more; at most {_MAX_COLUMNS} are read (write many series as rows of "
            "unique_id, ds, y)"
        )


def first_line(error: Exception) -> str:
    """What an error of another library says, as it can stand in a message of one line."""
    text = str(error).strip().splitlines()
    return (text[0][:200] if text and text[0].isprintable() else "") or type(error).__name__


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        """The view of an array in a file; None of any other array."""
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
        """The array."""
        stat = Path(self.path).stat()
        if (stat.st_size, stat.st_mtime_ns) != self.changed:
            raise UserError(f"{self.path} was written anew while it was in use; start again")
        size = np.dtype(self.dtype).itemsize
        raw = np.memmap(self.path, np.uint8, "r")[self.offset :]
        numbers = raw[: len(raw) // size * size].view(self.dtype)
        return np.lib.stride_tricks.as_strided(numbers, self.shape, self.strides, subok=True, writeable=False)
