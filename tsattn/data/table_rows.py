"""Find the roles of the columns of a table, and read its rows, or a part of them, as arrays in the given order.

Shape letters: R rows, C targets, P past and F future covariates, K static columns.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data import columns as cells
from tsattn.data.columns import ID_COLUMNS, LONG_TABLES, TARGETS, TIME_COLUMNS, first_names, id_columns, is_lazy
from tsattn.data.frequency import Times
from tsattn.data.stamps import in_zone_of, read_times, time_form
from tsattn.data.table_options import TableOptions
from tsattn.data.tables import opened
from tsattn.errors import UserError, did_you_mean, first_line, one_of, quiet, shown

logger = logging.getLogger("tsattn")

NO_NAME = "ds"
"""Name of time stamps without a name."""
# columns of forecasts, next to ids and time stamps
_OUTPUTS = ("predictions", "cutoff", "y", "target_name")


@dataclass(frozen=True)
class Roles:
    """Roles of the columns of a table; a wide table has no id."""

    id: str | None
    time: str
    target: tuple[str, ...]
    past: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    weight: str | None = None

    @property
    def is_wide(self) -> bool:
        """Whether the table is one series, with a column for each channel."""
        return self.id is None

    @property
    def named(self) -> list[tuple[str, str]]:
        """Role and name of each column."""
        columns = {"id": (self.id,), "time": (self.time,), "target": self.target, "past covariate": self.past}
        columns |= {"future covariate": self.future, "static": self.static, "weight": (self.weight,)}
        return [(role, name) for role, names in columns.items() for name in names if name is not None]


def assigned(
    frame: pd.DataFrame, source: str, options: TableOptions, *, allow_steps: bool = False
) -> tuple[pd.DataFrame, Roles]:
    """Give each column of a table its role without checking its cells."""
    frame, time_column = plain_frame(frame, source, options.id_column, options.time_column, allow_steps=allow_steps)
    roles, every_target = find_roles(frame, source, replace(options, time_column=time_column)), options.target is None
    if roles.is_wide and every_target:
        # drop the saved index of a frame
        named, rows = {name for _, name in roles.named}, np.arange(len(frame))
        for name in (name for name in frame.columns if is_nameless(name) and name not in named):
            if pd.api.types.is_integer_dtype(frame[name].dtype) and np.array_equal(frame[name].to_numpy(), rows):
                says = "%s: column %s only numbers the rows, as a saved index does, and is not used"
                logger.warning(says, source, shown(repr(name)))
                frame = frame.drop(columns=name)
    return frame, check_roles(frame, source, roles, every_target=every_target)


def plain_frame(
    table: pd.DataFrame, source: str, id_column: str | None, time_column: str | None, *, allow_steps: bool = False
) -> tuple[pd.DataFrame, str | None]:
    """Make columns of ids and time with text names; return time's name; with `allow_steps` an index may count steps."""
    frame = table.set_axis([str(name) for name in table.columns], axis=1)
    columns, index = frame.columns, frame.index
    if not columns.is_unique:
        raise UserError(f"{source} has two columns {shown(columns[columns.duplicated()][0])}")
    known = {time_column, id_column, *(id_column or "").split("/"), *TIME_COLUMNS, *sum(LONG_TABLES, ())}
    levels = [name for name in index.names if name in known and name is not None and name not in columns]
    stamps = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
    is_time = isinstance(stamps, pd.DatetimeIndex)
    rival = None  # a column with a usual name of time, although the index has time stamps
    if is_time and time_column is id_column is None and not {*ID_COLUMNS} & {*columns}:
        # a long table has its time in a column, so ignore its index
        rival = next((name for name in TIME_COLUMNS if name in columns), None)
    are_same = rival is not None and _are_times(frame[rival], pd.DatetimeIndex(stamps))
    if are_same or (is_time and time_column in columns):
        levels = []  # do not make a column of the index
    elif rival is not None and len(columns) > 1:
        says = f"has time stamps as its index and a column {shown(rival)} that differs from it; give time_column"
        raise UserError(f"{source} {says} {shown(repr(rival))}, or rename that column if the index is the time")
    is_alone = rival is not None and not are_same  # then the column holds values
    has_time = bool(({*TIME_COLUMNS} if time_column is None else {time_column}) & {*columns})
    if levels and not is_alone:
        frame = frame.reset_index(level=levels)
    elif is_alone or (not has_time and (time_column is None or index.name is None)):
        are_numbers = len(columns) > 0 and all(map(pd.api.types.is_numeric_dtype, frame.dtypes))
        is_step = pd.api.types.is_integer_dtype(index) and index.is_unique and are_numbers and allow_steps
        if is_time or (is_step and not {id_column, *ID_COLUMNS} & {*columns}):
            own = None if index.name is None or str(index.name) in columns else str(index.name)
            free = next(name for name in (NO_NAME, *TIME_COLUMNS) if name not in columns)
            time_column = time_column or own or free
            frame = frame.set_axis(stamps.rename(time_column), axis=0).reset_index()
    return cells.with_joined_ids(frame.reset_index(drop=True), id_column, source), time_column


