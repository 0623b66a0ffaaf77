"""A table on disk that is larger than memory, read a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from tsattn.data.columns import number_columns
from tsattn.data.files import first_line, sha256_of
from tsattn.data.roles import Roles, check_roles, find_roles
from tsattn.errors import UserError, shown

__all__ = ["FileState", "RowChunk", "TableSource", "plain", "target_values"]

_PARQUET, _ARROW = (".parquet", ".pq"), (".arrow", ".feather")
_CELLS = 1 << 20  # numbers in a batch: 8 MiB as float64, a few times that at work
_BUFFER = 1 << 20  # bytes of a column of a row group that are read at a time


@dataclass(frozen=True)
class FileState:
    """A file as it was: enough to see whether it is still the same.

    Attributes:
        name: its name in its folder.
        size: in bytes.
        changed: when it was last written, in nanoseconds since 1970-01-01.
    """

    name: str
    size: int
    changed: int


@dataclass(frozen=True)
class RowChunk:
    """Some rows of a table that follow each other.

    Attributes:
        start: number of the first one, from 0, counted over all files.
        table: the columns asked for, in that order.
        where: names a row, counted from 0 in `table`, in messages.
    """

    start: int
    table: pa.RecordBatch
    where: Callable[[int], str]


class TableSource:
    """A Parquet or Arrow file, or a folder of them that are read in the order of their names.

    Args:
        path: the file or folder.
        id_column: column of series ids; found by itself if named ``unique_id`` or ``item_id``. None of these: wide.
        time_column: column of time stamps or dates; found by itself by its usual names.
        target: the columns to forecast; found by themselves by their usual names, all other columns of a wide table.

    Attributes:
        roles: which column is what.
        tz: time zone of the time stamps, or None.
        num_rows: rows of all files.

    Raises:
        UserError: for what is no such table, or has no such columns.
    """

    def __init__(
        self,
        path: Path,
        id_column: str | None = None,
        time_column: str | None = None,
        target: Sequence[str] | None = None,
    ) -> None:
        self.path = path
        self.files = _files(path)
        schemas = [_schema(file) for file in self.files]
        schema = schemas[0]
        # pandas writes an index as a column: one of time stamps may be the time, any other is nothing
        hidden = [f.name for f in schema if f.name.startswith("__index_level_") and f.name != time_column]
        if id_column is None and time_column is None and len(hidden) == 1 and not {"date", "ds"} & {*schema.names}:
            time_column = hidden[0] if pa.types.is_timestamp(schema.field(hidden[0]).type) else None
        names = [name for name in schema.names if name == time_column or name not in hidden]
        repeated = pd.Index(names)
        if not repeated.is_unique:
            raise UserError(f"{path} has two columns {shown(repeated[repeated.duplicated()][0])}")
        empty = pd.DataFrame(columns=names)
        roles = find_roles(empty, str(path), id_column, time_column, None if target is None else tuple(target))
        self.roles: Roles = check_roles(empty, str(path), roles, every_target=target is None)
        for file, other in zip(self.files, schemas, strict=True):
            self._check_types(file, other, schema)
        self.tz: str | None = getattr(schema.field(self.roles.time).type, "tz", None)
        self.num_rows = sum(map(_num_rows, self.files))
        if not self.num_rows:
            raise UserError(f"{path} has no rows")

    def states(self) -> list[FileState]:
        """What the files are now."""
        stats = [(file.name, file.stat()) for file in self.files]
        return [FileState(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]

    def checksums(self) -> list[str]:
        """SHA-256 of each file; all of it is read."""
        return [sha256_of(file) for file in self.files]

    def stamps(self) -> Iterator[RowChunk]:
        """Ids, if the table is long, and time stamps of all rows."""
        return self._rows([self.roles.time] if self.roles.id is None else [self.roles.id, self.roles.time])

    def targets(self) -> Iterator[RowChunk]:
        """The targets of all rows."""
        return self._rows(list(self.roles.target))

    def _rows(self, columns: list[str]) -> Iterator[RowChunk]:
        size, start = max(1, _CELLS // len(columns)), 0
        for file in self.files:
            in_file = 0
            with _readable(file):
                for batch in _batches(file, columns, size):
                    yield RowChunk(start, batch.select(columns), _where(file, in_file))
                    start, in_file = start + len(batch), in_file + len(batch)

    def _check_types(self, file: Path, schema: pa.Schema, first: pa.Schema) -> None:
        """Refuse a file whose columns are not those of the first, and types that are read in memory only."""
        roles = self.roles
        for name in (*([] if roles.id is None else [roles.id]), roles.time, *roles.target):
            if name not in schema.names:
                raise UserError(f"{file} has no column {shown(name)}, which {self.files[0].name} has")
        kind = schema.field(roles.time).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise UserError(
                f"column {shown(roles.time)} of {file} holds {kind}; a mapped table needs time stamps or dates there "
                "(CSVDataModule also reads dates written as text, in memory)"
            )
        if getattr(kind, "tz", None) != getattr(first.field(roles.time).type, "tz", None):
            raise UserError(f"{file} has another time zone than {self.files[0].name}; all files need the same")
        if roles.id is not None:
            kind = _plain_type(schema.field(roles.id).type)
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise UserError(f"column {shown(roles.id)} of {file} holds {kind}; ids are texts or whole numbers")


def target_values(rows: RowChunk, channels: tuple[str, ...]) -> NDArray[np.float64]:
    """`(rows, C)` targets, NaN where missing.

    Raises:
        UserError: naming the row of a cell that is no finite number.
    """
    return number_columns(rows.table.to_pandas(), channels, rows.where, "target")


def plain(column: pa.Array) -> pa.Array:
    """A column without a dictionary."""
    return column.cast(_plain_type(column.type))


def _plain_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _files(path: Path) -> list[Path]:
    kinds = (*_PARQUET, *_ARROW)
    if not path.exists():
        raise UserError(f"{path} is not there: no such file or folder")
    if not path.is_dir():
        if path.suffix.lower() not in kinds:
            raise UserError(
                f"{path} cannot be mapped; valid are {', '.join(kinds)} files and folders of them (CSVDataModule "
                "reads .csv files)"
            )
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in kinds and file.is_file())
    if not files:
        raise UserError(f"the folder {path} has no {', '.join(kinds)} file")
    return files


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises into one sentence."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file} cannot be read, or is damaged or cut: {first_line(error)}") from error


def _schema(file: Path) -> pa.Schema:
    with _readable(file):
        if file.suffix.lower() in _PARQUET:
            return pa.parquet.read_schema(file)
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_file(source).schema


def _num_rows(file: Path) -> int:
    with _readable(file):
        if file.suffix.lower() in _PARQUET:
            return int(pa.parquet.read_metadata(file).num_rows)
        with pa.memory_map(str(file)) as source:
            reader = pa.ipc.open_file(source)
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


def _batches(file: Path, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
    if file.suffix.lower() in _PARQUET:
        # otherwise all columns of a row group, which may be the whole file, are read at once
        with pa.parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False) as parquet:
            yield from parquet.iter_batches(size, columns=columns)
        return
    with pa.memory_map(str(file)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield from (batch.slice(start, size) for start in range(0, len(batch), size))


def _where(file: Path, first: int) -> Callable[[int], str]:
    return lambda row: f"{file}, row {first + row + 1}"
