"""Arrays of rows in memory or in files: a large array made from an array in a file also lies in a file.

Shape letters: S series, C columns. `starts` is `(S + 1,)` int64: the first row of each series, then the number of rows.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tsattn.errors import UserError

_BLOCK = 1 << 22  # numbers of a mapped array to hold at a time: 32 MiB as float64
_LOOK_BACK = 64  # rows to search first for the last known value
_IN_MEMORY = 1 << 27  # bytes; a larger array made from a mapped array is written to a file


@dataclass(frozen=True)
class FileView:
    """File and layout of a mapped array, so that another process can map it."""

    path: str
    changed: tuple[int, int]  # size of the file, and its last change in nanoseconds since 1970-01-01
    offset: int  # bytes before the first number
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> FileView | None:
        """Describe an array in a file, or a view of it; None for other objects."""
        whole: Any = array
        while isinstance(getattr(whole, "base", None), np.ndarray):
            whole = whole.base
        if not isinstance(whole, np.memmap) or whole.filename is None:
            return None
        offset = whole.offset + array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        return cls(str(whole.filename), _state(whole.filename), offset, array.dtype.str, array.shape, array.strides)

    def open(self, mode: Literal["r", "c"] = "r") -> NDArray[Any]:
        """Map the array again, to read it (``r``) or to change it only in memory (``c``)."""
        if _state(self.path) != self.changed:
            raise UserError(f"{self.path} was rewritten while it was in use; start again")
        raw = np.memmap(self.path, np.uint8, mode)
        return np.ndarray.__new__(np.memmap, self.shape, np.dtype(self.dtype), raw, self.offset, self.strides)


def _state(path: str) -> tuple[int, int]:
    stat = Path(path).stat()
    return stat.st_size, stat.st_mtime_ns


def is_mapped(array: Any) -> bool:
    """Whether an array is a view of a file."""
    return isinstance(array, np.memmap)


def blocks_of(array: NDArray[Any], width: int | None = None, most: int | None = None) -> Iterator[slice]:
    """Yield ranges of rows with at most `most` numbers, `width` a row; a single range if the array is in memory."""
    width = int(np.prod(array.shape[1:])) if width is None else width
    step = max(1, (most or _BLOCK) // max(1, width) if is_mapped(array) else len(array))
    for first in range(0, len(array), step):
        yield slice(first, min(first + step, len(array)))


def made_rows(
    array: NDArray[Any],
    make: Callable[[slice], NDArray[Any]],
    row: tuple[int, ...] | None = None,
    dtype: Any = np.float64,
) -> NDArray[Any]:
    """Make an array with the rows of another, in memory or a file like it; `make` gives ranges of rows shaped `row`."""
    if not is_mapped(array):
        return make(slice(0, len(array)))
    result = room_like(array, (len(array), *(array.shape[1:] if row is None else row)), dtype)
    for rows in blocks_of(array):
        result[rows] = make(rows)
    return result


def columns_of(array: NDArray[Any], columns: list[int]) -> NDArray[Any]:
    """Columns of `(rows, n)`, in this order; the array itself if nothing changes."""
    if columns == list(range(array.shape[1])):
        return array
    return made_rows(array, lambda rows: np.asarray(array[rows][:, columns]), (len(columns),), array.dtype)


def runs_of(array: NDArray[Any], first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Concatenate runs of `lengths (n,)` rows that begin at `first (n,)`; the array itself if nothing changes."""
    ends = np.cumsum(lengths)
    rows = int(ends[-1]) if len(ends) else 0
    if rows == len(array) and np.array_equal(first, ends - lengths):
        return array
    if not is_mapped(array):
        return np.asarray(array[(first - (ends - lengths)).repeat(lengths) + np.arange(rows)])
    result = room_like(array, (rows, *array.shape[1:]), array.dtype)
    for begin, end, run in zip((ends - lengths).tolist(), ends.tolist(), first.tolist(), strict=True):
        part = array[run : run + end - begin]
        for block in blocks_of(part):
            result[begin + block.start : begin + block.stop] = part[block]
    return result


