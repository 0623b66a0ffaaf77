"""From a long or a wide table to a checked panel of series."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import category_codes
from tsattn.data.continued import with_future
from tsattn.data.frequency import Times, is_steps
from tsattn.data.grid_layout import GridLayout, lay_out
from tsattn.data.lazy_frames import collected
from tsattn.data.mapped.opening import converted_folder, opened_panel
from tsattn.data.matching import in_zone_of_model
from tsattn.data.panel import Panel
from tsattn.data.roles import (
    NO_NAME,
    Roles,
    check_roles,
    find_roles,
    is_nameless,
    plain_frame,
    without_saved_index,
)
from tsattn.data.table_options import TableOptions, given_options
from tsattn.data.table_rows import Rows, Table, check_rising, future_rows, read_rows, without_empty
from tsattn.data.tables import opened
from tsattn.data.time_numbers import no_times_of
from tsattn.data.weights import RowWeights, without_column
from tsattn.errors import UserError, number_of, one_of, shown
from tsattn.task import Task

__all__ = ["TableReader", "panel_from_frame"]

logger = logging.getLogger("tsattn")


@dataclass(frozen=True)
class TableReader(TableOptions):
    """How a table becomes a panel: a long table (a row a series and time stamp) or a wide one (a row a time stamp).

    A table is long if `id_column` is named or it has the columns ``unique_id`` or ``item_id``. Rows may come in any
    order: series are sorted by their ids, rows by time. A missing target is NaN; so is everything in the rows that fill
    a gap in time. What is done to a table beyond that is logged to the logger ``tsattn``: rows sorted by time, gaps
    filled, values missing, columns not used, series left out that have no value at all (columns of a wide table, unless
    they are listed), series of the future left out that the table has not got.

    Time may be whole numbers that count steps, in the column of time stamps or as the index of a wide frame of numbers.

    With future covariates, the rows of a series after the last one with a target are its future. Rows without a target
    need not repeat the static columns.

    What is named in `Columns` and said in `TableOptions` it has, too.

    Attributes:
        strict: nothing is mended: time stamps must rise from row to row of a series, without a gap, and every cell must
            hold a value.
        allow_missing: whether a strict reader takes empty cells.
        trained_on: the targets, of tables that have all of them; None leaves them to `target`.
        categorical: the covariates that are categories, however they are written; None finds them.
        weights: how much series and stretches of time count in a training.
        unread: columns that are left out, if they are there.
        zone_of: time stamps of another table, into whose time zone those of this one are converted; None leaves them.

    Raises:
        UserError: for what is none of these.
    """

    strict: bool = False
    allow_missing: bool = False
    trained_on: tuple[str, ...] | None = None
    categorical: Collection[str] | None = None
    weights: RowWeights = RowWeights()  # noqa: RUF009  # it is frozen
    unread: tuple[str, ...] = ()
    zone_of: Times | None = field(default=None, compare=False)

    @classmethod
    def of(cls, given: Mapping[str, Any], *, strict: bool = False) -> Self:
        """The reader that arguments of users describe, see `given_options`.

        Raises:
            UserError: for one that is not valid.
        """
        return cls(**given_options(given), strict=strict)

    @property
    def options(self) -> TableOptions:
        """What decides the panel of a table that is converted."""
        return TableOptions(**{field.name: getattr(self, field.name) for field in fields(TableOptions)})

    def for_task(self, task: Task) -> TableReader:
        """The reader of other tables for a trained model, whose frequency and channels it knows."""
        return replace(
            self,
            frequency=task.frequency,
            trained_on=task.channels,
            past_covariates=task.past_covariates,  # of a table that was converted, not all are named
            future_covariates=task.future_covariates,
            static=task.static,
            categorical=(*task.categories_by_covariate,),
            zone_of=no_times_of(task),
        )

    def unweighted(self) -> TableReader:
        """The reader of tables to forecast from, whose column of weights, if they have it, is not read."""
        column = () if self.weight_column is None else (self.weight_column,)
        return replace(self, weight_column=None, weights=RowWeights(), unread=(*self.unread, *column))

    @property
    def is_weighted(self) -> bool:
        """Whether rows or series count differently in a training."""
        return self.weight_column is not None or bool(self.weights)

    def plain_weights(self) -> dict[str, Any]:
        """The arguments of weights, as YAML has them; none where all count alike."""
        return {"weight_column": self.weight_column, **self.weights.plain()} if self.is_weighted else {}

    def read(
        self,
        table: Any,
        source: str = "the frame",
        *,
        future: Any = None,
        row_of: Callable[[int], str] | None = None,
    ) -> Panel:
        """The series in a table.

        Args:
            table: a pandas, polars or pyarrow frame, lazy or not, or any other with ``__arrow_c_stream__`` or
                ``__dataframe__``; a pandas Series, which is a wide table of one column; a path for `read_table`; or
                that of a folder that a table was converted to, all columns of which are taken where none are named.
            source: what a frame is, for messages.
            future: a frame, or file, of the ids, time stamps and future covariates after the last row of each series.
            row_of: names a row (from 0) of a frame in messages; by default ``the frame, row 1`` and so on.

        Raises:
            UserError: for a table that cannot be used, naming the series and the row (from 1).
        """
        folder = converted_folder(table)
        if folder is not None:
            return self._converted(folder, future)
        given = self.table(table, source, row_of=row_of)
        frame, roles, source, frequency = given.frame, given.roles, given.source, self.frequency
        if self.strict and (frequency is None or not is_steps(frequency)):
            given = replace(given, frequency="D")  # whole numbers are no dates here
        rows = read_rows(given, self.zone_of, self.categorical)
        if self.strict:
            check_rising(rows)
        elif roles.is_wide and self._targets(frame) is None:
            roles, rows = _without_empty_columns(roles, rows, source)
        if future is not None:
            steps = None if isinstance(rows.time, pd.DatetimeIndex) else "1"
            rows = rows.with_future(future_rows(future, roles, self.text, steps, rows.categories), source, roles)
        if not roles.is_wide:
            rows, kept = without_empty(rows, source)
            frame = frame if kept is None else frame.iloc[kept]
        codes, categories = _categories(frame, roles, rows)
        grids = self._on_grids(rows, roles, frequency, source)
        is_kept, ahead_starts = ~grids.is_ahead, grids.ahead_starts
        whole = bool(is_kept.all())

        def kept_rows(part: Any) -> Any:
            return part if whole else part[is_kept]

        panel = Panel(
            ids=rows.names,
            channels=roles.target,
            frequency=grids.layout.frequency,
            time=kept_rows(grids.layout.time),
            starts=grids.layout.starts - ahead_starts,
            values=kept_rows(grids.values),
            past_covariates=kept_rows(grids.past) if roles.past else None,
            past_names=roles.past,
            future_covariates=kept_rows(grids.known) if roles.future else None,
            future_names=roles.future,
            ahead=grids.known[grids.is_ahead] if roles.future else None,
            ahead_starts=ahead_starts,
            static=codes if roles.static else None,
            static_names=roles.static,
            static_categories=categories,
            covariate_categories=rows.categories,
            is_wide=roles.is_wide,
            id_name=Panel.id_name if roles.id is None else roles.id,
            time_name=NO_NAME if is_nameless(roles.time) else roles.time,
        )
        if not self.is_weighted:
            return panel
        cells = None if self.weight_column is None else kept_rows(grids.weights)
        return self.weights.on(panel, cells, source)

    def converted(self, path: Path, folder: Path | None = None, *, verify: bool = False) -> Panel:
        """What a table was converted to, or is, into a folder; the arguments are those of `opened_panel`.

        Raises:
            UserError: for what cannot be opened or converted, and for a strict reader.
        """
        if self.strict:
            raise UserError(f"strict reads tables into memory; a table such as {path} is mended where it is converted")
        return opened_panel(path, self.options, self.weights, folder, verify=verify)

    def _converted(self, folder: Path, future: Any) -> Panel:
        panel = self.converted(folder)
        if self.zone_of is not None:
            panel = in_zone_of_model(panel, self.zone_of, str(folder))
        return panel if future is None else with_future(panel, future, self.text)

    def table(self, table: Any, source: str = "the frame", *, row_of: Callable[[int], str] | None = None) -> Table:
        """A table whose columns are known to be there and have a role, no cell looked at; the arguments are `read`'s.

        Raises:
            UserError: for a table without the columns that it needs.
        """
        folder = converted_folder(table)
        if folder is not None:
            panel = self.converted(folder)
            return replace(self.unweighted(), **panel.named_columns()).table(panel.to_frame(), str(folder))
        table = collected(table, source, self.columns, self.weight_column)
        frame, source, own_row_of = opened(table, source, self.id_column, self.time_column, self.text)
        for column in self.unread:
            frame = without_column(frame, column)
        row_of = own_row_of or row_of
        allow_steps = row_of is None and not self.strict
        frame, time_column = plain_frame(frame, source, self.id_column, self.time_column, allow_steps=allow_steps)
        target = self._targets(frame)
        named = replace(self.columns, time_column=time_column, target=target)
        roles = replace(find_roles(frame, source, named), weight=self.weight_column)
        if roles.is_wide and target is None:
            frame = without_saved_index(frame, roles, source)
        roles = check_roles(frame, source, roles, every_target=target is None)
        return Table(frame, roles, source, self.text, self.frequency, row_of)

    def _targets(self, frame: pd.DataFrame) -> Any:
        """The targets that are asked for; None leaves them to the table."""
        if self.trained_on is not None and {*self.trained_on} <= {*map(str, frame.columns)}:
            return self.trained_on  # of other columns none is a target
        return self.target

    def _on_grids(self, rows: Rows, roles: Roles, frequency: str | None, source: str) -> _Grids:
        """Rows sorted and their gaps filled; with future covariates, what comes after the last targets is ahead."""
        layout = lay_out(
            *(rows.time, rows.series, rows.names, frequency, rows.where, source),
            is_wide=roles.is_wide,
            max_filled=0.0 if self.strict else self.max_filled,
            num_own=rows.num_own,
        )
        values, past, known = (layout.spread(part) for part in (rows.values, rows.past, rows.known))
        if not self.strict or self.allow_missing:
            _refuse_empty(values, layout.starts, roles, rows.names, source)
        is_ahead = np.zeros(len(values), dtype=bool)
        if roles.future:
            is_ahead = _is_after_last_target(values, layout.starts)
            _refuse_early_future(is_ahead[layout.places[rows.num_own :]], rows, roles)
            _log_ahead(is_ahead, past, roles.past, source)
        own = np.flatnonzero(~is_ahead[layout.places[: rows.num_own]]) if is_ahead.any() else slice(rows.num_own)
        parts = [part[own] for part in (rows.values, rows.past, rows.known)]
        if not self.strict:
            _log_missing(parts[0], np.concatenate(parts[1:], axis=1), roles, source)
        elif not self.allow_missing:
            missing = np.argwhere(np.isnan(np.concatenate(parts, axis=1)))
            if missing.size:
                row, column = missing[0].tolist()
                row = row if isinstance(own, slice) else int(own[row])
                name = shown((*roles.target, *roles.past, *roles.future)[column])
                raise UserError(f"{rows.where(row)}: the value of {name} is missing; a finite number is needed")
        return _Grids(layout, values, past, known, layout.spread(rows.weights), is_ahead)


def panel_from_frame(
    table: Any,
    *,
    source: str = "the frame",
    future: Any = None,
    row_of: Callable[[int], str] | None = None,
    **options: Any,
) -> Panel:
    """The series in a table; the options are those of `TableReader`, the other arguments those of its `read`."""
    return TableReader(**options).read(table, source, future=future, row_of=row_of)


@dataclass(frozen=True)
class _Grids:
    """Rows on the time grids of their series: `(rows, ...)`, series end to end, NaN in filled rows.

    Attributes:
        layout: the time stamps, and where each series starts.
        values: `(rows, C)` float64 targets.
        past: `(rows, P)` float64 past covariates.
        known: `(rows, F)` float64 future covariates.
        weights: `(rows, 1)` float64 cells of the column of weights; `(rows, 0)` without.
        is_ahead: `(rows,)` whether a row comes after the last target of its series, so that it is its future; none is
            without future covariates.
    """

    layout: GridLayout
    values: NDArray[np.float64]
    past: NDArray[np.float64]
    known: NDArray[np.float64]
    weights: NDArray[np.float64]
    is_ahead: NDArray[np.bool_]

    @property
    def ahead_starts(self) -> NDArray[np.int64]:
        """`(S + 1,)` how many rows ahead there are before each series, and in all."""
        starts = self.layout.starts
        if not self.is_ahead.any():
            return np.zeros_like(starts)
        steps = np.add.reduceat(self.is_ahead, starts[:-1], dtype=np.int64)
        return np.concatenate([[0], np.cumsum(steps)])


def _categories(frame: pd.DataFrame, roles: Roles, rows: Rows) -> tuple[NDArray[np.int64], tuple[tuple[str, ...], ...]]:
    """`(S, K)` the category of each series in each static column, and the categories of each column."""
    if not roles.static:
        return np.empty((len(rows.names), 0), np.int64), ()
    own = slice(rows.num_own)
    may_lack = np.atleast_1d(np.isnan(rows.values[own]).all(axis=1))
    return category_codes(frame, roles.static, rows.series[own], rows.names, rows.where, may_lack)


def _without_empty_columns(roles: Roles, rows: Rows, source: str) -> tuple[Roles, Rows]:
    """A wide table without the targets that have no value, which is logged; as it is if none has one."""
    is_full = np.atleast_1d(~np.isnan(rows.values).all(axis=0))
    if is_full.all() or not is_full.any():
        return roles, rows
    empty = [shown(name) for name, is_kept in zip(roles.target, is_full, strict=True) if not is_kept]
    what = f"column {empty[0]}" if len(empty) == 1 else f"columns {one_of(empty)}"
    logger.warning("%s: left out %s, without any value", source, what)
    targets = tuple(name for name, is_kept in zip(roles.target, is_full, strict=True) if is_kept)
    return replace(roles, target=targets), replace(rows, values=rows.values[:, is_full])


def _refuse_empty(
    values: NDArray[np.float64], starts: NDArray[np.int64], roles: Roles, names: tuple[Any, ...], source: str
) -> None:
    is_known = ~np.isnan(values)
    if is_known.all():
        return
    empty = np.argwhere(~np.logical_or.reduceat(is_known, starts[:-1]))
    if empty.size:
        number, channel = empty[0].tolist()
        series = "" if roles.is_wide else f" of series {shown(names[number])}"
        raise UserError(
            f"{source}: every value of {shown(roles.target[channel])}{series} is missing; at least one is needed"
        )


def _is_after_last_target(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(rows,)` whether no target of a series is known in a row or after it."""
    rows = np.arange(len(values))
    last = np.maximum.reduceat(np.where(np.isnan(values).all(axis=1), -1, rows), starts[:-1])
    return rows > np.repeat(last, np.diff(starts))


