"""A table on disk that is larger than memory: CSV, Parquet and Arrow files, read some rows at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from tsattn.data.columns import id_columns
from tsattn.data.csv_cells import read_in_parts
from tsattn.data.files import check_columns, check_file, first_line, sha256_of
from tsattn.data.roles import TIME_COLUMNS, Roles, check_roles, find_roles, plain_frame, without_saved_index
from tsattn.data.table_options import TableOptions
from tsattn.data.tables import ID_COLUMNS, rows_of
from tsattn.data.text_format import TextFormat
from tsattn.errors import UserError, shown

__all__ = ["FileState", "RowChunk", "TableSource"]

_ARROW = (".arrow", ".feather")
_KINDS = (".parquet", ".pq", *_ARROW, ".csv", ".csv.gz")
_CELLS = 1 << 20  # cells in a batch: 8 MiB as float64, a few times that at work
_BUFFER = 1 << 20  # bytes of a column of a row group that are read at a time
_SMALL = (pa.float32(), pa.float16(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16())


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
        file: number of the file that they are in.
        end: rows of that file up to the last of these.
        start: number of the first one, from 0, counted over all files.
        frame: their cells: the columns that have a role.
        where: names a row, counted from 0 in `frame`, in messages.
    """

    file: int
    end: int
    start: int
    frame: pd.DataFrame
    where: Callable[[int], str]