def room_like(array: NDArray[Any], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An empty array: in a temporary file if it is large and `array` is mapped, else in memory."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if not is_mapped(array) or size <= _IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.NamedTemporaryFile(prefix="tsattn-", suffix=".map", delete=False) as file:
        path = Path(file.name)
        try:
            # a full disk must raise here, as writing to a mapped array would crash
            os.posix_fallocate(file.fileno(), 0, size) if hasattr(os, "posix_fallocate") else file.truncate(size)
        except OSError as error:
            path.unlink()
            mend = "set the environment variable TMPDIR to a folder with room"
            raise UserError(f"{path.parent} has no room for {size / 1e9:.1f} GB; {mend}") from error
    mapped: Any = np.memmap(path, dtype, "r+", shape=shape)
    weakref.finalize(mapped._mmap, path.unlink, missing_ok=True)
    result: NDArray[Any] = mapped
    return result


def each_row(units: NDArray[Any], starts: NDArray[np.int64], rows: slice) -> NDArray[Any]:
    """Repeat values of each series, `(S, ...)`, for each row of a range."""
    return units.repeat(np.diff(starts.clip(rows.start, rows.stop)), axis=0)


def owners(starts: NDArray[np.int64], rows: slice) -> NDArray[np.int64]:
    """The number of the series of each row of a range."""
    return each_row(np.arange(len(starts) - 1), starts, rows)


def are_first(starts: NDArray[np.int64], ends: NDArray[np.int64], rows: slice) -> NDArray[np.bool_]:
    """Whether each row of a range is among the first `ends (S,)` rows of its series."""
    first: NDArray[np.bool_] = np.arange(rows.start, rows.stop) < each_row(starts[:-1] + ends, starts, rows)
    return first


class LastKnown:
    """Finds the last known value of each phase of a season (any value for season 1), block by block."""

    def __init__(self, starts: NDArray[np.int64], season: int = 1) -> None:
        self.starts = starts
        self.season = season
        self.carried: NDArray[np.int64] | int = -1  # last known rows before the block, (season, C) or a number for all
        self._any = LastKnown(starts) if season > 1 else None

    def __call__(self, observed: NDArray[np.bool_], rows: slice) -> NDArray[np.int64]:
        """`(n, C)`: the last observed row of the row's phase, else of any phase, else the row itself."""
        s, numbers, owner = self.season, np.arange(rows.start, rows.stop), owners(self.starts, rows)
        # row numbers in whole seasons, so that a column holds one phase; the first season holds the carried rows
        begin = s + rows.start % s
        known = np.full((-(-(begin + len(numbers)) // s) * s, observed.shape[1]), -1)
        known[:s] = self.carried
        known[begin : begin + len(numbers)] = np.where(observed, numbers[:, None], -1)
        by_place = known.reshape(-1, s, observed.shape[1])
        np.maximum.accumulate(by_place, axis=0, out=by_place)
        self.carried = by_place[-1].copy()
        found = known[begin : begin + len(numbers)]
        other = numbers[:, None] if self._any is None else self._any(observed, rows)
        return np.where(found < self.starts[owner][:, None], other, found)


def last_row_of_places(part: NDArray[np.float64], start: int, end: int, season: int) -> NDArray[np.int64]:
    """`(season, C)`: the last row of each phase from `start` to before `end` that has a number; -1 if none has."""
    found = np.full((season, part.shape[1]), -1)
    seasons = -(-_LOOK_BACK // season)
    while end > start and (found < 0).any():
        first = end - seasons * season
        begin = max(first, start)
        known = np.full((seasons * season, part.shape[1]), -1)
        known[begin - first :] = np.where(np.isnan(part[begin:end]), -1, np.arange(begin, end)[:, None])
        found = np.where(found < 0, known.reshape(seasons, season, -1).max(axis=0), found)
        end, seasons = first, 2 * seasons
    return found
