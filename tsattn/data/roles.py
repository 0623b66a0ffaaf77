"""Which column of a table holds the ids, the time stamps, the targets and the covariates."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import pandas as pd

from tsattn.errors import UserError, one_of, shown

__all__ = ["TIME_COLUMNS", "Roles", "check_roles", "find_roles", "plain_frame"]

logger = logging.getLogger("tsattn")

# id, time and target of the long tables that need no naming
_LONG_TABLES = (("unique_id", "ds", "y"), ("item_id", "timestamp", "target"))
TIME_COLUMNS = ("date", "ds", "timestamp")  # an index of time stamps without a name is called as the first


@dataclass(frozen=True)
class Roles:
    """Which column is what; a wide table has no id."""

    id: str | None
    time: str
    target: tuple[str, ...]
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    @property
    def is_wide(self) -> bool:
        """Whether the table is one series, a column a channel."""
        return self.id is None


def plain_frame(table: pd.DataFrame, source: str, id_column: str | None, time_column: str | None) -> pd.DataFrame:
    """The table as a frame over a plain index, its column names text, ids and time stamps in columns.

    Raises:
        UserError: for two columns of one name, or an index of periods.
    """
    frame = table.set_axis([str(name) for name in table.columns], axis=1)
    known = {id_column, time_column, *(name for names in _LONG_TABLES for name in names), *TIME_COLUMNS}
    levels = [name for name in frame.index.names if name in known and name is not None and name not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    elif isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex):
        wanted = TIME_COLUMNS if time_column is None else (time_column,)
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
    """Id, time and target columns, found by their usual names where none are given.

    Raises:
        UserError: if there is no column of time stamps, or no target in a long table.
    """
    columns = set(frame.columns)
    usual = next((names for names in _LONG_TABLES if names[0] in columns), None)
    if id_column is None and usual is not None:
        id_column = usual[0]
    times = (*([] if usual is None else usual[1:2]), *TIME_COLUMNS)
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
    """The roles once every column is known to have one at most; those without a role are logged.

    Args:
        frame: the table, of which only the names of the columns are looked at.
        source: what the table is, for messages.
        roles: the columns named or found.
        every_target: whether all columns of a wide table without another role are targets.
        needs_target: whether the table must have a target.

    Raises:
        UserError: for unknown columns, a column of two roles, and a table without the target that it needs.
    """
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
