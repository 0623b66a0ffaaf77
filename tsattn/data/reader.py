"""From a long or a wide table to a checked panel of series."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import (
    category_codes,
    column_name,
    column_names,
    in_zone_of,
    match_ids,
    number_columns,
    series_numbers,
    time_stamps,
)
from tsattn.data.layout import lay_out
from tsattn.data.messages import counted, quiet
from tsattn.data.panel import Panel
from tsattn.data.tables import opened
from tsattn.errors import UserError, one_of, shown

__all__ = ["Roles", "check_roles", "find_roles", "panel_from_frame"]

logger = logging.getLogger("tsattn")

# id, time and target of the long tables that need no naming
_LONG_TABLES = (("unique_id", "ds", "y"), ("item_id", "timestamp", "target"))
_TIME_COLUMNS = ("date", "ds", "timestamp")
_FUTURE = "the frame of future values"


def panel_from_frame(
    table: Any,
    *,
    id_column: str | None = None,
    time_column: str | None = None,
    target: str | Sequence[str] | None = None,
    past_covariates: Sequence[str] = (),
    future_covariates: Sequence[str] = (),
    static: Sequence[str] = (),
    frequency: str | None = None,
    source: str = "the frame",
    future: Any = None,
    row_of: Callable[[int], str] | None = None,
    zone_of: pd.DatetimeIndex | None = None,
) -> Panel:
    """The series in a long table (a row a series and time stamp) or a wide one (a row a time stamp).

    A table is long if `id_column` is named or it has the columns ``unique_id`` or ``item_id``. Rows may come in any
    order. A missing target is NaN; so is everything in the rows that fill a gap in time. What is done to a table
    beyond that is logged to the logger ``tsattn``: rows sorted by time, gaps filled, values missing, columns not used,
    series of the future left out that the table has not got.

    With future covariates, the rows of a series behind the last one with a target are its future. Rows without a target
    need not repeat the static columns.

    Args:
        table: a pandas, polars or pyarrow frame, or any other with ``__arrow_c_stream__`` or ``__dataframe__``; a
            pandas Series, which is a wide table of one column; or the path of a file for `read_table`.
        id_column: column of series ids of a long table; found by itself if named ``unique_id`` or ``item_id``.
        time_column: column of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``, or a
            DatetimeIndex.
        target: the column or columns to forecast; found by itself if named ``y`` or ``target`` in a long table. In a
            wide one every column without another role is a target unless this lists them.
        past_covariates: columns of numbers or bools known for the past only.
        future_covariates: columns of numbers or bools known for the future too.
        static: columns of categories that are constant within a series.
        frequency: pandas frequency of the stamps; None infers it, even where there are gaps.
        source: what the table is, for messages.
        future: a frame, or file, of the ids, time stamps and future covariates behind the last row of each series.
        row_of: names a row (from 0) of the table in messages; by default ``the frame, row 1`` and so on.
        zone_of: time stamps of another table, into whose time zone those of this one are converted.

    Raises:
        UserError: for a table that cannot be used, naming the series and the row (from 1).
    """
    id_column, time_column = column_name(id_column, "id_column"), column_name(time_column, "time_column")
    targets = None if target is None else column_names(target, "target")
    table, source, own_row_of = opened(table, source, id_column)
    row_of = own_row_of or row_of
    frame = _prepared(table, source, id_column, time_column)
    roles = replace(
        find_roles(frame, source, id_column, time_column, targets),
        past=column_names(past_covariates, "past_covariates"),
        future=column_names(future_covariates, "future_covariates"),
        static=column_names(static, "static"),
    )
    roles = check_roles(frame, source, roles, every_target=target is None)
    is_wide, rows = roles.id is None, len(frame)
    if rows == 0:
        raise UserError(f"{source} has no rows")

    def where(row: int) -> str:
        if row >= rows:
            return f"{_FUTURE}, row {row - rows + 1}"
        return f"{source}, row {row + 1}" if row_of is None else row_of(row)

    time = time_stamps(frame[roles.time], where)
    if zone_of is not None:
        time = in_zone_of(zone_of, time, source, "what the model was fitted on")
    values = number_columns(frame, roles.target, where, "target")
    past = number_columns(frame, roles.past, where, "past covariate")
    known = number_columns(frame, roles.future, where, "future covariate")
    ids = None if roles.id is None else frame[roles.id]
    for name, column in zip((*roles.past, *roles.future), (*past.T, *known.T), strict=True):
        if np.isnan(column).all():
            raise UserError(f"{source}: every value of covariate {shown(name)} is missing; at least one is needed")
    if future is not None:
        with quiet(False):  # the future is new, even where the table is not
            extra_ids, extra_time, extra_known = _read_future(future, roles, lambda row: where(rows + row))
        time = pd.DatetimeIndex(time.append(in_zone_of(time, extra_time, _FUTURE, source)))
        known = np.concatenate([known, extra_known])
        ids = None if ids is None else pd.concat([ids, extra_ids], ignore_index=True)

    series, names = series_numbers(ids, len(time), where)
    count = int(series[:rows].max()) + 1
    if len(names) > count and (series[rows:] >= count).all():
        same = match_ids(names[count:], names[:count])
        number = {name: number for number, name in enumerate(names)}
        series = np.array([number[same.get(name, name)] for name in names])[series]
    given = np.flatnonzero(series < count)  # of the rows of table and future, those of series in the table
    if len(given) < len(series):
        others = [names[number] for number in np.unique(series[series >= count])]
        _log_left_out(others, names[:count], source, is_any_used=len(given) > rows)
        time, known, series = time[given], known[given], series[given]
    names = names[:count]

    def place(row: int) -> str:
        return where(int(given[row]))

    may_lack = np.atleast_1d(np.isnan(values).all(axis=1))
    values, past = (_longer(part, len(time)) for part in (values, past))
    codes, categories = category_codes(frame, roles.static, series[:rows], names, where, may_lack)
    layout = lay_out(time, series, names, frequency, place, source, is_wide=is_wide)
    values, past, known = (layout.spread(part) for part in (values, past, known))
    _refuse_empty(values, layout.starts, roles.target, names, source, is_wide=is_wide)

    is_ahead = np.zeros(len(values), dtype=bool)
    if roles.future:
        is_ahead = _is_behind_last_target(values, layout.starts)
        late = np.flatnonzero(~is_ahead[layout.places[rows:]])
        if late.size:
            row = rows + int(late[0])
            of = "" if is_wide else f" of series {shown(names[series[row]])}"
            raise UserError(f"{place(row)}: time stamp {time[row]}{of} is not behind the last row with a target")
        _log_ahead(is_ahead, past, roles.past, source)
    places = layout.places[:rows]
    places = places[~is_ahead[places]]
    _log_missing(values[places], np.concatenate([past[places], known[places]], axis=1), roles, source)
    steps = np.add.reduceat(is_ahead.astype(np.int64), layout.starts[:-1])
    ahead_starts = np.concatenate([[0], np.cumsum(steps)])
    return Panel(
        ids=names,
        channels=roles.target,
        frequency=layout.frequency,
        time=layout.time[~is_ahead],
        starts=layout.starts - ahead_starts,
        values=values[~is_ahead],
        past_covariates=past[~is_ahead] if roles.past else None,
        past_names=roles.past,
        future_covariates=known[~is_ahead] if roles.future else None,
        future_names=roles.future,
        ahead=known[is_ahead] if roles.future else None,
        ahead_starts=ahead_starts,
        static=codes if roles.static else None,
        static_names=roles.static,
        static_categories=categories,
        is_wide=is_wide,
        id_name=Panel.id_name if roles.id is None else roles.id,
        time_name=roles.time,
    )


@dataclass(frozen=True)
class Roles:
    """Which column is what; a wide table has no id."""

    id: str | None
    time: str
    target: tuple[str, ...]
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    static: tuple[str, ...] = ()


def _prepared(table: pd.DataFrame, source: str, id_column: str | None, time_column: str | None) -> pd.DataFrame:
    """The table as a frame over a plain index, its column names text, ids and time stamps in columns."""
    frame = table.set_axis([str(name) for name in table.columns], axis=1)
    known = {id_column, time_column, *(name for names in _LONG_TABLES for name in names), *_TIME_COLUMNS}
    levels = [name for name in frame.index.names if name in known and name is not None and name not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    elif isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex):
        wanted = _TIME_COLUMNS if time_column is None else (time_column,)
        if not set(wanted) & set(frame.columns) and (time_column is None or frame.index.name is None):
            if isinstance(frame.index, pd.PeriodIndex):
                raise UserError(f"the index of {source} holds periods; turn them into time stamps with .to_timestamp()")
            frame = frame.set_axis(frame.index.rename(wanted[0]), axis=0).reset_index()
    columns = frame.columns
    if not columns.is_unique:
        raise UserError(f"{source} has two columns {shown(columns[columns.duplicated()][0])}")
    return frame.reset_index(drop=True)


def find_roles(
    frame: pd.DataFrame,
    source: str,
    id_column: str | None,
    time_column: str | None,
    target: tuple[str, ...] | None,
) -> Roles:
    """Id, time and target columns, found by their usual names where none are given."""
    columns = set(frame.columns)
    usual = next((names for names in _LONG_TABLES if names[0] in columns), None)
    if id_column is None and usual is not None:
        id_column = usual[0]
    times = (*([] if usual is None else usual[1:2]), *_TIME_COLUMNS)
    time = time_column or next((name for name in times if name in columns), None)
    if time is None:
        raise UserError(
            f"{source} has no time stamps to be found; valid are a long table with columns unique_id, ds, y or "
            "item_id, timestamp, target, a wide one with a column date, ds or timestamp or a DatetimeIndex, or any "
            f"other whose columns are named by arguments; its columns are {_listed(frame)}"
        )
    if target is None and id_column is not None:
        target = next(((names[2],) for names in _LONG_TABLES if names[2] in columns), None)
        if target is None:
            raise UserError(
                f"{source} is a long table without a column y or target; name the target; its columns are "
                f"{_listed(frame)}"
            )
    return Roles(id_column, time, target or ())


def check_roles(
    frame: pd.DataFrame, source: str, roles: Roles, *, every_target: bool, needs_target: bool = True
) -> Roles:
    """Refuse unknown columns, columns of two roles and a table without a target; say which columns have no role."""
    named = [
        *([("id", roles.id)] if roles.id is not None else []),
        ("time", roles.time),
        *(("target", name) for name in roles.target),
        *(("past covariate", name) for name in roles.past),
        *(("future covariate", name) for name in roles.future),
        *(("static", name) for name in roles.static),
    ]
    columns, role_of = set(frame.columns), dict[str, str]()
    for role, name in named:
        if name not in columns:
            raise UserError(f"{source} has no {role} column {shown(name)}; its columns are {_listed(frame)}")
        if name in role_of:
            raise UserError(
                f"column {shown(name)} of {source} is named as {role_of[name]} and as {role}; a column has one role"
            )
        role_of[name] = role
    rest = tuple(name for name in frame.columns if name not in role_of)
    if roles.id is None and every_target:
        roles = replace(roles, target=rest)
    elif rest:
        names = one_of(map(shown, rest))
        what = f"column {names} is" if len(rest) == 1 else f"columns {names} are"
        logger.warning("%s: %s not used (covariates are used if they are named)", source, what)
    if needs_target and not roles.target:
        raise UserError(f"{source} has no target column; its columns are {_listed(frame)}")
    return roles


def _listed(frame: pd.DataFrame) -> str:
    names = one_of(map(shown, frame.columns[:12])) or "none"
    return names + (", ..." if len(frame.columns) > 12 else "")


def _read_future(
    table: Any, roles: Roles, where: Callable[[int], str]
) -> tuple[pd.Series | None, pd.DatetimeIndex, NDArray[np.float64]]:
    """Ids, time stamps and future covariates of the frame of future values."""
    if not roles.future:
        raise UserError(f"{_FUTURE} needs the names of its columns in future_covariates")
    # a time index without a name is called as in the first frame
    time_column = None if roles.time == _TIME_COLUMNS[0] else roles.time
    frame = _prepared(opened(table, _FUTURE, roles.id)[0], _FUTURE, roles.id, time_column)
    mine = Roles(roles.id, roles.time, (), future=roles.future)
    check_roles(frame, _FUTURE, mine, every_target=False, needs_target=False)
    if not len(frame):
        raise UserError(f"{_FUTURE} has no rows")
    ids = None if roles.id is None else frame[roles.id]
    return ids, time_stamps(frame[roles.time], where), number_columns(frame, roles.future, where, "future covariate")


def _longer(part: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """With missing values in the rows added."""
    return np.concatenate([part, np.full((rows - len(part), part.shape[1]), np.nan)])


def _refuse_empty(
    values: NDArray[np.float64],
    starts: NDArray[np.int64],
    channels: tuple[str, ...],
    names: tuple[Any, ...],
    source: str,
    *,
    is_wide: bool,
) -> None:
    empty = np.argwhere(np.add.reduceat(~np.isnan(values), starts[:-1], dtype=np.int64) == 0)
    if empty.size:
        number, channel = empty[0].tolist()
        series = "" if is_wide else f" of series {shown(names[number])}"
        raise UserError(
            f"{source}: every value of {shown(channels[channel])}{series} is missing; at least one is needed"
        )


def _is_behind_last_target(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(rows,)` whether no target of a series is known in a row or behind it."""
    rows = np.arange(len(values))
    last = np.maximum.reduceat(np.where(np.isnan(values).all(axis=1), -1, rows), starts[:-1])
    return rows > np.repeat(last, np.diff(starts))


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


