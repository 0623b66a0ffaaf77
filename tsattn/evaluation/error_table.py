"""The one table of errors that all scores are reductions of, in memory or in a Parquet file.

A row is a series, an origin and a channel. Shape letters: N rows, C channels, Q quantile levels, T horizon, K sums of a
window (`sum_names`), M sums of all (`total_names`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.data.files import check_file, first_line
from tsattn.errors import UserError, one_of, shown
from tsattn.evaluation.reductions import completed, group_scores, is_count, scores_of, total_names
from tsattn.evaluation.window_errors import WindowErrors, sum_names

__all__ = ["MEMORY_LIMIT", "METADATA", "ErrorRecorder", "ErrorTable"]

METADATA = b"tsattn.errors"
MEMORY_LIMIT = 50_000_000  # bytes of rows
_FORMAT = 1
_PART = 1 << 16  # rows that are taken together, as the row groups of a file
_KEYS = {"series": "unique_id", "origin": "origin"}  # the columns of rows that they may be summed by
_KEY_BYTES = 4 + 8 + 4


@dataclass(frozen=True)
class _Schema:
    """The columns of an error table: channels (C), quantile levels (Q), and whether origins are steps."""

    channels: tuple[str, ...]
    levels: tuple[float, ...]
    counts_steps: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns after the keys."""
        return (*sum_names(self.levels), "seasonal_error")

    @property
    def row_bytes(self) -> int:
        return _KEY_BYTES + 8 * len(self.names)

    def arrow(self, ids: pa.DataType) -> pa.Schema:
        """The schema of a file, which says what its columns are."""
        origin = pa.int64() if self.counts_steps else pa.timestamp("ms")
        keys = [("unique_id", ids), ("origin", origin), ("channel", pa.string())]
        text = json.dumps({"format": _FORMAT, **vars(self)})
        return pa.schema([*keys, *((name, pa.float64()) for name in self.names)], metadata={METADATA: text})

    @classmethod
    def of_arrow(cls, schema: pa.Schema) -> _Schema:
        """The inverse of `arrow`.

        Raises:
            ValueError: if these are not the columns of an error table, or those of a newer version.
        """
        described = json.loads((schema.metadata or {}).get(METADATA, b"{}"))
        if "format" not in described:
            raise ValueError("it is no error table")
        if described["format"] > _FORMAT:
            raise ValueError("it was written by a newer version of tsattn")
        found = cls(tuple(described["channels"]), tuple(described["levels"]), described["counts_steps"])
        if schema.names != found.arrow(pa.string()).names:
            raise ValueError("its columns are not those of an error table")
        return found

    def totals(self, rows: pa.Table, group: NDArray[np.int64] | None = None, num_groups: int = 1) -> Tensor:
        """Totals of rows, `(G * C, M)`, group by group.

        Args:
            rows: N.
            group: `(N,)` the number of the group of each row; None where all are one.
            num_groups: G.
        """
        names = _plain(rows.select(["channel"]))["channel"]
        channel = pc.index_in(names, value_set=pa.array(self.channels, pa.string()))
        if channel.null_count:
            raise ValueError("it has rows of a channel that it does not name")
        values = torch.from_numpy(np.stack([rows[name].to_numpy() for name in self.names], axis=1))
        C = len(self.channels)
        numbers = torch.from_numpy(channel.to_numpy().astype(np.int64) + (0 if group is None else C * group))
        added = completed(values[:, :-1], values[:, -1])
        return added.new_zeros(num_groups * C, added.shape[1]).index_add_(0, numbers, added)