class TableSource:
    """A CSV, Parquet or Arrow file, or a folder of such files that are read in the order of their names.

    Args:
        path: the file or folder.
        options: how it is read.

    Attributes:
        files: all of them.
        roles: which column is what.

    Raises:
        UserError: for what is no such table, or has no such columns.
    """

    def __init__(self, path: Path, options: TableOptions) -> None:
        self.path, self.options = path, options
        self.files = _files(path, options.text)
        head = next(self._cells(0, None, 1000), None)
        if head is None or not len(head):
            raise UserError(f"{path} has no rows")
        frame, time_column = plain_frame(head, str(path), options.id_column, options.time_column)
        roles = find_roles(frame, str(path), replace(options.columns, time_column=time_column))
        roles = replace(roles, weight=options.weight_column)
        if roles.is_wide and options.target is None:
            frame = without_saved_index(frame, roles, str(path))
        self.roles: Roles = check_roles(frame, str(path), roles, every_target=options.target is None)
        self._time_column = time_column

    def states(self) -> list[FileState]:
        """What the files are now.

        Raises:
            UserError: for one that is gone.
        """
        try:
            stats = [(file.name, file.stat()) for file in self.files]
        except OSError as error:
            raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error
        return [FileState(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]

    def checksums(self) -> list[str]:
        """SHA-256 of each file; all of it is read."""
        return [sha256_of(file) for file in self.files]

    def is_single(self, columns: Sequence[str]) -> bool:
        """Whether all of some columns are of types that single precision holds without a loss."""
        schemas = [self._schema(file) for file in self.files]
        return all(
            schema is not None and name in schema.names and schema.field(name).type in _SMALL
            for schema in schemas
            for name in columns
        )

    def chunks(
        self, columns: Sequence[str] | None = None, *, file: int = 0, done: int = 0, start: int = 0
    ) -> Iterator[RowChunk]:
        """The rows of all files, in order.

        Args:
            columns: those to read; all that have a role by default.
            file: the file to begin in.
            done: rows of it that are left out.
            start: the number of the row after these, counted over all files.

        Raises:
            UserError: for a file that cannot be read, or lacks a column.
        """
        roles = self.roles
        id_and_time = [*([] if roles.id is None else [roles.id]), roles.time]
        weight = [] if roles.weight is None else [roles.weight]
        names = [*id_and_time, *roles.target, *roles.past, *roles.future, *roles.static, *weight]
        wanted = names if columns is None else list(columns)
        size = max(1, _CELLS // len(wanted))
        for number in range(file, len(self.files)):
            path, in_file = self.files[number], 0
            for cells in self._cells(number, wanted, size):
                skipped = min(max(done - in_file, 0), len(cells)) if number == file else 0
                first, in_file = in_file + skipped, in_file + len(cells)
                if skipped == len(cells):
                    continue
                frame, _ = plain_frame(cells, str(path), roles.id, self._time_column)
                for name in wanted:
                    if name not in frame.columns:
                        raise UserError(f"{path} has no column {shown(name)}, which {self.files[0].name} has")
                frame = frame[wanted].iloc[skipped:].reset_index(drop=True)

                def where(row: int, number: int = number, first: int = first) -> str:
                    return self.row_name(number, first + row)

                yield RowChunk(number, in_file, start, frame, where)
                start += len(frame)

    def row_name(self, file: int, row: int) -> str:
        """What a row of a file, counted from 0, is called in messages."""
        return rows_of(self.files[file], self.options.text)(row)

    def kind_of(self, file: Path) -> str | None:
        """``csv``, ``parquet`` or ``arrow``, whichever a file is."""
        return _kind_of(file, self.options.text)

    def _schema(self, file: Path) -> pa.Schema | None:
        """The columns of a file; None of a CSV file, which has no types."""
        kind = self.kind_of(file)
        with _readable(file):
            if kind == "csv":
                return None
            if kind == "parquet":
                return pa.parquet.read_schema(file)
            with pa.memory_map(str(file)) as source:
                return pa.ipc.open_file(source).schema

    def _cells(self, number: int, columns: list[str] | None, rows: int) -> Iterator[pd.DataFrame]:
        """The cells of a file, some rows at a time, as they are read in memory; ids of CSV files are text."""
        path = self.files[number]
        if self.kind_of(path) == "csv":
            options = self.options
            times = TIME_COLUMNS if options.time_column is None else (options.time_column,)
            dates = () if options.text.date_format is None else times
            yield from read_in_parts(path, rows, ids=(options.id_column, *ID_COLUMNS), dates=dates, text=options.text)
            return
        schema = self._schema(path)
        assert schema is not None
        check_columns(path, len(schema.names))
        repeated = pd.Index(schema.names)
        if not repeated.is_unique:
            raise UserError(f"{path} has two columns {shown(repeated[repeated.duplicated()][0])}")
        ids = next(filter(None, (id_columns(one, schema.names) for one in (self.options.id_column, *ID_COLUMNS))), ())
        wanted = {*schema.names} if columns is None else {*columns, *ids, *_index_columns(schema)}
        kept = [name for name in schema.names if name in wanted]
        text_ids = [name for name in ids if _is_text(schema, name)]
        with _readable(path):
            for batch in _batches(path, self.kind_of(path) == "parquet", kept, rows, text_ids):
                table = pa.Table.from_batches([batch.select(kept)])
                yield _with_stamps(table).to_pandas()


def _kind_of(file: Path, text: TextFormat) -> str | None:
    """``csv``, ``parquet`` or ``arrow``, whichever a file is; None for a name that says none of them."""
    return text.kind_of(file) or ("arrow" if file.suffix.lower() in _ARROW else None)


def _files(path: Path, text: TextFormat) -> list[Path]:
    kinds = ", ".join(_KINDS)
    if not path.exists():
        raise UserError(f"{path} is not there: no such file or folder")
    if not path.is_dir():
        if _kind_of(path, text) is None:
            raise UserError(f"{path} cannot be converted; valid are {kinds} files and folders of them")
        check_file(path)
        return [path]
    files = sorted(file for file in path.iterdir() if _kind_of(file, text) is not None and file.is_file())
    if not files:
        raise UserError(f"the folder {path} has no {kinds} file")
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


def _index_columns(schema: pa.Schema) -> list[str]:
    """The columns that were the index of a frame of pandas."""
    saved = (schema.metadata or {}).get(b"pandas")
    columns = json.loads(saved)["index_columns"] if saved else []
    return [name for name in columns if isinstance(name, str)]


def _is_text(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _with_stamps(table: pa.Table) -> pa.Table:
    """A table whose dates are time stamps: as objects, pandas reads them one by one."""
    for number, column in enumerate(table.schema):
        if pa.types.is_date(column.type):
            kind = pa.timestamp("s" if pa.types.is_date32(column.type) else "ms")
            table = table.set_column(number, column.name, table.column(number).cast(kind))
    return table


def _batches(
    file: Path, is_parquet: bool, columns: list[str], size: int, text_ids: list[str]
) -> Iterator[pa.RecordBatch]:
    if is_parquet:
        # otherwise all columns of a row group, which may be the whole file, are read at once
        with pa.parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False, read_dictionary=text_ids) as parquet:
            yield from parquet.iter_batches(size, columns=columns)
        return
    with pa.memory_map(str(file)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield from (batch.slice(start, size) for start in range(0, len(batch), size))