def _are_times(column: pd.Series, stamps: pd.DatetimeIndex) -> bool:
    is_period = isinstance(column.dtype, pd.PeriodDtype)
    column = column.dt.to_timestamp() if is_period else column
    column = column if pd.api.types.is_datetime64_any_dtype(column.dtype) else column.astype(str)
    read = pd.DatetimeIndex(pd.to_datetime(column, utc=True, errors="coerce", format="ISO8601"))
    return bool((read == (stamps.tz_localize("UTC") if stamps.tz is None else stamps)).all())


def is_nameless(column: str) -> bool:
    """Whether a file gives the column no name, so that pandas invents a name."""
    return re.fullmatch(r"(Unnamed: \d+(_level_\d+)?(\.\d+)*)?", column) is not None


def find_roles(frame: pd.DataFrame, source: str, named: TableOptions) -> Roles:
    """The roles that the user named; unnamed id, time and target columns are found by their usual names."""
    columns, target = set(frame.columns), named.target
    usual = next((names for names in LONG_TABLES if names[0] in columns), (None, "date"))
    id_column = named.id_column or usual[0]
    time = named.time_column or next((name for name in (usual[1], *TIME_COLUMNS) if name in columns), None)
    is_saved = time is None and len(frame) and len(columns) and is_nameless(frame.columns[0])
    if is_saved and not pd.api.types.is_numeric_dtype(frame.dtypes.iloc[0]):
        time = str(frame.columns[0])  # pandas saves an index of time stamps as the first column
    if time is None:
        mend = "Name it: --data.time_column NAME (Python: time_column=NAME)"
        raise UserError(f"no time column found in {source} (columns: {first_names(frame.columns, str)}). {mend}")
    if target is None and id_column is not None:
        target = next(((name,) for name in TARGETS if name in columns), None)
        if target is None:
            says = "is a long table without a column y or target; give target (--data.target); its columns are"
            raise UserError(f"{source} {says} {first_names(frame.columns, str)}")
    covariates = tuple(named.past_covariates), tuple(named.future_covariates), tuple(named.static)
    return Roles(id_column, time, tuple(target or ()), *covariates, named.weight_column)


