"""The rows of a table, or of a part of one, as arrays in the order given; and those of a frame of future values.

Shape letters: R rows, C targets, P past and F future covariates, K static columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.category_columns import Categories
from tsattn.data.columns import covariate_columns, match_ids, number_columns, series_numbers
from tsattn.data.frequency import Times
from tsattn.data.quiet import quiet
from tsattn.data.roles import Roles, check_roles, collected, plain_frame
from tsattn.data.stamps import in_zone_of, read_times, time_form
from tsattn.data.table_options import Columns, TextFormat
from tsattn.data.tables import opened
from tsattn.data.weights import check_cells
from tsattn.errors import UserError, one_of, shown

__all__ = ["Rows", "Table", "future_rows", "listed", "read_rows"]

logger = logging.getLogger("tsattn")

_FUTURE = "the frame of future values"


@dataclass(frozen=True)
class Table:
    """A table whose columns have roles."""

    frame: pd.DataFrame  # its cells, not yet looked at
    roles: Roles
    source: str  # what it is, for messages
    text: TextFormat
    frequency: str | None = None  # if it is known
    row_of: Callable[[int], str] | None = None  # names a row (from 0); None for ``the frame, row 1`` and so on

    def where(self, row: int) -> str:
        """What a row, counted from 0, is called in messages."""
        return f"{self.source}, row {row + 1}" if self.row_of is None else self.row_of(row)


@dataclass(frozen=True)
class Rows:
    """Rows of a table in the order given, every cell checked; what is missing is NaN."""

    names: tuple[Any, ...]  # the ids in these rows, sorted; ``("series",)`` for a wide table
    series: NDArray[np.int64]  # `(R,)` the number of the series of each row
    time: Times  # `(R,)` time stamps, or steps
    values: NDArray[np.float64]  # `(R, C)` targets
    past: NDArray[np.float64]  # `(R, P)` past covariates
    known: NDArray[np.float64]  # `(R, F)` future covariates
    weights: NDArray[np.float64]  # `(R, 1)`; `(R, 0)` without such a column
    static: NDArray[np.float64]  # `(R, K)` categories of the static columns, from 1 on
    where: Callable[[int], str]  # names a row (from 0) in messages
    categories: Categories = field(default_factory=dict)  # of static columns, and covariates that are such
    is_own: bool = True  # of the table itself, not of a future that was given beside it
    start: int = 0  # the number of the first row, counted over all parts of the table


def read_rows(
    table: Table,
    zone_of: Times | None = None,
    categorical: Collection[str] | None = None,
    *,
    time: Times | None = None,
    near: Times | None = None,
    start: int = 0,
) -> Rows:
    """Read the rows of a table, or refuse the first cell that cannot be used, naming its row.

    Time stamps are converted into the zone of `zone_of`; offsets may change in that of `near`, the time stamps that the
    rows go with. `categorical` are the covariates that are categories; None finds them.
    """
    frame, roles, where = table.frame, table.roles, table.where
    if not len(frame):
        raise UserError(f"{table.source} has no rows")
    if time is None:
        form = time_form([(frame[roles.time], where)], table.text.date_format, table.frequency)
        time = read_times(frame[roles.time], where, form, getattr(near if zone_of is None else zone_of, "tz", None))
    if zone_of is not None:
        time = in_zone_of(zone_of, time, table.source, "what the model was fitted on")
    values = number_columns(frame, roles.target, where, "target")
    past, of_past = covariate_columns(frame, roles.past, where, "past covariate", categorical)
    known, of_known = covariate_columns(frame, roles.future, where, "future covariate", categorical)
    weights = number_columns(frame, () if roles.weight is None else (roles.weight,), where, "weight")
    check_cells(weights, values, str(roles.weight), where)
    series, names = series_numbers(None if roles.id is None else frame[roles.id], len(frame), where)
    static, of_static = covariate_columns(frame, roles.static, where, "static", roles.static)
    categories = {**of_past, **of_known, **of_static}
    return Rows(names, series, time, values, past, known, weights, static, where, categories, start=start)


def future_rows(frame: Any, own: Rows, roles: Roles, text: TextFormat, source: str) -> Rows:
    """Read the rows of a frame or file of future values: ids, time stamps and future covariates alone.

    Series that the table, whose rows are `own`, has not got are left out, which is logged.
    """
    if not roles.future:
        says = "would not be used: no `future_covariates` were named before the fit"
        raise UserError(f"{_FUTURE} {says}; leave out `--future` (Python: `future=`)")
    steps = None if isinstance(own.time, pd.DatetimeIndex) else "1"
    with quiet(False):  # the future is new, even where the table is not
        columns = Columns(roles.id, roles.time, (), future_covariates=roles.future)
        table = collected(frame, _FUTURE, columns, needs_target=False)
        table, _, row_of = opened(table, _FUTURE, roles.id, roles.time, text)
        if isinstance(table.index, pd.DatetimeIndex | pd.PeriodIndex) and roles.time not in map(str, table.columns):
            table = table.rename_axis(index=None)  # whatever it is called, it is the time
        plain, _ = plain_frame(table, _FUTURE, roles.id, roles.time, allow_steps=row_of is None)
        alone = Roles(roles.id, roles.time, (), future=roles.future)
        alone = check_roles(plain, _FUTURE, alone, every_target=False, needs_target=False)
        rows = read_rows(Table(plain, alone, _FUTURE, text, steps, row_of), None, own.categories, near=own.time)
        same = match_ids(rows.names, own.names)
        if not_there := [name for name in rows.names if name not in same]:
            left_out, valid = listed(not_there), listed(own.names)
            if not same:
                raise UserError(f"{_FUTURE} is of series {left_out}, not of any in {source}; valid are {valid}")
            says = "%s: left out %d series that %s has not got: %s"
            logger.warning(says, _FUTURE, len(not_there), source, left_out)
    is_there = np.array([name in same for name in rows.names])
    kept = np.flatnonzero(is_there[rows.series])
    missing: dict[str, Any] = {
        name: np.full((len(kept), getattr(own, name).shape[1]), np.nan)
        for name in ("values", "past", "weights", "static")
    }
    return replace(
        rows,
        **missing,
        names=tuple(same[name] for name in rows.names if name in same),
        series=(np.cumsum(is_there) - 1)[rows.series[kept]],
        time=in_zone_of(own.time, rows.time[kept], _FUTURE, source),
        known=rows.known[kept],
        where=lambda row: rows.where(int(kept[row])),
        is_own=False,
        start=own.start + len(own.time),
    )


def listed(names: Sequence[Any]) -> str:
    """The first ids of some, for messages."""
    return one_of(shown(repr(name)) for name in names[:12]) + (", ..." if len(names) > 12 else "")
