"""The rows of a table as arrays, in the order given; behind them those of a frame of future values.

Shape letters: R rows of the table (and of its future), S series, C targets, P past and F future covariates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import in_zone_of, match_ids, number_columns, series_numbers, time_stamps
from tsattn.data.messages import quiet
from tsattn.data.roles import TIME_COLUMNS, Roles, check_roles, plain_frame
from tsattn.data.tables import opened
from tsattn.errors import UserError, one_of, shown

__all__ = ["SeriesRows", "Table", "TableRows", "future_rows", "in_series", "table_rows"]

logger = logging.getLogger("tsattn")

_FUTURE = "the frame of future values"


@dataclass(frozen=True)
class Table:
    """A table whose columns have roles.

    Attributes:
        frame: its cells, not yet looked at.
        roles: which column is what.
        source: what the table is, for messages.
        row_of: names a row (from 0) in messages; None for ``the frame, row 1`` and so on.
    """

    frame: pd.DataFrame
    roles: Roles
    source: str
    row_of: Callable[[int], str] | None = None

    def where(self, row: int) -> str:
        """What a row, counted from 0, is called in messages."""
        return f"{self.source}, row {row + 1}" if self.row_of is None else self.row_of(row)


@dataclass(frozen=True)
class TableRows:
    """The rows of a table in the order given, every cell checked but those of ids and categories.

    Attributes:
        time: `(R,)` time stamps.
        ids: `(R,)` series ids as given; None for a wide table.
        values: `(R, C)` float64 targets, NaN where missing, as in what follows.
        past: `(R, P)` float64 past covariates.
        known: `(R, F)` float64 future covariates.
        where: names a row (from 0) in messages.
    """

    time: pd.DatetimeIndex
    ids: pd.Series | None
    values: NDArray[np.float64]
    past: NDArray[np.float64]
    known: NDArray[np.float64]
    where: Callable[[int], str]


@dataclass(frozen=True)
class SeriesRows:
    """The rows of the series of a table, in the order given, and behind them those of their future.

    Attributes:
        num_own: how many rows, the first ones, are of the table itself.
        names: the S ids, in order of first appearance in the table.
        series: `(R,)` int64 number of the series of each row.
        time: `(R,)` time stamps.
        values: `(R, C)` float64 targets, NaN where missing and in the rows of the future.
        past: `(R, P)` float64 past covariates, NaN where missing and in the rows of the future.
        known: `(R, F)` float64 future covariates, NaN where missing.
        where: names a row (from 0) in messages.
    """

    num_own: int
    names: tuple[Any, ...]
    series: NDArray[np.int64]
    time: pd.DatetimeIndex
    values: NDArray[np.float64]
    past: NDArray[np.float64]
    known: NDArray[np.float64]
    where: Callable[[int], str]


def table_rows(table: Table, zone_of: pd.DatetimeIndex | None) -> TableRows:
    """The rows of a table, its time stamps in the zone of others if these are given.

    Raises:
        UserError: for a cell that cannot be used, naming its row, and a covariate without any value.
    """
    rows = _read(table, zone_of)
    names = (*table.roles.past, *table.roles.future)
    for name, column in zip(names, (*rows.past.T, *rows.known.T), strict=True):
        if np.isnan(column).all():
            raise UserError(
                f"{table.source}: every value of covariate {shown(name)} is missing; at least one is needed"
            )
    return rows


def future_rows(frame: Any, roles: Roles) -> TableRows:
    """The rows of a frame or file of future values: ids, time stamps and future covariates alone, C = P = 0.

    Args:
        frame: as a user gives it.
        roles: those of the columns of the table that it is the future of.

    Raises:
        UserError: for what is no such frame, and a cell that cannot be used, naming its row.
    """
    if not roles.future:
        raise UserError(f"{_FUTURE} needs the names of its columns in future_covariates")
    # a time index without a name is called as in the table
    time_column = None if roles.time == TIME_COLUMNS[0] else roles.time
    with quiet(False):  # the future is new, even where the table is not
        plain = plain_frame(opened(frame, _FUTURE, roles.id)[0], _FUTURE, roles.id, time_column)
        own = Roles(roles.id, roles.time, (), future=roles.future)
        own = check_roles(plain, _FUTURE, own, every_target=False, needs_target=False)
        return _read(Table(plain, own, _FUTURE))


def in_series(rows: TableRows, future: TableRows | None, source: str) -> SeriesRows:
    """The rows of a table and behind them those of its future, all with the numbers of their series.

    Series of the future that the table has not got are left out, which is logged.

    Raises:
        UserError: for an id that is none, or a future of other series or without the table's time zone.
    """
    num_own = len(rows.time)
    if future is not None:
        rows = _joined(rows, future, source)
    series, names = series_numbers(rows.ids, len(rows.time), rows.where)
    count = int(series[:num_own].max()) + 1
    if len(names) > count and (series[num_own:] >= count).all():
        same = match_ids(names[count:], names[:count])
        number = {name: number for number, name in enumerate(names)}
        series = np.array([number[same.get(name, name)] for name in names])[series]
    kept = np.flatnonzero(series < count)
    if len(kept) < len(series):
        others = [names[number] for number in np.unique(series[series >= count])]
        _log_left_out(others, names[:count], source, is_any_used=len(kept) > num_own)
        rows, series = _taken(rows, kept), series[kept]
    return SeriesRows(num_own, names[:count], series, rows.time, rows.values, rows.past, rows.known, rows.where)


def _read(table: Table, zone_of: pd.DatetimeIndex | None = None) -> TableRows:
    frame, roles, where = table.frame, table.roles, table.where
    if not len(frame):
        raise UserError(f"{table.source} has no rows")
    time = time_stamps(frame[roles.time], where)
    if zone_of is not None:
        time = in_zone_of(zone_of, time, table.source, "what the model was fitted on")
    return TableRows(
        time=time,
        ids=None if roles.id is None else frame[roles.id],
        values=number_columns(frame, roles.target, where, "target"),
        past=number_columns(frame, roles.past, where, "past covariate"),
        known=number_columns(frame, roles.future, where, "future covariate"),
        where=where,
    )


def _joined(rows: TableRows, future: TableRows, source: str) -> TableRows:
    num_own, added = len(rows.time), len(future.time)

    def longer(part: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([part, np.full((added, part.shape[1]), np.nan)])

    return TableRows(
        time=pd.DatetimeIndex(rows.time.append(in_zone_of(rows.time, future.time, _FUTURE, source))),
        ids=None if rows.ids is None else pd.concat([rows.ids, future.ids], ignore_index=True),
        values=longer(rows.values),
        past=longer(rows.past),
        known=np.concatenate([rows.known, future.known]),
        where=lambda row: rows.where(row) if row < num_own else future.where(row - num_own),
    )


def _taken(rows: TableRows, kept: NDArray[np.int64]) -> TableRows:
    """Some of the rows, which are still named as they were given."""
    return TableRows(
        time=rows.time[kept],
        ids=None if rows.ids is None else rows.ids.iloc[kept],
        values=rows.values[kept],
        past=rows.past[kept],
        known=rows.known[kept],
        where=lambda row: rows.where(int(kept[row])),
    )


def _log_left_out(others: Sequence[Any], names: Sequence[Any], source: str, *, is_any_used: bool) -> None:
    """Say which series of the future are not in the table.

    Raises:
        UserError: if all of them are not.
    """
    left_out, valid = (
        one_of(shown(repr(name)) for name in some[:12]) + (", ..." if len(some) > 12 else "")
        for some in (others, names)
    )
    if not is_any_used:
        raise UserError(f"{_FUTURE} is of series {left_out}, not of any in {source}; valid are {valid}")
    with quiet(False):
        logger.warning("%s: left out %d series that %s has not got: %s", _FUTURE, len(others), source, left_out)