def _log_missing(values: NDArray[np.float64], covariates: NDArray[np.float64], roles: Roles, source: str) -> None:
    """Say how many targets `(rows, C)` and values of covariates `(rows, P + F)` are missing."""
    if missing := np.isnan(values).sum():
        logger.warning("%s: %d of %d values are missing; they are masked, never scored", source, missing, values.size)
    for name, column in zip((*roles.past, *roles.future), covariates.T, strict=True):
        if missing := np.isnan(column).sum():
            logger.warning(
                "%s: covariate %s: %d of %d values are missing; the last known one takes their place",
                *(source, shown(name), missing, column.size),
            )


def _log_ahead(
    is_ahead: NDArray[np.bool_], past: NDArray[np.float64], past_names: tuple[str, ...], source: str
) -> None:
    if is_ahead.any():
        rows = counted(is_ahead.sum(), "row")
        logger.info("%s: read %s behind the last targets as the future of the covariates", source, rows)
    unused = np.atleast_1d((is_ahead[:, None] & ~np.isnan(past)).any(axis=0))
    if unused.any():
        names = [shown(name) for name, is_unused in zip(past_names, unused, strict=True) if is_unused]
        what = f"covariate{'' if len(names) == 1 else 's'} {one_of(names)}"
        logger.warning("%s: values of the past %s behind the last targets are not used", source, what)
