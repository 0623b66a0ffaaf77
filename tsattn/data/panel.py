"""Many series of different lengths in one record, in original units.

Shape letters: S series, C target channels, P past-only covariates, F known-future covariates, K static columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.category_columns import UNSEEN, Categories, category_names, with_categories
from tsattn.data.files import FileView
from tsattn.data.frequency import Times
from tsattn.data.horizon_times import times_after
from tsattn.data.row_ranges import columns_of, is_mapped, last_row_of_places, run_blocks, runs_of
from tsattn.data.stamps import in_zone_of_task, time_numbers, time_unit, times_of
from tsattn.errors import UserError, number_of, one_of, shown
from tsattn.task import Task

__all__ = ["Panel"]

logger = logging.getLogger("tsattn")


@dataclass(frozen=True, eq=False)
class Panel:
    """Series on regular time grids, laid end to end (`rows` is the sum of their lengths).

    The arrays of rows may be views of files (`numpy.memmap`, float32 where that loses nothing), see `data/mapped`.

    Attributes:
        ids: the id of each series as given, sorted; ``("series",)`` for a wide table.
        channels: the target columns: one for most long tables, every value column of a wide one.
        frequency: pandas frequency of all series; a whole number where time counts steps.
        time: `(rows,)` time stamps, in the time zone given, or steps.
        starts: `(S + 1,)` int64 first row of each series, and `rows`.
        values: `(rows, C)` float64, NaN where missing or filled.
        past_covariates: `(rows, P)` float64 covariates known for the past only, NaN where missing; None without.
        past_names: their P columns.
        future_covariates: `(rows, F)` float64 covariates known for the future too, NaN where missing; None without.
        future_names: their F columns.
        ahead: `(sum of steps ahead, F)` float64 values of the future covariates after the last row of each series,
            laid end to end; None without future covariates.
        ahead_starts: `(S + 1,)` int64 first row of each series in `ahead`, and its length.
        static: `(S, K)` int64 numbers of the categories of each series, -1 for one not seen in training; None without.
        static_names: their K columns.
        static_categories: the categories of each of these columns, sorted, as text.
        is_wide: whether the table was wide: one series, a column a channel.
        id_name: the column of ids.
        time_name: the column of time stamps.
        weights: `(rows, C)` float64 how much each target counts in a training; None: all alike.
        covariate_categories: by name, the categories of the covariates that are such, see `category_columns`.
        complete: those arrays of rows of which it is known that no number is missing; of others it is found out.
        fills_ahead: whether what is missing in `ahead` is imputed, as of rows that are past by now; else it is refused.
    """

    ids: tuple[Any, ...]
    channels: tuple[str, ...]
    frequency: str
    time: Times
    starts: NDArray[np.int64]
    values: NDArray[np.float64]
    past_covariates: NDArray[np.float64] | None
    past_names: tuple[str, ...]
    future_covariates: NDArray[np.float64] | None
    future_names: tuple[str, ...]
    ahead: NDArray[np.float64] | None
    ahead_starts: NDArray[np.int64]
    static: NDArray[np.int64] | None
    static_names: tuple[str, ...]
    static_categories: tuple[tuple[str, ...], ...]
    is_wide: bool
    id_name: str = "unique_id"
    time_name: str = "ds"
    weights: NDArray[np.float64] | None = None
    covariate_categories: Categories = field(default_factory=dict)
    complete: frozenset[str] = frozenset()
    fills_ahead: bool = False

    def __len__(self) -> int:
        """The number of series."""
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """`(S,)` rows of each series."""
        return np.diff(self.starts)

    @property
    def is_mapped(self) -> bool:
        """Whether the rows lie in files, and not in memory."""
        return is_mapped(self.values)

    def blocks(self) -> Iterator[slice]:
        """The numbers of the series in blocks that may be held in memory: all at once if they lie there."""
        width = len(self.channels) + len(self.past_names) + len(self.future_names)
        yield from run_blocks(self.starts, width, mapped=self.is_mapped)

    def time_of(self, series: int) -> Times:
        """The time stamps of a series, which is given by its number."""
        return self.time[self.starts[series] : self.starts[series + 1]]

    def for_task(self, task: Task, source: str) -> Panel:
        """The same panel with the channels, covariates and categories of a trained model, in its order.

        Args:
            task: what the model was trained for; other channels are left out, which is logged.
            source: what the table is, for messages.

        Raises:
            UserError: naming what is lacking, or another frequency.
        """
        if self.frequency != task.frequency:
            raise UserError(f"{source} has frequency {self.frequency!r}; the model was trained on {task.frequency!r}")
        unused = [shown(name) for name in self.channels if name not in task.channels]
        panel = in_zone_of_task(self, task, source).with_channels(task.channels, source)
        if unused:
            noun, verb, it = ("column", "is", "it") if len(unused) == 1 else ("columns", "are", "them")
            says = "%s: %s %s %s not used: the model was not trained on %s"
            logger.warning(says, source, noun, one_of(unused), verb, it)
        panel = panel.with_covariates(task.past_covariates, task.future_covariates, source)
        panel = with_categories(
            panel, task.past_covariates, task.future_covariates, task.categories_by_covariate, source
        )
        return panel.with_static(task.static, task.categories, source)

    def with_channels(self, channels: Sequence[str], source: str) -> Panel:
        """The same panel with these target columns, in this order.

        Raises:
            UserError: naming the first that it lacks.
        """
        missing = [name for name in channels if name not in self.channels]
        if missing:
            raise UserError(f"{source} lacks channel {missing[0]!r}; the model was trained on {one_of(channels)}")
        columns = [self.channels.index(name) for name in channels]
        weights = None if self.weights is None else columns_of(self.weights, columns)
        return replace(self, channels=tuple(channels), values=columns_of(self.values, columns), weights=weights)

    def future_time(self, series: int, horizon: int) -> Times:
        """The `horizon` time stamps after the last row of a series, which is given by its number."""
        return self.future_times(np.array([series]), horizon)

    def future_times(self, numbers: NDArray[np.int64], horizon: int) -> Times:
        """The same of some of the series, end to end."""
        return times_after(self.time, self.starts, numbers, self.frequency, horizon)

    def future_for(self, horizon: int) -> NDArray[np.float64] | None:
        """The future covariates of the `horizon` steps after the last row of each series.

        Returns:
            `(S, horizon, F)` values, finite unless `fills_ahead`; None without future covariates.

        Raises:
            UserError: naming the id and the first time stamp without a value.
        """
        if self.ahead is None:
            return None
        steps = np.arange(horizon)
        rows = self.ahead_starts[:-1, None] + steps
        given = rows < self.ahead_starts[1:, None]
        values = np.full((len(self), horizon, len(self.future_names)), np.nan)
        values[given] = self.ahead[rows[given]]
        if self.fills_ahead:
            return values
        lacking = np.flatnonzero(np.isnan(self.ahead).all(axis=0))  # all of them if there are no rows ahead
        if lacking.size:
            names = one_of(f"`{shown(self.future_names[column])}`" for column in lacking)
            raise UserError(
                f"{names} {'has' if lacking.size == 1 else 'have'} no values for the next "
                f"{number_of(horizon, 'step')}; pass them with `--future FILE` (Python: `future=frame`)"
            )
        missing = np.argwhere(np.isnan(values))
        if missing.size:
            series, step, column = missing[0].tolist()
            raise UserError(
                f"future covariate {shown(self.future_names[column])} stops early: {self._series(series)}no value at "
                f"{self.future_time(series, step + 1)[-1]}, step {step + 1} of the {horizon} to forecast; pass one for "
                "each with `--future FILE` (Python: `future=frame`)"
            )
        return values

    def with_covariates(self, past: Sequence[str], future: Sequence[str], source: str) -> Panel:
        """The same panel with these covariates, in this order.

        Raises:
            UserError: naming the first that it lacks.
        """
        for kind, wanted, names in (("past", past, self.past_names), ("future", future, self.future_names)):
            missing = [name for name in wanted if name not in names]
            if missing:
                raise UserError(f"{source} lacks the {kind} covariate {missing[0]!r} that the model was trained with")

        def columns(part: NDArray[np.float64] | None, wanted: Sequence[str], names: Sequence[str]) -> Any:
            return None if part is None or not wanted else columns_of(part, [names.index(name) for name in wanted])

        return replace(
            self,
            past_covariates=columns(self.past_covariates, past, self.past_names),
            past_names=tuple(past),
            future_covariates=columns(self.future_covariates, future, self.future_names),
            ahead=columns(self.ahead, future, self.future_names),
            future_names=tuple(future),
            covariate_categories={
                name: known for name, known in self.covariate_categories.items() if name in {*past, *future}
            },
        )

    def with_static(self, names: Sequence[str], categories: Sequence[Sequence[str]], source: str) -> Panel:
        """The same panel with these static columns, in this order, numbered by the categories given.

        Args:
            names: the static columns of a trained model.
            categories: the categories of each of them; another one gets the number -1, which is logged.
            source: what the table is, for messages.

        Raises:
            UserError: naming a column that is lacking.
        """
        missing = [name for name in names if name not in self.static_names]
        if missing:
            raise UserError(f"{source} lacks the static column {missing[0]!r} that the model was trained with")
        columns = []
        for name, known in zip(names, categories, strict=True):
            assert self.static is not None
            k = self.static_names.index(name)
            number = {category: i for i, category in enumerate(known)}
            numbers = [*(number.get(category, -1) for category in self.static_categories[k]), -1]
            codes = np.array(numbers)[self.static[:, k]]
            self._tell_unseen(k, codes < 0, source)
            columns.append(codes)
        return replace(
            self,
            static=np.stack(columns, axis=1).astype(np.int64) if columns else None,
            static_names=tuple(names),
            static_categories=tuple(tuple(known) for known in categories),
        )

    def _tell_unseen(self, column: int, is_unseen: NDArray[np.bool_], source: str) -> None:
        """Log the series whose category in a static column was not seen in training, unless that was said before."""
        assert self.static is not None
        texts = [*self.static_categories[column], UNSEEN]
        found = {int(series): texts[self.static[series, column]] for series in np.flatnonzero(is_unseen)}
        told = [(series, text) for series, text in found.items() if text != UNSEEN]
        if told:
            named = [f"{self._series(series)}category {shown(text)}" for series, text in told[:12]]
            more = ", ..." if len(told) > 12 else ""
            says = "%s: static column %s: %s, not seen in training: the mean of the learnt categories takes the place"
            logger.warning(says, source, shown(self.static_names[column]), one_of(named) + more)

    def until(self, ends: NDArray[np.int64]) -> Panel:
        """The same series, each up to a row; what is known of the future covariates after it becomes their future.

        Args:
            ends: `(S,)` rows of each series to keep, at least 1.
        """
        cut = self._part(np.arange(len(self)), np.zeros_like(ends), ends)
        if self.future_covariates is None:
            return cut
        # of each series the rows that are cut off, then those that were ahead of it already
        cut_off, steps = self.lengths - ends, np.diff(self.ahead_starts)
        order = np.argsort(
            np.concatenate([np.arange(len(self)).repeat(cut_off), np.arange(len(self)).repeat(steps)]), kind="stable"
        )
        assert self.ahead is not None
        known = runs_of(self.future_covariates, self.starts[:-1] + ends, cut_off)
        ahead = np.concatenate([known, self.ahead])[order]
        return replace(cut, ahead=ahead, ahead_starts=np.concatenate([[0], np.cumsum(cut_off + steps)]))

    def last_rows(self, rows: int | NDArray[np.int64], seasons: Sequence[int] = ()) -> Panel:
        """The end of each series: `rows` rows (of all, or of each), and those that impute what is missing in the first.

        These begin with the last known number of each column, target or covariate, that is missing there.

        Args:
            rows: of all series, or of each.
            seasons: lengths of seasons; of each place in one whose target is missing at first, the last known value is
                kept, too.
        """
        first = np.maximum(self.lengths - rows, 0)
        begin = first.copy()
        for part in (self.values, self.past_covariates, self.future_covariates):
            if part is None:
                continue
            for season in (1, *seasons) if part is self.values else (1,):
                places = np.minimum(first[:, None] + np.arange(season), self.lengths[:, None] - 1)
                missing = np.isnan(part[self.starts[:-1, None] + places])
                for number in np.flatnonzero(missing.any(axis=(1, 2)) & (first > 0)):
                    start = int(self.starts[number])
                    known = last_row_of_places(part, start, start + int(first[number]), season)
                    # a column without any number before needs no row
                    wanted = known[missing[number] & (known >= 0)]
                    begin[number] = min(begin[number], wanted.min(initial=start + begin[number]) - start)
        return self._part(np.arange(len(self)), begin, self.lengths)

    def take(self, numbers: NDArray[np.int64]) -> Panel:
        """Some of the series, given by rising numbers."""
        part = self._part(numbers, np.zeros(len(numbers), np.int64), self.lengths[numbers])
        steps = np.diff(self.ahead_starts)[numbers]
        return replace(
            part,
            ids=tuple(self.ids[number] for number in numbers),
            ahead=None if self.ahead is None else runs_of(self.ahead, self.ahead_starts[:-1][numbers], steps),
            ahead_starts=np.concatenate([[0], np.cumsum(steps)]),
            static=None if self.static is None else self.static[numbers],
        )

    def channels_as_series(self) -> Panel:
        """The channels of a wide table as series of their own, sorted by name, with one channel ``y``; ids are names.

        Each has the whole time and all covariates.

        Raises:
            UserError: if the table was not wide.
        """
        if not self.is_wide:
            raise UserError("the table has series already; only the channels of a wide table become series")
        order = np.argsort(np.array(self.channels, dtype=object))
        S, steps = len(order), int(self.ahead_starts[-1])

        def repeated(part: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if part is None else np.tile(part, (S, 1))

        return replace(
            self,
            ids=tuple(self.channels[number] for number in order),
            channels=("y",),
            time=self.time.take(np.tile(np.arange(len(self.time)), S)),
            starts=np.arange(S + 1) * len(self.values),
            values=np.ascontiguousarray(self.values.T[order]).reshape(-1, 1),
            weights=None if self.weights is None else np.ascontiguousarray(self.weights.T[order]).reshape(-1, 1),
            past_covariates=repeated(self.past_covariates),
            future_covariates=repeated(self.future_covariates),
            ahead=repeated(self.ahead),
            ahead_starts=np.arange(S + 1) * steps,
            static=repeated(self.static),
            is_wide=False,
        )

    def to_frame(self) -> pd.DataFrame:
        """The table that this panel would be read from: without the future of the covariates, gaps filled."""
        columns: dict[str, Any] = {}
        if not self.is_wide:
            columns[self.id_name] = pd.Index([*self.ids], tupleize_cols=False).repeat(self.lengths)
        columns[self.time_name] = self.time
        for part, names in (
            (self.values, self.channels),
            (self.past_covariates, self.past_names),
            (self.future_covariates, self.future_names),
        ):
            if part is not None:
                columns.update(zip(names, part.T, strict=True))
        for name, known in self.covariate_categories.items():
            columns[name] = category_names(columns[name], known)
        for k, (name, categories) in enumerate(zip(self.static_names, self.static_categories, strict=True)):
            assert self.static is not None
            columns[name] = np.array([*categories, UNSEEN], dtype=object)[self.static[:, k]].repeat(self.lengths)
        return pd.DataFrame(columns)

    def named_columns(self) -> dict[str, Any]:
        """Which column of `to_frame` is what, by the arguments of `tsattn.data.table_options.Columns`."""
        names = {"time_column": self.time_name, "target": self.channels, "static": self.static_names}
        covariates = {"past_covariates": self.past_names, "future_covariates": self.future_names}
        return {"id_column": None if self.is_wide else self.id_name, **names, **covariates}

    def with_future(self, future: Any) -> Panel:
        """See `tsattn.data.continued.with_future`."""
        from tsattn.data.continued import with_future

        return with_future(self, future)

    def append(self, later: Panel) -> Panel:
        """See `tsattn.data.continued.appended`."""
        from tsattn.data.continued import appended

        return appended(self, later)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: of arrays in files where they are."""
        time = FileView.of(time_numbers(self.time))
        stamps = self.time if time is None else (time, time_unit(self.time), getattr(self.time, "tz", None))
        return {**{name: FileView.of(part) or part for name, part in vars(self).items()}, "time": stamps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fields = {name: part.open() if isinstance(part, FileView) else part for name, part in state.items()}
        time = fields["time"]
        vars(self).update(fields, time=times_of(time[0].open(), *time[1:]) if isinstance(time, tuple) else time)

    def _part(self, numbers: NDArray[np.int64], first: NDArray[np.int64], end: NDArray[np.int64]) -> Panel:
        """The rows of the series `numbers (n,)` from the row `first (n,)` of each on and before `end (n,)`."""
        begin, lengths = self.starts[:-1][numbers] + first, end - first

        time = runs_of(time_numbers(self.time), begin, lengths)
        arrays: dict[str, Any] = {}
        for name in ("values", "weights", "past_covariates", "future_covariates"):
            arrays[name] = None if (part := getattr(self, name)) is None else runs_of(part, begin, lengths)
        return replace(
            self,
            time=times_of(time, time_unit(self.time), getattr(self.time, "tz", None)),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            **arrays,
        )

    def _series(self, series: int) -> str:
        return "" if self.is_wide else f"series {shown(self.ids[series])} has "
