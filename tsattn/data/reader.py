"""Read a long or wide table to a checked panel of series."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tsattn.data.assembly import Assembly
from tsattn.data.frequency import Times, is_steps
from tsattn.data.mapped import converted_folder, opened_panel
from tsattn.data.matching import with_future
from tsattn.data.panel import Panel
from tsattn.data.stamps import in_zone_of, no_times_of, time_numbers
from tsattn.data.table_options import RowWeights, TableOptions
from tsattn.data.table_rows import Roles, Rows, Table, assigned, computed, future_rows, read_rows
from tsattn.data.tables import opened
from tsattn.errors import UserError, shown
from tsattn.task import Task


@dataclass(frozen=True, kw_only=True)
class TableReader(TableOptions):
    """Reads a table to a panel. A long table has a row for each series and time stamp, a wide table one per time stamp.

    A table is long if `id_column` is given or it has a column ``unique_id`` or ``item_id``. Rows may come in any order:
    series are sorted by id, and rows by time. All repairs and omissions are logged to ``tsattn``.

    Time may be whole numbers that count steps. With future covariates, the rows of a series after its last target are
    its future. `TableOptions` describes the other fields.

    Attributes:
        strict: do not repair the table: time stamps must rise without gaps, and no cell may be empty.
        allow_missing: whether a strict reader accepts empty cells.
        trained_on: targets of tables that have all these columns; None leaves the choice to `target`.
        categorical: covariates to read as categories in any case; None finds covariates with categories.
        weights: weights of series and time intervals in a training.
        unread: columns to leave out, if the table has them.
        zone_of: time stamps of another table, whose time zone the stamps are converted to; None keeps the zone.
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
        """Make a reader from a user's arguments by name; missing arguments have defaults."""
        options = {field.name: given[field.name] for field in fields(TableOptions) if field.name in given}
        weights = RowWeights.of(given.get("series_weights"), given.get("row_weights"))
        return cls(**options, weights=weights, strict=strict)

    @property
    def options(self) -> TableOptions:
        """The options that decide the panel of a converted table."""
        return TableOptions(**{field.name: getattr(self, field.name) for field in fields(TableOptions)})

    def for_task(self, task: Task) -> TableReader:
        """The reader of other tables for a trained model, with the frequency and columns of its task."""
        return replace(
            self,
            frequency=task.frequency,
            trained_on=task.channels,
            past_covariates=task.past_covariates,  # all of them: for a converted table, the options may name only some
            future_covariates=task.future_covariates,
            static=task.static,
            categorical=(*task.categories_by_covariate,),
            zone_of=no_times_of(task),
        )

    def unweighted(self) -> TableReader:
        """The reader of tables to forecast from; it ignores a column of weights."""
        column = () if self.weight_column is None else (self.weight_column,)
        return replace(self, weight_column=None, weights=RowWeights(), unread=(*self.unread, *column))

    def read(
        self, table: Any, source: str = "the frame", *, future: Any = None, row_of: Callable[[int], str] | None = None
    ) -> Panel:
        """Read the series in a table; UserError names the series and the row (from 1) that are wrong.

        Args:
            table: a frame of pandas, polars (lazy or not), pyarrow or with ``__arrow_c_stream__``; a pandas Series; or
                the path of a file or of a converted table.
            source: name of a frame in messages.
            future: a frame or file of ids, time stamps and future covariates after the last row of each series.
            row_of: names a row (from 0) of a frame in messages; by default ``the frame, row 1`` and so on.
        """
        if (folder := converted_folder(table)) is not None:
            panel, zone = self.converted(folder), self.zone_of
            if zone is not None:
                panel = replace(panel, time=in_zone_of(zone, panel.time, str(folder), "the training data"))
            return panel if future is None else with_future(panel, future, self)
        given = self.table(table, source, row_of=row_of)
        roles, source, frequency = given.roles, given.source, self.frequency
        if self.strict and (frequency is None or not is_steps(frequency)):
            given = replace(given, frequency="D")  # do not read whole numbers as steps
        rows = read_rows(given, self.zone_of, self.categorical)
        if self.strict:
            _refuse_mending(rows, roles, allow_missing=self.allow_missing)
        parts = [rows] if future is None else [rows, future_rows(future, rows, roles, self, source)]

        def where(row: int) -> str:
            part = next(part for part in reversed(parts) if row >= part.start)
            return part.where(row - part.start)

        panel, cells = Assembly(
            *(lambda: parts, roles, source, where),
            frequency=frequency,
            max_filled=0.0 if self.strict else self.max_filled,
            every_target=not self.strict and self._targets(given.frame.columns) is None,
            is_strict=self.strict,
        ).panel()
        return self.weights.on(panel, cells, source) if self.weight_column is not None or self.weights else panel

    def converted(self, path: Path, folder: Path | None = None, *, verify: bool = False) -> Panel:
        """Open a converted table, or convert the table to `folder` and open it; see `opened_panel`."""
        if self.strict:
            raise UserError(f"strict does not work with tables on disk such as {path}: leave strict out")
        return opened_panel(path, self.options, self.weights, folder, verify=verify)

    def table(self, table: Any, source: str = "the frame", *, row_of: Callable[[int], str] | None = None) -> Table:
        """Open a table and find the roles of its columns without reading cells; arguments as in `read`."""
        if (folder := converted_folder(table)) is not None:
            panel = self.converted(folder)
            named: Any = {"id_column": None if panel.is_wide else panel.id_name, "time_column": panel.time_name}
            named |= {"target": panel.channels, "static": panel.static_names}
            named |= {"past_covariates": panel.past_names, "future_covariates": panel.future_names}
            return replace(self.unweighted(), **named).table(panel.to_frame(), str(folder))
        table = computed(table, source, lambda names: replace(self.options, target=self._targets(names)))
        frame, source, own_row_of = opened(table, source, self.id_column, self.time_column, self)
        if unread := [name for name in frame.columns if str(name) in self.unread]:  # an empty drop copies all
            frame = frame.drop(columns=unread)
        row_of, options = own_row_of or row_of, replace(self.options, target=self._targets(frame.columns))
        allow_steps = row_of is None and not self.strict
        frame, roles = assigned(frame, source, options, allow_steps=allow_steps)
        return Table(frame, roles, source, self, self.frequency, row_of)

    def _targets(self, columns: Iterable[Any]) -> Any:
        if self.trained_on is not None and {*self.trained_on} <= {*map(str, columns)}:
            return self.trained_on  # other columns are not targets
        return self.target