def check_roles(
    frame: pd.DataFrame, source: str, roles: Roles, *, every_target: bool, needs_target: bool = True
) -> Roles:
    """Check that no column has two roles; with `every_target` the other columns of a wide table become targets."""
    columns, role_of = set(frame.columns), dict[str, str]()
    for role, name in roles.named:
        if name not in columns:
            hint = did_you_mean(shown(name), map(shown, frame.columns))
            valid = f"its columns are {first_names(frame.columns, str)}"
            raise UserError(f"{source} has no {role} column {shown(name)}{hint}; {valid}")
        if name in role_of:
            both = f"{role_of[name]} and as {role}"
            raise UserError(f"column {shown(name)} of {source} is named as {both}; a column has one role")
        role_of[name] = role
        if role in ("id", "time") and (name in _OUTPUTS or re.fullmatch(r"0?\.\d+", name)):
            holds = f"column {shown(name)} of {source} holds {'time stamps' if role == 'time' else 'ids'}"
            raise UserError(f"{holds}, but forecasts have a column of that name; rename it")
    joined = id_columns(roles.id, columns - {roles.id})
    rest = tuple(name for name in frame.columns if name not in role_of and name not in joined)
    if roles.is_wide and every_target:
        if nameless := [name for name in rest if is_nameless(name)]:
            says = "has no name in the file; name it, remove it, or list the targets (--data.target)"
            raise UserError(f"column {nameless[0]!r} of {source} {says}")
        if len(rest) > 1 and (usual := next((name for name in TARGETS if name in rest), None)) is not None:
            others = one_of(shown(name) for name in rest if name != usual)
            ways = f"target {usual} (the others as past_covariates or id_column), or target [{first_names(rest, str)}]"
            raise UserError(f"{source} has {usual} and also {others}: give {ways} to forecast all")
        roles = replace(roles, target=rest)
    elif rest:
        what = f"column {shown(rest[0])} is" if len(rest) == 1 else f"columns {one_of(map(shown, rest))} are"
        logger.warning("%s: %s not used (name covariates to use them)", source, what)
    if needs_target and not roles.target:
        raise UserError(f"{source} has no target column; its columns are {first_names(frame.columns, str)}")
    return roles


def computed(
    table: Any, source: str, options_of: Callable[[list[str]], TableOptions], *, needs_target: bool = True
) -> Any:
    """Compute the columns of a lazy frame that have a role by its names; return other tables unchanged."""
    if not is_lazy(table):
        return table
    try:
        schema = nw.from_native(table).collect_schema()
        columns = options_of(schema.names())
        empty = cells.with_joined_ids(pd.DataFrame(columns=schema.names()), columns.id_column, source)
        roles, every_target = find_roles(empty, source, columns), columns.target is None
        with quiet():  # do not log unused columns, which are not computed
            roles = check_roles(empty, source, roles, every_target=every_target, needs_target=needs_target)
        names = dict.fromkeys([*(name for _, name in roles.named), *id_columns(roles.id, schema.names())])
        used = [name for name in names if name in schema]
        if nested := [name for name in used if schema[name].is_nested()]:
            raise UserError(f"column {shown(nested[0])} of {source} holds {schema[nested[0]]}, not single values")
        return nw.from_native(table).select(used).collect().to_native()
    except UserError:
        raise
    except Exception as error:  # the other library may raise any error
        raise UserError(f"{source} cannot be computed: {first_line(error)}") from error


_FUTURE = "the frame of future values"


@dataclass(frozen=True)
class Table:
    """A table whose columns have roles."""

    frame: pd.DataFrame  # cells, not yet checked
    roles: Roles
    source: str  # name in messages
    text: TableOptions
    frequency: str | None = None  # None if unknown
    row_of: Callable[[int], str] | None = None  # names a row (from 0); None for ``the frame, row 1`` and so on

    def where(self, row: int) -> str:
        """The name of a row (from 0) in messages."""
        return f"{self.source}, row {row + 1}" if self.row_of is None else self.row_of(row)


@dataclass(frozen=True)
class Rows:
    """Rows of a table in the given order, with checked cells; missing numbers are NaN."""

    names: tuple[Any, ...]  # the ids in these rows, sorted; ``("series",)`` for a wide table
    series: NDArray[np.int64]  # `(R,)` number of the series of each row
    time: Times  # `(R,)` time stamps, or steps
    values: NDArray[np.float64]  # `(R, C)` targets
    past: NDArray[np.float64]  # `(R, P)` past covariates
    known: NDArray[np.float64]  # `(R, F)` future covariates
    weights: NDArray[np.float64]  # `(R, 1)`; `(R, 0)` without a column of weights
    static: NDArray[np.float64]  # `(R, K)` categories of the static columns, from 1 on
    where: Callable[[int], str]  # names a row (from 0) in messages
    categories: cells.Categories = field(default_factory=dict)  # of static columns, and of covariates with categories
    is_own: bool = True  # whether the rows are from the table, not from a separate future
    start: int = 0  # number of the first row, over all parts of the table


