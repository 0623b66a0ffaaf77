"""Tables as users have them: CSV and Parquet files, pandas, polars and pyarrow frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
import pyarrow.interchange
import pyarrow.parquet

from tsattn.data.csv_cells import lines_of, read_cells
from tsattn.data.files import check_columns, check_file, first_line
from tsattn.data.lazy_frames import is_lazy
from tsattn.data.roles import TIME_COLUMNS
from tsattn.data.text_format import TextFormat
from tsattn.errors import UserError

__all__ = ["ID_COLUMNS", "as_frame", "read_table", "rows_of"]

ID_COLUMNS = ("unique_id", "item_id")
_PLAIN = TextFormat()


def read_table(
    path: str | Path,
    *,
    id_column: str | None = None,
    time_column: str | None = None,
    text: TextFormat = _PLAIN,
) -> pd.DataFrame:
    """The table in a file, nothing checked but that it is one.

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
    dates = () if text.date_format is None else TIME_COLUMNS if time_column is None else (time_column,)
    try:
        if kind == "parquet":
            return _read_parquet(path)
        return read_cells(path, ids=(id_column, *ID_COLUMNS), dates=dates, text=text)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or first_line(error)}") from error
    except MemoryError as error:
        raise UserError(f"{path} is too large for the memory of this machine, or is damaged") from error


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
    """The frame of a frame or of the path of a file, what messages call it, and what names its rows (of a file).

    Raises:
        UserError: as `as_frame` and `read_table` do.
    """
    if isinstance(table, str | Path):
        path = _from_here(Path(table).expanduser())
        read = read_table(path, id_column=id_column, time_column=time_column, text=text)
        return read, str(path), rows_of(path, text)
    return as_frame(table, source), source, None


def _from_here(path: Path) -> Path:
    """The path from the working directory, if it is there: messages name it as the user did."""
    return path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path


def as_frame(table: Any, source: str) -> pd.DataFrame:
    """A pandas frame of any frame: polars, pyarrow and whatever else can hand out Arrow data or ``__dataframe__``.

    A pandas Series becomes a frame of one column, which is called ``y`` if the series has no name.

    Raises:
        UserError: for what is no frame.
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


def _read_parquet(path: Path) -> pd.DataFrame:
    check_file(path)
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty: it has 0 bytes")
    try:
        with pa.parquet.ParquetFile(path) as file:
            check_columns(path, file.metadata.num_columns)
            repeated = [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]
            if repeated:
                raise UserError(f"{path} has two columns {repeated[0][:60]!r}")
            table = file.read()
    except (UserError, MemoryError):
        raise
    except Exception as error:  # damaged files make pyarrow raise many kinds
        raise UserError(f"{path} is not a Parquet file, or is damaged or cut: {first_line(error)}") from error
    return as_frame(table, str(path))
