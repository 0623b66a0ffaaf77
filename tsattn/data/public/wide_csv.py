"""Strict reading of a wide CSV file: one row a time stamp, one column of numbers a channel, nothing mended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tsattn.data.columns import number_columns
from tsattn.data.csv_cells import lines_of, read_cells
from tsattn.data.stamps import time_stamps
from tsattn.errors import UserError, one_of, shown

__all__ = ["check_frame", "read_csv", "read_numbers"]


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
    table = read_cells(path)
    for name in (date_column, *columns):
        if name not in table.columns:
            what = f"date column {name!r}" if name == date_column else f"column {name!r}"
            raise UserError(f"{path} has no {what}; its columns are {one_of(map(shown, table.columns[:12]))}")
    channels = tuple(columns) or tuple(name for name in table.columns if name != date_column)
    if table.empty or not channels:
        raise UserError(f"{path} has no {'rows' if channels else 'columns of numbers'}")
    where = lines_of(path)
    values = number_columns(table, channels, where, "channel")
    stamps = time_stamps(table[date_column], where)
    if grid is not None:
        stamps = pd.date_range(stamps[0], periods=len(stamps), freq=grid)
    frame = pd.DataFrame(values, index=stamps.rename(date_column), columns=list(channels))
    check_frame(frame, str(path), allow_missing=allow_missing, where=where)
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
    table = read_cells(path, has_header=False)
    table.columns = table.columns.astype(str)
    where = lines_of(path, has_header=False)
    values = number_columns(table, tuple(table.columns), where, "channel")
    stamps = pd.date_range(first, periods=len(table), freq=frequency, name="date")
    frame = pd.DataFrame(values, index=stamps, columns=table.columns)
    check_frame(frame, str(path), allow_missing=False, where=where)
    return frame


def check_frame(
    frame: pd.DataFrame, source: str, *, allow_missing: bool, where: Callable[[int], str] | None = None
) -> None:
    """Refuse a frame whose time stamps do not rise, or with infinite or (unless allowed) missing values.

    Args:
        frame: float columns over a DatetimeIndex.
        source: what the frame was read from, for the message.
        allow_missing: whether values may be NaN.
        where: names a row (from 0) in messages; by default by the source and its number, from 1.

    Raises:
        UserError: naming the first row that is wrong.
    """

    def place(row: int) -> str:
        return f"{source}, row {row + 1}" if where is None else where(row)

    stamps = frame.index
    back = np.flatnonzero(np.asarray(stamps[1:] <= stamps[:-1]))
    if back.size:
        row = int(back[0]) + 1
        what = "repeats the row before" if stamps[row] == stamps[row - 1] else f"goes back from {stamps[row - 1]}"
        raise UserError(f"{place(row)}: time stamp {stamps[row]} {what}; time stamps must rise")
    values = frame.to_numpy()
    wrong = np.isinf(values) if allow_missing else ~np.isfinite(values)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        what = "missing" if np.isnan(values[row, column]) else "infinite"
        raise UserError(
            f"{place(row)}: the value of {shown(frame.columns[column])} is {what}; a finite number is needed"
        )