def panel_from_frame(table: Any, *, source: str = "the frame", future: Any = None, **options: Any) -> Panel:
    """Read the series in a table; options as in `TableReader`, other arguments as in `TableReader.read`."""
    return TableReader(**options).read(table, source, future=future)


def _refuse_mending(rows: Rows, roles: Roles, *, allow_missing: bool) -> None:
    order = np.argsort(rows.series, kind="stable")
    steps, is_same = np.diff(time_numbers(rows.time)[order]), np.diff(rows.series[order]) == 0
    if (falls := np.flatnonzero((steps <= 0) & is_same)).size:
        at = int(falls[order[falls + 1].argmin()])
        row, what = int(order[at + 1]), "goes back before" if steps[at] else "repeats"
        of = "" if len(rows.names) == 1 else f" of series {shown(rows.names[rows.series[row]])}"
        says = f"time stamp {rows.time[row]}{of} {what} the row before; sort the rows by time, without repeats"
        raise UserError(f"{rows.where(row)}: {says}")
    missing: NDArray[np.bool_] = np.isnan(np.concatenate([rows.values, rows.past, rows.known], axis=1))
    if roles.future:
        last, given = np.full(len(rows.names), -1), np.flatnonzero(~np.isnan(rows.values).all(axis=1))
        np.maximum.at(last, rows.series[given], given)
        missing &= (np.arange(len(missing)) <= last[rows.series])[:, None]
    if missing.any() and not allow_missing:
        row, column = np.argwhere(missing)[0].tolist()
        name = shown((*roles.target, *roles.past, *roles.future)[column])
        raise UserError(f"{rows.where(row)}: the value of {name} is missing; a finite number is needed")
