"""Tables as users have them: CSV, Parquet and Arrow files, whole or some rows at a time, and frames of any library."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
import pyarrow.interchange
import pyarrow.ipc
import pyarrow.parquet

from tsattn.data.columns import id_columns
from tsattn.data.csv_cells import lines_of, read_cells, read_in_parts
from tsattn.data.files import check_columns, check_file, first_line
from tsattn.data.roles import ID_COLUMNS, TIME_COLUMNS, is_lazy
from tsattn.data.table_options import TableOptions, TextFormat
from tsattn.errors import UserError, shown

__all__ = ["TABLE_KINDS", "as_frame", "opened", "read_table", "rows_of", "schema_of", "table_kind", "table_parts"]

TABLE_KINDS = (".parquet", ".pq", ".arrow", ".feather", ".csv", ".csv.gz")
"""Suffixes of files that may be larger than memory."""

_PLAIN = TextFormat()
_BUFFER = 1 << 20  # bytes of a column of a row group that are read at a time


def read_table(
    path: str | Path,
    *,
    id_column: str | None = None,
    time_column: str | None = None,
    text: TextFormat = _PLAIN,
) -> pd.DataFrame:
    """Read the table in a file, nothing checked but that it is one.

    Cells of a CSV file that are empty or read ``NA``, ``nan``, ``null`` and the like are missing. Its series ids are
    kept as they are written (``NA`` and ``007`` are ids), unless all of them are plain whole numbers; so are its dates,
    where their format is given.

    Args:
        path: a ``.csv`` or ``.csv.gz`` file with a header, or a ``.parquet`` or ``.pq`` file.
        id_column: the column of series ids, if it is neither ``unique_id`` nor ``item_id``.
        time_column: the column of time stamps, if it is not ``date``, ``ds`` or ``timestamp``.
        text: how a CSV file is written: by default with commas, decimal points, in UTF-8.

    Raises:
        UserError: naming the file and what is wrong with it, with the line where one is known.
    """
    path = Path(path)
    kind = text.kind_of(path)
    check_file(path)
    if kind is None:
        raise UserError(
            f"{path} is no table that can be read; valid are .csv, .csv.gz, .parquet and .pq files, and others with "
            "`--data.format csv` (or parquet)"
        )
    try:
        if kind == "csv":
            return read_cells(path, ids=(id_column, *ID_COLUMNS), dates=_dates(time_column, text), text=text)
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: it has 0 bytes")
        with pa.parquet.ParquetFile(path) as file:
            _check_names(path, file.schema_arrow.names)
            table = file.read()
    except (UserError, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is too large for the memory of this machine, or is damaged") from error
    except Exception as error:  # damaged files make pyarrow raise many kinds
        if isinstance(error, OSError) and error.strerror:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        raise UserError(f"{path} is not a Parquet file, or is damaged or cut: {first_line(error)}") from error
    return as_frame(table, str(path))


def _dates(time_column: str | None, text: TextFormat) -> tuple[str, ...]:
    """The columns of a CSV file that are kept as they are written."""
    return () if text.date_format is None else TIME_COLUMNS if time_column is None else (time_column,)


def _check_names(path: Path, names: list[str]) -> None:
    check_columns(path, len(names))
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise UserError(f"{path} has two columns {shown(repr(repeated[0]))}")


def rows_of(path: str | Path, text: TextFormat = _PLAIN) -> Callable[[int], str]:
    """What names a row (from 0) of the table in a file: by the line of a CSV file, else by its number."""
    path = Path(path)
    if text.kind_of(path) == "csv":
        return lines_of(path, text=text)
    return lambda row: f"{path}, row {row + 1}"


def opened(
    table: Any,
    source: str,
    id_column: str | None = None,
    time_column: str | None = None,
    text: TextFormat = _PLAIN,
) -> tuple[pd.DataFrame, str, Callable[[int], str] | None]:
    """Open a frame or the path of a file: the frame, what messages call it, and what names its rows (of a file)."""
    if not isinstance(table, str | Path):
        return as_frame(table, source), source, None
    path = Path(table).expanduser()
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())  # messages name it as the user did
    read = read_table(path, id_column=id_column, time_column=time_column, text=text)
    return read, str(path), rows_of(path, text)


def as_frame(table: Any, source: str) -> pd.DataFrame:
    """Turn any frame into a pandas frame: polars, pyarrow and whatever hands out Arrow data or ``__dataframe__``.

    A pandas Series becomes a frame of one column, which is called ``y`` if the series has no name.
    """
    if isinstance(table, pd.DataFrame):
        return table
    if is_lazy(table):
        return as_frame(nw.from_native(table).collect().to_native(), source)
    if isinstance(table, pd.Series):
        return table.to_frame("y" if table.name is None else table.name)
    frame: pd.DataFrame
    try:
        if hasattr(table, "__arrow_c_stream__"):
            frame = pa.table(table).to_pandas()
            return frame
        if hasattr(table, "__dataframe__"):
            frame = pa.interchange.from_dataframe(table).to_pandas()
            return frame
    except Exception as error:  # whatever the foreign library raises
        raise UserError(f"{source} cannot be turned into a pandas frame: {first_line(error)}") from error
    raise UserError(
        f"{source} is a {type(table).__name__}; valid are pandas, polars and pyarrow frames and any other with "
        "__arrow_c_stream__ or __dataframe__ (read files with read_table)"
    )


def table_kind(file: Path, text: TextFormat) -> str | None:
    """``csv``, ``parquet`` or ``arrow``, whichever a file is; None for a name that says none of them."""
    return text.kind_of(file) or ("arrow" if file.suffix.lower() in (".arrow", ".feather") else None)


def schema_of(file: Path, text: TextFormat) -> pa.Schema | None:
    """The columns of a file; None of a CSV file, which has no types."""
    kind = table_kind(file, text)
    with _readable(file):
        if kind == "csv":
            return None
        if kind == "parquet":
            return pa.parquet.read_schema(file)
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_file(source).schema


def table_parts(path: Path, columns: list[str] | None, rows: int, options: TableOptions) -> Iterator[pd.DataFrame]:
    """Read a file some rows at a time, cells as `read_table` reads them, but for the ids of CSV files: they are text.

    Args:
        path: the file.
        columns: those to read, of a CSV file all; None for all.
        rows: how many at a time, at most.
        options: how it is read.
    """
    names, text = (options.id_column, *ID_COLUMNS), options.text
    schema = schema_of(path, text)
    if schema is None:
        yield from read_in_parts(path, rows, ids=names, dates=_dates(options.time_column, text), text=text)
        return
    _check_names(path, schema.names)
    ids = next(filter(None, (id_columns(name, schema.names) for name in names)), ())
    saved = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    wanted = [*schema.names] if columns is None else [*columns, *ids, *(name for name in saved if name in schema.names)]
    kept = [name for name in schema.names if name in wanted]
    with _readable(path):
        for batch in _batches(path, table_kind(path, text) == "parquet", kept, rows, ids, schema):
            table = pa.Table.from_batches([batch.select(kept)])
            for number, column in enumerate(table.schema):
                if pa.types.is_date(column.type):  # as objects, pandas would read them one by one
                    stamps = table.column(number).cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
                    table = table.set_column(number, column.name, stamps)
            yield table.to_pandas()


def _batches(
    file: Path, is_parquet: bool, columns: list[str], size: int, ids: tuple[str, ...], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if not is_parquet:
        with pa.memory_map(str(file)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                yield from (batch.slice(start, size) for start in range(0, len(batch), size))
        return
    texts = [name for name in ids if schema.field(name).type in (pa.string(), pa.large_string())]
    # unbuffered, all columns of a row group, which may be the whole file, are read at once
    with pa.parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False, read_dictionary=texts) as parquet:
        yield from parquet.iter_batches(size, columns=columns)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises into one sentence."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file} cannot be read, or is damaged or cut: {first_line(error)}") from error
