"""Runs of rows out of arrays in memory or mapped from files; what is large and mapped stays in files."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    *("are_first", "blocks_of", "columns_of", "is_mapped", "last_known_rows", "last_row_of_places"),
    *("made_rows", "owners", "run_blocks", "runs_of"),
]

_BLOCK = 1 << 22  # numbers of a mapped array that are held at once: 32 MiB as float64
_LOOK_BACK = 64  # rows that are looked at first for the last known value
_IN_MEMORY = 1 << 27  # bytes; what is taken out of a mapped array and is larger lies in a file, too


def is_mapped(array: Any) -> bool:
    """Whether an array is a view of a file."""
    return isinstance(array, np.memmap)


def run_blocks(starts: NDArray[np.int64], width: int, *, mapped: bool) -> Iterator[slice]:
    """The numbers of runs of rows in blocks: all in one of an array in memory, few at once of a mapped one.

    Args:
        starts: `(n + 1,)` first row of each run, and the number of rows.
        width: numbers in a row.
        mapped: whether the array is a view of a file.
    """
    n = len(starts) - 1
    if not mapped:
        yield slice(0, n)
        return
    rows, first = max(1, _BLOCK // max(1, width)), 0
    while first < n:
        end = max(first + 1, int(np.searchsorted(starts, starts[first] + rows, side="right")) - 1)
        yield slice(first, end)
        first = end


def runs_of(array: NDArray[Any], first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Runs of rows, end to end: those from the row `first (n,)` on, `lengths (n,)` of them.

    Returns:
        `(rows, ...)`; the array itself, if that is all of it.
    """
    ends = np.cumsum(lengths)
    rows = int(ends[-1]) if len(ends) else 0
    if rows == len(array) and np.array_equal(first, ends - lengths):
        return array
    if not is_mapped(array):
        return np.asarray(array[(first - (ends - lengths)).repeat(lengths) + np.arange(rows)])
    result = _room((rows, *array.shape[1:]), array.dtype)
    step = max(1, _BLOCK // max(1, int(np.prod(array.shape[1:]))))
    for begin, end, run in zip((ends - lengths).tolist(), ends.tolist(), first.tolist(), strict=True):
        for at in range(begin, end, step):
            until = min(at + step, end)
            result[at:until] = array[run + at - begin : run + until - begin]
    return _read_only(result)


def columns_of(array: NDArray[Any], columns: list[int]) -> NDArray[Any]:
    """Some columns of `(rows, n)`, in this order; the array itself, if these are all as they are."""
    if columns == list(range(array.shape[1])):
        return array
    if not is_mapped(array):
        return np.asarray(array[:, columns])
    result = _room((len(array), len(columns)), array.dtype)
    step = max(1, _BLOCK // array.shape[1])
    for at in range(0, len(array), step):
        result[at : at + step] = array[at : at + step][:, columns]
    return _read_only(result)


def blocks_of(array: NDArray[Any]) -> Iterator[slice]:
    """The rows of an array in blocks that may be held: all at once if it lies in memory."""
    step = max(1, _BLOCK // max(1, int(np.prod(array.shape[1:]))) if is_mapped(array) else len(array))
    for first in range(0, len(array), step):
        yield slice(first, min(first + step, len(array)))


def made_rows(array: NDArray[Any], make: Callable[[slice], NDArray[np.float64]]) -> NDArray[np.float64]:
    """An array of the same shape; `make` gives some of its rows. That of an array in a file lies in a file, too."""
    if not is_mapped(array):
        return make(slice(0, len(array)))
    result = _room(array.shape, np.dtype(np.float64))
    for rows in blocks_of(array):
        result[rows] = make(rows)
    return _read_only(result)


def owners(starts: NDArray[np.int64], rows: slice) -> NDArray[np.int64]:
    """The number of the run that each of these rows is in; `starts` as for `run_blocks`."""
    return np.searchsorted(starts, np.arange(rows.start, rows.stop), side="right") - 1


def are_first(starts: NDArray[np.int64], ends: NDArray[np.int64], rows: slice) -> NDArray[np.bool_]:
    """Whether each of these rows is among the first `ends (n,)` of its run; `starts` as for `run_blocks`."""
    first: NDArray[np.bool_] = np.arange(rows.start, rows.stop) < (starts[:-1] + ends)[owners(starts, rows)]
    return first


def _room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An empty array: in memory if it is small, else in a file that goes with it."""
    if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize <= _IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.NamedTemporaryFile(prefix="tsattn-", suffix=".map", delete=False) as file:
        path = Path(file.name)
    mapped = np.memmap(path, dtype, "w+", shape=shape)
    weakref.finalize(mapped._mmap, path.unlink, missing_ok=True)  # type: ignore[attr-defined]
    return mapped


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    if is_mapped(array):
        array.flags.writeable = False
    return array


def last_known_rows(observed: NDArray[np.bool_], starts: NDArray[np.int64], season: int) -> NDArray[np.int64]:
    """Of each row and channel the last row, up to itself, that is of the same place in the season and is observed.

    Where there is none in the series, it is the last observed row of any place, and else the row itself.

    Args:
        observed: `(rows, C)`.
        starts: `(S + 1,)` first row of each series, and `rows`.
        season: steps in a season; 1 for any place.

    Returns:
        `(rows, C)`.
    """
    rows, lengths = np.arange(len(observed)), np.diff(starts)
    # each series begins a season of its own, so that a column holds the rows of one place
    seasons = -(-lengths // season)
    shift = season * (np.cumsum(seasons) - seasons) - starts[:-1]
    known = np.full((int(seasons.sum()) * season, observed.shape[1]), -1)
    known[rows + shift.repeat(lengths)] = np.where(observed, rows[:, None], -1)
    by_place = known.reshape(-1, season, observed.shape[1])
    np.maximum.accumulate(by_place, axis=0, out=by_place)
    found: NDArray[np.int64] = known[rows + shift.repeat(lengths)]
    is_of_another = found < starts[:-1].repeat(lengths)[:, None]
    if not is_of_another.any():
        return found
    other = last_known_rows(observed, starts, 1) if season > 1 else rows[:, None]
    return np.where(is_of_another, other, found)


def last_row_of_places(part: NDArray[np.float64], start: int, end: int, season: int) -> NDArray[np.int64]:
    """Of each place in the season before `end` the last row from `start` on with a known number, `(s, C)`, else -1."""
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
