"""The rows of a table as arrays, in the order given; after them those of a frame of future values.

Shape letters: R rows of the table (and of its future), S series, C targets, P past and F future covariates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.category_columns import Categories, covariate_columns, joined_categories
from tsattn.data.columns import match_ids, number_columns, series_numbers
from tsattn.data.frequency import Times, one_time
from tsattn.data.grid import counts
from tsattn.data.lazy_frames import collected
from tsattn.data.quiet import quiet
from tsattn.data.roles import Roles, check_roles, plain_frame
from tsattn.data.stamps import in_zone_of, stamps_or_steps
from tsattn.data.table_options import Columns
from tsattn.data.tables import opened
from tsattn.data.text_format import TextFormat
from tsattn.data.weights import check_cells
from tsattn.errors import UserError, one_of, shown

__all__ = ["Rows", "Table", "check_rising", "future_rows", "listed", "read_rows", "without_empty"]

logger = logging.getLogger("tsattn")

_FUTURE = "the frame of future values"


@dataclass(frozen=True)
class Table:
    """A table whose columns have roles.

    Attributes:
        frame: its cells, not yet looked at.
        roles: which column is what.
        source: what the table is, for messages.
        text: how its text is written.
        frequency: that of its time stamps, if it is known.
        row_of: names a row (from 0) in messages; None for ``the frame, row 1`` and so on.
    """

    frame: pd.DataFrame
    roles: Roles
    source: str
    text: TextFormat
    frequency: str | None = None
    row_of: Callable[[int], str] | None = None

    def where(self, row: int) -> str:
        """What a row, counted from 0, is called in messages."""
        return f"{self.source}, row {row + 1}" if self.row_of is None else self.row_of(row)


@dataclass(frozen=True)
class Rows:
    """The rows of a table in the order given, every cell checked, and after them those of its future.

    Attributes:
        num_own: how many rows, the first ones, are of the table itself.
        names: the S ids, sorted; ``("series",)`` for a wide table.
        series: `(R,)` int64 number of the series of each row.
        time: `(R,)` time stamps, or steps.
        values: `(R, C)` float64 targets, NaN where missing and in the rows of the future.
        past: `(R, P)` float64 past covariates, NaN where missing and in the rows of the future.
        known: `(R, F)` float64 future covariates, NaN where missing.
        weights: `(R, 1)` float64 weights, NaN in the rows of the future; `(R, 0)` without such a column.
        where: names a row (from 0) in messages.
        categories: of the covariates that are such.
    """

    num_own: int
    names: tuple[Any, ...]
    series: NDArray[np.int64]
    time: Times
    values: NDArray[np.float64]
    past: NDArray[np.float64]
    known: NDArray[np.float64]
    weights: NDArray[np.float64]
    where: Callable[[int], str]
    categories: Categories = field(default_factory=dict)

    def take(self, kept: NDArray[np.int64]) -> Rows:
        """Some of the rows, rising, which are still named as they were given."""
        parts = {name: getattr(self, name)[kept] for name in ("series", "time", "values", "past", "known", "weights")}
        own = int(np.searchsorted(kept, self.num_own))
        return replace(self, **parts, num_own=own, where=lambda row: self.where(int(kept[row])))

    def with_future(self, future: Rows, source: str, roles: Roles) -> Rows:
        """These rows and after them those of their future, all with the numbers of these series.

        Series of the future that the table has not got are left out, which is logged.

        Raises:
            UserError: for a future of other series or without the table's time zone.
        """
        number = {name: number for number, name in enumerate(self.names)}
        same = match_ids(future.names, self.names)
        owners = np.array([number[same[name]] if name in same else -1 for name in future.names])[future.series]
        if not_there := [name for name in future.names if name not in same]:
            left_out, valid = listed(not_there), listed(self.names)
            if not same:
                raise UserError(f"{_FUTURE} is of series {left_out}, not of any in {source}; valid are {valid}")
            with quiet(False):
                logger.warning(
                    "%s: left out %d series that %s has not got: %s", _FUTURE, len(not_there), source, left_out
                )
        future = future.take(np.flatnonzero(owners >= 0))
        num_own, added = self.num_own, len(future.time)

        def longer(part: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.concatenate([part, np.full((added, part.shape[1]), np.nan)])

        known, categories = joined_categories(
            self.known, future.known, roles.future, self.categories, future.categories
        )
        return replace(
            self,
            series=np.concatenate([self.series, owners[owners >= 0]]),
            time=one_time(self.time.append(in_zone_of(self.time, future.time, _FUTURE, source))),
            values=longer(self.values),
            past=longer(self.past),
            known=known,
            weights=longer(self.weights),
            categories={**self.categories, **categories},
            where=lambda row: self.where(row) if row < num_own else future.where(row - num_own),
        )


def read_rows(table: Table, zone_of: Times | None = None, categorical: Collection[str] | None = None) -> Rows:
    """The rows of a table.

    Args:
        table: the table.
        zone_of: the others.
        categorical: the covariates that are categories; None finds them, see `covariate_columns`.

    Raises:
        UserError: for a cell that cannot be used, naming its row, and a covariate without any value.
    """
    frame, roles, where = table.frame, table.roles, table.where
    if not len(frame):
        raise UserError(f"{table.source} has no rows")
    ids = None if roles.id is None else frame[roles.id]
    time = stamps_or_steps(
        frame[roles.time], where, date_format=table.text.date_format, ids=ids, frequency=table.frequency
    )
    if zone_of is not None:
        time = in_zone_of(zone_of, time, table.source, "what the model was fitted on")
    values = number_columns(frame, roles.target, where, "target")
    past, of_past = covariate_columns(frame, roles.past, where, "past covariate", categorical)
    known, of_known = covariate_columns(frame, roles.future, where, "future covariate", categorical)
    for name, column in zip((*roles.past, *roles.future), (*past.T, *known.T), strict=True):
        if roles.target and np.isnan(column).all():
            raise UserError(
                f"{table.source}: every value of covariate {shown(name)} is missing; at least one is needed"
            )
    weights = number_columns(frame, () if roles.weight is None else (roles.weight,), where, "weight")
    check_cells(weights, values, str(roles.weight), where)
    series, names = series_numbers(ids, len(frame), where)
    categories = {**of_past, **of_known}
    return Rows(len(frame), names, series, time, values, past, known, weights, where, categories)


def future_rows(
    frame: Any, roles: Roles, text: TextFormat, frequency: str | None, categorical: Collection[str] = ()
) -> Rows:
    """The rows of a frame or file of future values: ids, time stamps and future covariates alone, C = P = 0.

    Args:
        frame: as a user gives it.
        roles: those of the columns of the table that it is the future of.
        text: how its text is written.
        frequency: that of the table; ``1`` where it counts steps.
        categorical: the covariates that are categories in the table.

    Raises:
        UserError: for what is no such frame, and a cell that cannot be used, naming its row.
    """
    if not roles.future:
        raise UserError(
            f"{_FUTURE} would not be used: no `future_covariates` were named before the fit; leave out `--future` "
            "(Python: `future=`)"
        )
    with quiet(False):  # the future is new, even where the table is not
        columns = Columns(roles.id, roles.time, (), future_covariates=roles.future)
        frame = collected(frame, _FUTURE, columns, needs_target=False)
        table, _, row_of = opened(frame, _FUTURE, roles.id, roles.time, text)
        if isinstance(table.index, pd.DatetimeIndex | pd.PeriodIndex) and roles.time not in map(str, table.columns):
            table = table.rename_axis(index=None)  # whatever it is called, it is the time
        plain, _ = plain_frame(table, _FUTURE, roles.id, roles.time, allow_steps=row_of is None)
        own = Roles(roles.id, roles.time, (), future=roles.future)
        own = check_roles(plain, _FUTURE, own, every_target=False, needs_target=False)
        return read_rows(Table(plain, own, _FUTURE, text, frequency), None, categorical)


def check_rising(rows: Rows) -> None:
    """Refuse rows of a series whose time stamps do not rise in the order given.

    Raises:
        UserError: naming the first such row.
    """
    order = np.argsort(rows.series, kind="stable")
    stamps = counts(rows.time)[order]
    back = order[1:][(np.diff(stamps) <= 0) & (np.diff(rows.series[order]) == 0)]
    if back.size:
        row = int(back.min())
        before = int(order[np.flatnonzero(order == row)[0] - 1])
        time: Any = rows.time
        of = "" if len(rows.names) == 1 else f" of series {shown(rows.names[rows.series[row]])}"
        what = "repeats the row before" if time[row] == time[before] else f"goes back from {time[before]}"
        raise UserError(f"{rows.where(row)}: time stamp {time[row]}{of} {what}; time stamps must rise")


def without_empty(rows: Rows, source: str) -> tuple[Rows, NDArray[np.int64] | None]:
    """The rows without the series of which every target is missing, which is logged.

    Returns:
        the rows, and which of the own rows stay; None where all do.

    Raises:
        UserError: if there is no other series.
    """
    has_value = np.zeros(len(rows.names), dtype=bool)
    is_known = ~np.isnan(rows.values)
    if len(is_known) == rows.num_own and is_known.all():
        return rows, None
    has_value[rows.series[is_known.any(axis=1)]] = True
    if has_value.all():
        return rows, None
    if not has_value.any():
        raise UserError(f"{source}: every target of every series is missing; at least one is needed")
    empty = [name for name, is_full in zip(rows.names, has_value, strict=True) if not is_full]
    logger.warning(
        "%s: left out %d of %d series, without any value: %s", source, len(empty), len(rows.names), listed(empty)
    )
    kept = np.flatnonzero(has_value[rows.series])
    numbers = np.cumsum(has_value) - 1
    some = rows.take(kept)
    names = tuple(name for name, is_full in zip(rows.names, has_value, strict=True) if is_full)
    return replace(some, names=names, series=numbers[some.series]), kept[: some.num_own]


def listed(names: Sequence[Any]) -> str:
    """The first ids of some, for messages."""
    return one_of(shown(repr(name)) for name in names[:12]) + (", ..." if len(names) > 12 else "")
