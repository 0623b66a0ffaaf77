"""Tables as users have them: CSV and Parquet files, pandas, polars and pyarrow frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.interchange
import pyarrow.parquet

from tsattn.data.csv_cells import lines_of, read_cells
from tsattn.data.files import check_columns, check_file, first_line
from tsattn.errors import UserError

__all__ = ["as_frame", "read_table", "rows_of"]

_ID_COLUMNS = ("unique_id", "item_id")


def read_table(path: str | Path, *, id_column: str | None = None) -> pd.DataFrame:
    """The table in a file, nothing checked but that it is one.

    Cells of a CSV file that are empty or read ``NA``, ``nan``, ``null`` and the like are missing. Its series ids are
    kept as they are written (``NA`` and ``007`` are ids), unless all of them are plain whole numbers.

    Args:
        path: a ``.csv`` file (UTF-8, commas, a header), or a ``.parquet`` or ``.pq`` file.
        id_column: the column of series ids, if it is neither ``unique_id`` nor ``item_id``.

    Raises:
        UserError: naming the file and what is wrong with it, with the line where one is known.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise UserError(f"{path} is no table that can be read; valid are .csv, .parquet and .pq files")
    try:
        return _read_parquet(path) if suffix != ".csv" else read_cells(path, ids=(id_column, *_ID_COLUMNS))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or first_line(error)}") from error
    except MemoryError as error:
        raise UserError(f"{path} is too large for the memory of this machine, or is damaged") from error


def rows_of(path: str | Path) -> Callable[[int], str]:
    """What names a row (from 0) of the table in a file: by the line of a CSV file, else by its number."""
    path = Path(path)
    if path.suffix.lower() == ".csv":
        return lines_of(path)
    return lambda row: f"{path}, row {row + 1}"


def opened(
    table: Any, source: str, id_column: str | None = None
) -> tuple[pd.DataFrame, str, Callable[[int], str] | None]:
    """The frame of a frame or of the path of a file, what messages call it, and what names its rows.

    Raises:
        UserError: as `as_frame` and `read_table` do.
    """
    if isinstance(table, str | Path):
        path = Path(table).expanduser()
        return read_table(path, id_column=id_column), str(path), rows_of(path)
    return as_frame(table, source), source, None


def as_frame(table: Any, source: str) -> pd.DataFrame:
    """A pandas frame of any frame: polars, pyarrow and whatever else can hand out Arrow data or ``__dataframe__``.

    A pandas Series becomes a frame of one column, which is called ``y`` if the series has no name.

    Raises:
        UserError: for what is no frame.
    """
    if isinstance(table, pd.DataFrame):
        return table
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
            table = file.read()
    except (UserError, MemoryError):
        raise
    except Exception as error:  # damaged files make pyarrow raise many kinds
        raise UserError(f"{path} is not a Parquet file, or is damaged or cut: {first_line(error)}") from error
    return as_frame(table, str(path))