def _refuse_early_future(is_ahead: NDArray[np.bool_], rows: Rows, roles: Roles) -> None:
    """Refuse a future that the table has targets for, given of each of its rows whether it comes after the last one."""
    late = np.flatnonzero(~is_ahead)
    if late.size:
        row = rows.num_own + int(late[0])
        of = "" if roles.is_wide else f" of series {shown(rows.names[rows.series[row]])}"
        raise UserError(
            f"{rows.where(row)}: time stamp {rows.time[row]}{of} does not come after the last row with a target"
        )


def _log_missing(values: NDArray[np.float64], covariates: NDArray[np.float64], roles: Roles, source: str) -> None:
    """Log how many targets `(rows, C)` and values of covariates `(rows, P + F)` are missing."""
    if missing := np.isnan(values).sum():
        logger.warning("%s: %d of %d values are missing; they are masked, never scored", source, missing, values.size)
    for name, column in zip((*roles.past, *roles.future), covariates.T, strict=True):
        if missing := np.isnan(column).sum():
            logger.warning(
                "%s: covariate %s: %d of %d values are missing; a model that needs one sees the last known",
                *(source, shown(name), missing, column.size),
            )


def _log_ahead(
    is_ahead: NDArray[np.bool_], past: NDArray[np.float64], past_names: tuple[str, ...], source: str
) -> None:
    if is_ahead.any():
        rows = number_of(is_ahead.sum(), "row")
        logger.info("%s: read %s after the last targets as the future of the covariates", source, rows)
    unused = np.atleast_1d((is_ahead[:, None] & ~np.isnan(past)).any(axis=0))
    if unused.any():
        names = [shown(name) for name, is_unused in zip(past_names, unused, strict=True) if is_unused]
        what = f"covariate{'' if len(names) == 1 else 's'} {one_of(names)}"
        logger.warning("%s: values of the past %s after the last targets are not used", source, what)
