"""The first pass over a table larger than memory: its ids are found, its time stamps checked and written.

Shape letters: S series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from tsattn.data.frequency import seconds
from tsattn.data.grid import OFF_GRID, Grid, usual_frequency
from tsattn.data.mapped.source import RowChunk, TableSource, plain
from tsattn.data.split_rule import ByCount, ByDate, ByShare
from tsattn.data.splits import Split
from tsattn.data.stamps import time_stamps
from tsattn.errors import UserError, shown

__all__ = ["SeriesKeys", "read_keys"]

_ADVICE = (
    "a mapped table needs the rows of a series together, in the order of time, with none missing (CSVDataModule and "
    "FrameDataModule sort rows and fill gaps, in memory)"
)
_HEAD = 100_000  # stamps that the frequency is found from


@dataclass(frozen=True)
class SeriesKeys:
    """What ids and time stamps say.

    Attributes:
        frequency: of all series.
        ids: of each series.
        starts: `(S + 1,)` int64 first row of each series, and the number of rows.
        last: `(S,)` int64 last time stamp of each in nanoseconds.
        before: `(S, 2)` int64 rows before the two dates of a split by date.
    """

    frequency: str
    ids: tuple[Any, ...]
    starts: NDArray[np.int64]
    last: NDArray[np.int64]
    before: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """`(S,)` rows of each series."""
        return np.diff(self.starts)

    def splits(self, rule: ByShare | ByCount | ByDate) -> list[Split]:
        """Where the parts of each series end."""
        if not isinstance(rule, ByDate):
            return [rule.split(range(length)) for length in self.lengths.tolist()]
        pairs = zip(self.before.tolist(), self.lengths.tolist(), strict=True)
        return [Split(val, test, length) for (val, test), length in pairs]

    def pieces(self, rows: RowChunk) -> tuple[slice, NDArray[np.int64], NDArray[np.int64]]:
        """The series that some rows belong to, where each begins among these rows, and how many of them it has."""
        ends = rows.start, rows.start + len(rows.table) - 1
        first, last = (np.searchsorted(self.starts, ends, side="right") - 1).tolist()
        begins = np.maximum(self.starts[first : last + 1] - rows.start, 0)
        return slice(first, last + 1), begins, np.diff(begins, append=len(rows.table))


def read_keys(
    source: TableSource,
    rule: ByShare | ByCount | ByDate,
    frequency: str | None,
    write: Callable[[NDArray[np.int64]], None],
) -> SeriesKeys:
    """Read ids and time stamps once.

    Args:
        source: the table.
        rule: whose dates, if it has any, rows are counted before.
        frequency: the one that all series must have; None: that of the longest series in the first batch.
        write: takes the time stamps as seconds, see `Series.time`, batch by batch.

    Raises:
        UserError: naming the row and the series, for stamps that are not regular and series in more than one piece.
    """
    dates: tuple[pd.Timestamp, ...] = ()
    if isinstance(rule, ByDate):
        dates = rule.dates_in(source.tz)
        rule.split(pd.DatetimeIndex([], tz=source.tz))  # refuses dates in the wrong order
    ids: dict[Any, None] = {}
    counts: list[int] = []
    last: list[int] = []
    before: list[list[int]] = []
    previous: pd.DatetimeIndex | None = None
    for rows in source.stamps():
        piece = _Piece(rows, source.roles.id, _stamps(rows, source.roles.time), previous, next(reversed(ids), None))
        piece.add_ids(ids)
        piece.check_order()
        if frequency is None:
            frequency = piece.usual_frequency(str(source.path))
        piece.check_grid(frequency)
        write(seconds(piece.stamps))
        more, stamps = piece.lengths.tolist(), piece.last_stamps().tolist()
        sums = [np.add.reduceat(np.asarray(piece.stamps < d), piece.begins, dtype=np.int64).tolist() for d in dates]
        earlier = [list(pair) for pair in zip(*sums, strict=True)] if sums else [[0, 0]] * len(more)
        if piece.goes_on:
            counts[-1] += more.pop(0)
            last[-1] = stamps.pop(0)
            before[-1] = [a + b for a, b in zip(before[-1], earlier.pop(0), strict=True)]
        counts += more
        last += stamps
        before += earlier
        previous = piece.stamps[-1:]
    assert frequency is not None
    return SeriesKeys(
        frequency=frequency,
        ids=tuple(ids),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        last=np.array(last, dtype=np.int64),
        before=np.array(before, dtype=np.int64),
    )


class _Piece:
    """Ids and stamps of a batch of rows, and the row before them.

    Args:
        rows: the batch.
        id_column: its ids; None for a wide table.
        stamps: its time stamps.
        previous: the last stamp before these; None at the start of the table.
        current: the series of that stamp.

    Attributes:
        goes_on: whether the first series began in an earlier batch.
        begins: where each series of the batch begins in it.
        lengths: how many rows of each there are in it.
    """

    def __init__(
        self,
        rows: RowChunk,
        id_column: str | None,
        stamps: pd.DatetimeIndex,
        previous: pd.DatetimeIndex | None,
        current: Any,
    ) -> None:
        self.rows, self.stamps, self.is_wide = rows, stamps, id_column is None
        self.names, self.begins = _runs(rows, id_column)
        self.lengths = np.diff(self.begins, append=len(stamps))
        self.goes_on = previous is not None and self.names[0] == current
        self._joined = stamps if previous is None else pd.DatetimeIndex(previous.append(stamps))
        self._head = len(self._joined) - len(stamps)
        self._follows = np.ones(len(self._joined), dtype=bool)  # whether a stamp comes after one of the same series
        self._follows[: self._head] = False
        self._follows[self.begins[self.goes_on :] + self._head] = False

    def add_ids(self, ids: dict[Any, None]) -> None:
        """Add the series that begin here to those before."""
        for name, begin in zip(self.names[self.goes_on :], self.begins[self.goes_on :].tolist(), strict=True):
            if name in ids:
                raise UserError(
                    f"{self.rows.where(begin)}: series {shown(name)} comes again after another one; {_ADVICE}"
                )
            ids[name] = None

    def check_order(self) -> None:
        """Refuse stamps that do not rise."""
        time = self._joined.as_unit("ns").asi8
        wrong = np.flatnonzero(self._follows & (np.diff(time, prepend=time[:1]) <= 0))
        if wrong.size:
            at = int(wrong[0])
            is_twice = time[at] == time[at - 1]
            raise self._refused(at, " is there twice" if is_twice else f" comes after {self._joined[at - 1]}")

    def usual_frequency(self, source: str) -> str:
        """The frequency of the longest series here."""
        longest = int(self.lengths.argmax())
        first, length = int(self.begins[longest]), int(self.lengths[longest])
        if length < 3:
            raise UserError(
                f"no series in the first {len(self.stamps)} rows of {source} has the 3 rows that it takes to see a "
                "frequency; give the frequency"
            )
        return usual_frequency(self.stamps[first : first + min(length, _HEAD)])

    def check_grid(self, frequency: str) -> None:
        """Refuse rising stamps that are not the next ones at a frequency."""
        coordinates, phases = Grid(self._joined, frequency).split(self._joined)
        is_next = (np.diff(coordinates, prepend=0) == 1) & (np.diff(phases, prepend=0) == 0)
        wrong = np.flatnonzero((self._follows & ~is_next) | (phases == OFF_GRID))
        if wrong.size:
            at = int(wrong[0])
            step = self._joined[at] - self._joined[at - 1] if self._follows[at] else None
            place = "" if step is None else f" comes {step} after the row before, which"
            raise self._refused(at, f"{place} does not fit frequency {frequency!r}")

    def last_stamps(self) -> NDArray[np.int64]:
        """The last stamp here of each series, in nanoseconds."""
        return self.stamps[self.begins + self.lengths - 1].as_unit("ns").asi8

    def _refused(self, at: int, what: str) -> UserError:
        row = at - self._head
        of = "" if self.is_wide else f" of series {shown(self.names[np.searchsorted(self.begins, row, 'right') - 1])}"
        return UserError(f"{self.rows.where(row)}: time stamp {self._joined[at]}{of}{what}; {_ADVICE}")


def _runs(rows: RowChunk, id_column: str | None) -> tuple[list[Any], NDArray[np.int64]]:
    """The ids in the order of rows, each once as long as it stays, and where they begin."""
    if id_column is None:
        return ["series"], np.zeros(1, np.int64)
    runs = pa.compute.run_end_encode(plain(rows.table.column(id_column)), run_end_type=pa.int64())
    names = runs.values.to_pylist()
    begins = np.concatenate([[0], runs.run_ends.to_numpy()[:-1]]).astype(np.int64)
    if None in names:
        raise UserError(f"{rows.where(int(begins[names.index(None)]))}: the id in column {shown(id_column)} is missing")
    return names, begins


def _stamps(rows: RowChunk, time_column: str) -> pd.DatetimeIndex:
    column = rows.table.column(time_column)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
    return time_stamps(pd.Series(column.to_pandas(), name=time_column), rows.where)