def read_rows(
    table: Table,
    zone_of: Times | None = None,
    categorical: Collection[str] | None = None,
    *,
    time: Times | None = None,
    near: Times | None = None,
    start: int = 0,
) -> Rows:
    """Read rows in the zone of `zone_of`; offsets may be in the zone of `near`. UserError names the first bad row."""
    frame, roles, where = table.frame, table.roles, table.where
    if not len(frame):
        raise UserError(f"{table.source} has no rows")
    if time is None:
        form = time_form([(frame[roles.time], where)], table.text.date_format, table.frequency)
        time = read_times(frame[roles.time], where, form, getattr(near if zone_of is None else zone_of, "tz", None))
    if zone_of is not None:
        time = in_zone_of(zone_of, time, table.source, "the training data")
    is_found = roles.is_wide and table.text.target is None and not {*roles.target} & {*TARGETS}
    values = cells.number_columns(frame, roles.target, where, cells.FOUND_TARGET if is_found else "target")
    past, of_past = cells.covariate_columns(frame, roles.past, where, "past covariate", categorical)
    known, of_known = cells.covariate_columns(frame, roles.future, where, "future covariate", categorical)
    weights = cells.number_columns(frame, () if roles.weight is None else (roles.weight,), where, "weight")
    for column in weights.T:  # a row without targets needs no weight
        for row in np.flatnonzero((column < 0) | (np.isnan(column) & ~np.isnan(values).all(axis=1)))[:1].tolist():
            what = "is missing" if np.isnan(column[row]) else f"is {column[row]:g}"
            says = f"the weight in column {shown(roles.weight)} {what}; a number of at least 0 is needed"
            raise UserError(f"{where(row)}: {says}")
    series, names = cells.series_numbers(None if roles.id is None else frame[roles.id], len(frame), where)
    static, of_static = cells.covariate_columns(frame, roles.static, where, "static", roles.static)
    categories = {**of_past, **of_known, **of_static}
    return Rows(names, series, time, values, past, known, weights, static, where, categories, start=start)


def future_rows(frame: Any, own: Rows, roles: Roles, text: TableOptions, source: str) -> Rows:
    """Read ids, time stamps and future covariates of a frame or file; log series that `own` rows do not have."""
    if not roles.future:
        says = "would not be used: no `future_covariates` were named before the fit"
        raise UserError(f"{_FUTURE} {says}; leave out `--future` (Python: `future=`)")
    steps = None if isinstance(own.time, pd.DatetimeIndex) else "1"
    with quiet(lifted=True):  # log about the future even if the table was read before
        named: Any = {"id_column": roles.id, "time_column": roles.time, "target": ()}
        columns = TableOptions(**named, future_covariates=roles.future)
        frame = computed(frame, _FUTURE, lambda _: columns, needs_target=False)
        table, _, row_of = opened(frame, _FUTURE, roles.id, roles.time, text)
        if isinstance(table.index, pd.DatetimeIndex | pd.PeriodIndex) and roles.time not in map(str, table.columns):
            table = table.rename_axis(index=None)  # the index is the time, whatever its name
        plain, _ = plain_frame(table, _FUTURE, roles.id, roles.time, allow_steps=row_of is None)
        alone = Roles(roles.id, roles.time, (), future=roles.future)
        alone = check_roles(plain, _FUTURE, alone, every_target=False, needs_target=False)
        rows = read_rows(Table(plain, alone, _FUTURE, text, steps, row_of), None, own.categories, near=own.time)
        same = cells.match_ids(rows.names, own.names)
        if not_there := [name for name in rows.names if name not in same]:
            left_out, valid = first_names(not_there), first_names(own.names)
            if not same:
                raise UserError(f"{_FUTURE} has series {left_out}, but none of {source}; valid are {valid}")
            says = "%s: left out %d series that are not in %s: %s"
            logger.warning(says, _FUTURE, len(not_there), source, left_out)
    is_there = np.array([name in same for name in rows.names])
    kept = np.flatnonzero(is_there[rows.series])
    empty = ("values", "past", "weights", "static")
    missing: dict[str, Any] = {name: np.full((len(kept), getattr(own, name).shape[1]), np.nan) for name in empty}
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
