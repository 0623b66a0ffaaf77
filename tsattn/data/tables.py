"""Tables as users have them: CSV and Parquet files, pandas, polars and pyarrow frames."""

from __future__ import annotations

import csv
import re
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.interchange
import pyarrow.parquet

from tsattn.data.frame import undecodable
from tsattn.errors import UserError

__all__ = ["as_frame", "read_table"]

_MAX_COLUMNS = 100_000
_READ_AHEAD = 1 << 24  # characters of a header line that are looked at
# the cells that pandas takes for missing, of which some are good ids
_MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
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
        if path.is_dir() or not path.exists():
            raise UserError(f"{path} is {'a folder, not a file' if path.is_dir() else 'not there: no such file'}")
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: it has 0 bytes")
        return _read_parquet(path) if suffix != ".csv" else _read_csv(path, id_column)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or _first_line(error)}") from error
    except MemoryError as error:
        raise UserError(f"{path} is too large for the memory of this machine, or is damaged") from error


def as_frame(table: Any, source: str) -> pd.DataFrame:
    """A pandas frame of any frame: polars, pyarrow and whatever else can hand out Arrow data or ``__dataframe__``.

    Raises:
        UserError: for what is no frame.
    """
    if isinstance(table, pd.DataFrame):
        return table
    frame: pd.DataFrame
    try:
        if hasattr(table, "__arrow_c_stream__"):
            frame = pa.table(table).to_pandas()
            return frame
        if hasattr(table, "__dataframe__"):
            frame = pa.interchange.from_dataframe(table).to_pandas()
            return frame
    except Exception as error:  # whatever the foreign library raises
        raise UserError(f"{source} cannot be turned into a pandas frame: {_first_line(error)}") from error
    raise UserError(
        f"{source} is a {type(table).__name__}; valid are pandas, polars and pyarrow frames and any other with "
        "__arrow_c_stream__ or __dataframe__ (read files with read_table)"
    )


def _read_csv(path: Path, id_column: str | None) -> pd.DataFrame:
    try:
        names = _header(path)
        _check_columns(path, len(names))
        repeated = pd.Index(names)
        if not repeated.is_unique:
            raise UserError(f"{path} has two columns {repeated[repeated.duplicated()][0][:60]!r}")
        ids: list[Any] = [name for name in (id_column, *_ID_COLUMNS) if name in names][:1]
        missing = {
            name or f"Unnamed: {i}": [] if name in ids else _MISSING  # as pandas calls columns without a name
            for i, name in enumerate(names)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path,
                index_col=False,
                compression=None,
                low_memory=False,
                encoding="utf-8-sig",
                dtype=dict.fromkeys(ids, "object"),
                keep_default_na=not ids,
                na_values=missing if ids else None,
            )
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({undecodable(path)})") from error
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty; it needs a header and rows") from error
    except pd.errors.ParserWarning as error:
        raise UserError(f"{path} is not a regular CSV table: its rows have more fields than its header") from error
    except (ValueError, OverflowError, csv.Error) as error:
        reason = _first_line(error).split("C error: ")[-1]
        raise UserError(f"{path} is not a regular CSV table: {reason}") from error
    for name in ids:
        table[name] = _ids(table[name])
    return table


def _header(path: Path) -> list[str]:
    """The column names; none for a file of blank lines."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        # a line of many megabytes is no header: only its beginning is counted
        for names in csv.reader(iter(lambda: file.readline(_READ_AHEAD), "")):
            if len(names) > 1 or any(name.strip() for name in names):
                return names
    return []


def _ids(texts: pd.Series) -> pd.Series:
    """Ids as text, or as whole numbers if they are written exactly so; empty ones are missing."""
    known = texts[texts != ""].unique()
    if len(known) and all(re.fullmatch(r"0|-?[1-9]\d{0,17}", text, re.ASCII) for text in known):
        numbers = pd.to_numeric(texts)
        return numbers.astype("int64") if numbers.notna().all() else numbers.astype("Int64")
    return texts.where(texts != "")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        with pa.parquet.ParquetFile(path) as file:
            _check_columns(path, file.metadata.num_columns)
            table = file.read()
    except (UserError, MemoryError):
        raise
    except Exception as error:  # damaged files make pyarrow raise many kinds
        raise UserError(f"{path} is not a Parquet file, or is damaged or cut: {_first_line(error)}") from error
    return as_frame(table, str(path))


def _check_columns(path: Path, count: int) -> None:
    if count > _MAX_COLUMNS:
        raise UserError(
            f"{path} has {count} columns or more; at most {_MAX_COLUMNS} are read (write many series as rows of "
            "unique_id, ds, y)"
        )


def _first_line(error: Exception) -> str:
    """What an error of another library says, as it can stand in a message of one line."""
    text = str(error).strip().splitlines()
    return (text[0][:200] if text and text[0].isprintable() else "") or type(error).__name__