class ErrorTable:
    """Errors of all windows, see `tsattn.evaluation.measure`.

    A row holds ``unique_id`` (the id of the series), ``origin`` (the last time stamp before the horizon, or a step),
    ``channel``, the sums over the horizon that `sum_names` lists, and ``seasonal_error``, what MASE divides by, NaN
    where it is unknown. An origin is exact to the second and by the clock of the data, as windows know it.

    Attributes:
        channels: the names of the C channels.
        levels: the Q quantile levels, none for point forecasts.
        path: the file that holds the rows; None if they are in memory or were not kept.
    """

    def __init__(
        self, schema: _Schema, totals: Tensor, num_rows: int, rows: list[pa.Table] | Path | None, steps: Tensor | None
    ) -> None:
        self.channels, self.levels = schema.channels, schema.levels
        self.path = rows if isinstance(rows, Path) else None
        self._schema = schema
        self._totals = totals  # (C, M)
        self._num_rows = num_rows
        self._rows = rows
        self._steps = steps  # (T, C, M)

    @classmethod
    def read(cls, path: str | Path) -> ErrorTable:
        """Read a file that `to_parquet` has written; its rows stay there until they are asked for.

        Raises:
            UserError: if it is not there, is no error table, is damaged, or is of a newer version.
        """
        path = Path(path)
        check_file(path)
        with _read(path):
            schema, count = _Schema.of_arrow(pq.read_schema(path)), pq.read_metadata(path).num_rows
        # one after another, as they were added when they were written: to the same last digit
        with _read(path):
            totals = reduce(torch.add, map(schema.totals, _parts(path)))
        return cls(schema, totals, count, path, None)

    def __len__(self) -> int:
        """The number of rows."""
        return self._num_rows

    @property
    def has_rows(self) -> bool:
        """Whether the rows can be asked for, not their totals alone."""
        return self._rows is not None

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take in memory."""
        return self._num_rows * self._schema.row_bytes

    def scores(self) -> dict[str, float]:
        """All scores by name, see `tsattn.evaluation.reductions`."""
        return scores_of(self._totals, self.levels)

    def totals_by(self, key: str) -> tuple[pd.Index[Any], Tensor]:
        """Sum the rows of each group; over all groups the sums add up to those of the table.

        Args:
            key: ``series``, ``origin``, ``channel``, or ``step`` of the horizon, 1 to T, at each of which every window
                counts.

        Returns:
            the G groups, series in the order of the rows, origins in that of time; and `(G, C, M)` totals, see
            `total_names`, with C = 1 by channel.

        Raises:
            UserError: for another key, and if the rows, or the totals by step, were not kept.
        """
        if key == "channel":
            return pd.Index(self.channels, name=key), self._totals[:, None]
        if key == "step":
            if self._steps is None:
                raise UserError("this table has no totals by step: measure with by_step")
            return pd.RangeIndex(1, len(self._steps) + 1, name=key), self._steps
        if key not in _KEYS:
            raise UserError(f"errors are summed by one of {one_of((*_KEYS, 'channel', 'step'))}, not {shown(key)}")
        numbers: dict[Any, int] = {}
        C, M = self._totals.shape
        totals = self._totals.new_zeros(0, C, M)
        for part in self._all_parts():
            codes, names = pd.factorize(_hashable(part[_KEYS[key]]))
            places = [numbers.setdefault(name, len(numbers)) for name in names.tolist()]
            added = self._schema.totals(part, codes, len(places)).view(-1, C, M)
            totals = torch.cat([totals, totals.new_zeros(len(numbers) - len(totals), C, M)])
            totals.index_add_(0, torch.tensor(places), added)
        names = pd.Index([*numbers], name=_KEYS[key], tupleize_cols=False)
        order = np.argsort(names, kind="stable") if key == "origin" else np.arange(len(names))
        return names[order], totals[torch.from_numpy(order)]

    def scores_by(self, key: str) -> pd.DataFrame:
        """The scores of each group of `totals_by`: a row a group, the columns of `scores`."""
        names, totals = self.totals_by(key)
        scores = pd.DataFrame(group_scores(totals, self.levels), index=names)
        return scores.astype({name: "int64" for name in scores if is_count(str(name))})

    def step_scores(self, score: str, channels: Sequence[int] | None = None) -> NDArray[np.float64]:
        """One of the scores at each step of the horizon, `(T,)`, of some of the channels, which are given by number."""
        _, totals = self.totals_by("step")
        return group_scores(totals if channels is None else totals[:, list(channels)], self.levels)[score]

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All rows.

        Args:
            columns: by name, those to give; all by default.

        Raises:
            UserError: if they were not kept.
        """
        parts = (part if columns is None else part.select(columns) for part in self._all_parts())
        frame: pd.DataFrame = pa.concat_tables(map(_plain, parts)).to_pandas()
        return frame

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows into a file, all or nothing.

        Raises:
            UserError: if they were not kept, or the file cannot be written.
        """
        path = Path(path)
        if self.path is not None and self.path.resolve() == path.resolve():
            return
        parts = self._all_parts()
        writer = _Writer(path)
        try:
            for part in parts:
                writer.write(part)
            writer.finish()
        finally:
            writer.discard()

    def _all_parts(self) -> Iterator[pa.Table]:
        if self._rows is None:
            raise UserError(
                f"the {self._num_rows} rows of this table were not kept, as they take {self.nbytes / 1e6:.0f} MB: "
                "measure with a path, and they are written into a Parquet file"
            )
        return _parts(self._rows) if isinstance(self._rows, Path) else iter(self._rows)


class ErrorRecorder:
    """Makes an error table of the errors of batches: in memory, or too large for that, in a file.

    Args:
        ids: the ids of the S series, which the windows number.
        channels: the names of the C channels.
        levels: the Q quantile levels, checked.
        path: the Parquet file that holds the rows at the end; above `limit` they are written there as they come, and
            are not kept in memory. None: above it their totals alone are kept.
        limit: bytes of rows that are kept in memory.
        counts_steps: whether the time of the windows counts steps.
    """

    def __init__(
        self,
        ids: Sequence[Any],
        channels: Sequence[str],
        levels: tuple[float, ...],
        *,
        path: str | Path | None = None,
        limit: int = MEMORY_LIMIT,
        counts_steps: bool = False,
    ) -> None:
        self._schema = _Schema(tuple(channels), levels, counts_steps)
        self._totals = torch.zeros(len(channels), len(total_names(levels)), dtype=torch.double)
        self._ids = _as_arrow(ids)
        self._path = None if path is None else Path(path)
        self._limit = limit
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # batches of the next part, on their device
        self._parts: list[pa.Table] | None = []
        self._num_rows = 0
        self._writer: _Writer | None = None
        self._steps: Tensor | None = None

    def __enter__(self) -> ErrorRecorder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.discard()

    def record(self, errors: WindowErrors, series: Tensor, origin: Tensor, seasonal_errors: Tensor) -> None:
        """Add a batch; it stays on its device until there are enough of them to be fetched together.

        Args:
            errors: of the B windows.
            series: `(B,)` int64 number of the series of each.
            origin: `(B,)` int64 last time stamp before each horizon, in seconds since 1970-01-01, or a step.
            seasonal_errors: `(B, C)` what MASE divides by, in original units, NaN where it is unknown.
        """
        values = torch.cat([errors.sums, seasonal_errors.to(errors.sums)[..., None]], -1)
        self._waiting.append((series, origin, values))
        if sum(len(batch[0]) for batch in self._waiting) * len(self._schema.channels) >= _PART:
            self._take_part()

    def record_steps(self, totals: Tensor) -> None:
        """Add the totals by step of a batch, `(T, C, M)`."""
        self._steps = totals if self._steps is None else self._steps + totals

    def finish(self) -> ErrorTable:
        """The table of all that was recorded.

        Raises:
            UserError: if that is no window, or no observed target; if the file cannot be written.
        """
        if self._waiting:
            self._take_part()
        if not self._num_rows:
            raise UserError("there are no windows to measure")
        if not self._totals[:, total_names(self._schema.levels).index("count")].any():
            raise UserError("there is no observed value to score")
        if self._path is not None and self._writer is None:
            self._start_file(self._path)
        rows: list[pa.Table] | Path | None = self._parts
        if self._writer is not None:
            self._writer.finish()
            rows = self._writer.path
        return ErrorTable(
            self._schema, self._totals, self._num_rows, rows, None if self._steps is None else self._steps.cpu()
        )

    def _take_part(self) -> None:
        """Fetch what waits, and put it where it belongs."""
        part = self._fetched()
        self._num_rows += len(part)
        self._totals = self._totals + self._schema.totals(part)
        if self._writer is not None:
            self._writer.write(part)
        elif self._parts is not None:
            self._parts.append(part)
            if self._num_rows * self._schema.row_bytes > self._limit:
                if self._path is not None:
                    self._start_file(self._path)
                self._parts = None

    def _start_file(self, path: Path) -> None:
        """Write what was kept so far."""
        self._writer = _Writer(path)
        for part in self._parts or ():
            self._writer.write(part)

    def _fetched(self) -> pa.Table:
        """A row for each window and channel, ids and channels by number."""
        columns = [torch.cat(parts).cpu() for parts in zip(*self._waiting, strict=True)]
        self._waiting = []
        series, origin = (column.numpy() for column in columns[:2])
        values = columns[2].double().flatten(0, 1).numpy()
        C, schema = len(self._schema.channels), self._schema.arrow(self._ids.type)
        channel = pa.DictionaryArray.from_arrays(
            np.tile(np.arange(C, dtype=np.int32), len(series)), pa.array(self._schema.channels, pa.string())
        )
        time = origin.astype(np.int64).repeat(C) * (1 if self._schema.counts_steps else 1000)
        keys = [
            pa.DictionaryArray.from_arrays(series.astype(np.int32).repeat(C), self._ids),
            pa.array(time).cast(schema.field("origin").type),
            channel,
        ]
        return pa.Table.from_arrays([*keys, *map(pa.array, values.T)], schema.names, metadata=schema.metadata)


class _Writer:
    """Writes a table beside its place, a part at a time, and moves it there when it is whole.

    Raises:
        UserError: here and later, if it cannot be written; what was there before is intact.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f"{path.name}.partial")
        with self._written():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("wb")
        self._writer: Any = None

    def write(self, part: pa.Table) -> None:
        """Add rows, of the same columns each time."""
        part = _plain(part)
        with self._written():
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._file, part.schema, compression="zstd")
            self._writer.write_table(part, row_group_size=len(part))

    def finish(self) -> None:
        """Put the file into its place."""
        with self._written():
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.replace(self.path)

    def discard(self) -> None:
        """Remove what was written; does nothing where it is finished."""
        if self._writer is not None:
            with suppress(OSError, ValueError):  # or its end would be written when it is collected as garbage
                self._writer.close()
        with suppress(OSError):  # what is left to be written does not fit a full disk, either
            self._file.close()
        self._partial.unlink(missing_ok=True)

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror or first_line(error)}") from error


@contextmanager
def _read(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:  # pyarrow's own are among them
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error


def _parts(path: Path) -> Iterator[pa.Table]:
    """The row groups of a file, as they were written."""
    with _read(path), pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number)


def _plain(rows: pa.Table) -> pa.Table:
    """Rows with ids and channels in place of their numbers."""
    for place, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            rows = rows.set_column(place, rows.schema.names[place], _decoded(column))
    return rows


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([part.dictionary.take(part.indices) for part in column.chunks], column.type.value_type)


def _hashable(column: pa.ChunkedArray) -> pd.Series[Any]:
    """A column of keys; ids of several parts, which Arrow has as lists, as tuples."""
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if pa.types.is_nested(column.type):
        return pd.Series([tuple(value) for value in column.to_pylist()], dtype=object)
    keys: pd.Series[Any] = column.to_pandas()
    return keys


def _as_arrow(ids: Sequence[Any]) -> pa.Array:
    """Ids of one type, as they are; others as text."""
    try:
        return pa.array(list(ids))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array(list(map(str, ids)))
