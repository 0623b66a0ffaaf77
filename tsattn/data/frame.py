"""Reading a wide table of series into a checked frame: one row a time stamp, one float column a channel."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from tsattn.errors import UserError, one_of, shown

__all__ = ["check_frame", "read_csv", "read_numbers", "undecodable"]


def read_csv(
    path: str | Path,
    *,
    date_column: str = "date",
    allow_missing: bool = False,
    columns: Sequence[str] = (),
    grid: str | None = None,
) -> pd.DataFrame:
    """A wide CSV file as a frame.

    Args:
        path: a UTF-8 CSV file with a header: one column of time stamps, every other column a channel of numbers.
        date_column: the column of time stamps; they must rise from row to row.
        allow_missing: whether cells may be empty.
        columns: the channels to read; all of them by default.
        grid: a frequency, for a file that is known to have wrong time stamps: its rows are taken in file order, one
            step each, from the first time stamp on. By default time stamps are what the file says.

    Returns:
        float64 columns over a DatetimeIndex named as the date column.

    Raises:
        UserError: naming the file, the line and what is wrong with it.
    """
    path = Path(path)
    table = _table(path)
    for name in (date_column, *columns):
        if name not in table.columns:
            what = f"date column {name!r}" if name == date_column else f"column {name!r}"
            raise UserError(f"{path} has no {what}; its columns are {one_of(map(shown, table.columns[:12]))}")
    values = table[list(columns)] if columns else table.drop(columns=date_column)
    if values.empty:
        raise UserError(f"{path} has no {'rows' if values.columns.size else 'columns of numbers'}")
    frame = pd.DataFrame({str(name): _numbers(values[name], path) for name in values.columns})
    stamps = _time_stamps(table[date_column], path)
    if grid is not None:
        stamps = pd.date_range(stamps[0], periods=len(stamps), freq=grid)
    frame.index = stamps.rename(date_column)
    check_frame(frame, str(path), allow_missing=allow_missing, line=lambda row: _line(path, row))
    return frame


def read_numbers(path: str | Path, *, first: str, frequency: str) -> pd.DataFrame:
    """A CSV file of numbers alone, without header and time stamps, as a frame.

    Args:
        path: the file.
        first: the time stamp of its first row.
        frequency: of its rows.

    Returns:
        float64 columns ``0``, ``1``, ... over a DatetimeIndex named ``date``.

    Raises:
        UserError: naming the file, the line and what is wrong with it.
    """
    path = Path(path)
    table = _table(path, header=None)
    frame = pd.DataFrame({str(name): _numbers(table[name], path, header_rows=0) for name in table.columns})
    frame.index = pd.date_range(first, periods=len(frame), freq=frequency, name="date")
    check_frame(frame, str(path), allow_missing=False, line=lambda row: _line(path, row, header_rows=0))
    return frame


def _table(path: Path, header: Literal["infer"] | None = "infer") -> pd.DataFrame:
    """The cells of a CSV file, as pandas reads them."""
    if path.is_dir() or not path.exists():
        raise UserError(f"{path} is {'a folder, not a CSV file' if path.is_dir() else 'not there: no such file'}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(path, header=header, index_col=False, compression=None, low_memory=False)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({undecodable(path)})") from error
    except pd.errors.ParserWarning as error:
        raise UserError(f"{path} is not a regular CSV table: its rows have more fields than its header") from error
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty; it needs a header and rows of numbers") from error
    except pd.errors.ParserError as error:
        raise UserError(f"{path} is not a regular CSV table: {str(error).split('C error: ')[-1].strip()}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def check_frame(
    frame: pd.DataFrame, source: str, *, allow_missing: bool, line: Callable[[int], int] | None = None
) -> None:
    """Refuse a frame whose time stamps do not rise, or with infinite or (unless allowed) missing values.

    Args:
        frame: float columns over a DatetimeIndex.
        source: what the frame was read from, for the message.
        allow_missing: whether values may be NaN.
        line: gives the line of the file that a row (from 0) starts on; None names rows, from 1.

    Raises:
        UserError: naming the first row that is wrong.
    """

    def where(row: int) -> str:
        return f"{source}, row {row + 1}" if line is None else f"{source}, line {line(row)}"

    stamps = frame.index
    back = np.flatnonzero(np.asarray(stamps[1:] <= stamps[:-1]))
    if back.size:
        row = int(back[0]) + 1
        what = "repeats the row before" if stamps[row] == stamps[row - 1] else f"goes back behind {stamps[row - 1]}"
        raise UserError(f"{where(row)}: time stamp {stamps[row]} {what}; time stamps must rise")
    values = frame.to_numpy()
    wrong = np.isinf(values) if allow_missing else ~np.isfinite(values)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        what = "missing" if np.isnan(values[row, column]) else "infinite"
        raise UserError(
            f"{where(row)}: the value of {shown(frame.columns[column])} is {what}; a finite number is needed"
        )


def _numbers(column: pd.Series, path: Path, header_rows: int = 1) -> pd.Series:
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return column.astype("float64")
    numbers = pd.to_numeric(column, errors="coerce")
    is_bool = column.map(lambda cell: isinstance(cell, bool | np.bool_)).to_numpy(dtype=bool)
    wrong = np.flatnonzero((numbers.isna() & column.notna()).to_numpy() | is_bool)
    if wrong.size:
        row = int(wrong[0])
        raise UserError(
            f"{path}, line {_line(path, row, header_rows)}: {shown(column.iloc[row])} in column "
            f"{shown(column.name)} is not a number"
        )
    return numbers.astype("float64")


def _time_stamps(column: pd.Series, path: Path) -> pd.DatetimeIndex:
    # a bare number would be read as nanoseconds since 1970
    is_number = pd.api.types.is_numeric_dtype(column) and column.notna().any()
    first = str(column.iloc[0])
    if re.match(r"\d{1,2}[/.-]\d{1,2}[/.-]\d{4}", first):
        readings = [pd.to_datetime(column, errors="coerce", dayfirst=dayfirst) for dayfirst in (False, True)]
        if readings[0].notna().all() and readings[1].notna().all() and not readings[0].equals(readings[1]):
            raise UserError(
                f"{path}, line {_line(path, 0)}: {shown(first)} in column {shown(column.name)} can be read with the "
                "day or the month first; write dates like 2016-07-01"
            )
    try:
        stamps = None if is_number else pd.DatetimeIndex(pd.to_datetime(column, errors="coerce"))
    except ValueError as error:
        raise UserError(f"{path}: column {shown(column.name)} mixes time zones; write all its dates in UTC") from error
    wrong = np.zeros(1, int) if stamps is None else np.flatnonzero(stamps.isna())
    if stamps is None or wrong.size:
        row = int(wrong[0])
        raise UserError(
            f"{path}, line {_line(path, row)}: {shown(column.iloc[row])} in column {shown(column.name)} "
            "is not a date; write dates like 2016-07-01 00:00:00"
        )
    return stamps


def undecodable(path: Path) -> str:
    """The place of the first byte that is not UTF-8 (pandas counts from the start of a chunk)."""
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start}"
    return "an encoding error"


def _line(path: Path, row: int, header_rows: int = 1) -> int:
    """The line that a row starts on; blank lines are no rows, and a quoted cell may go over several lines."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        records, start, rows = csv.reader(file), 1, -header_rows
        for record in records:
            if len(record) > 1 or any(cell.strip() for cell in record):
                if rows == row:
                    return start
                rows += 1
            start = records.line_num + 1
    return start
