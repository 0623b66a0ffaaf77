"""Many series of different lengths in one record, in original units.

Shape letters: S series, C target channels, P past-only covariates, F known-future covariates, K static columns.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.category_columns import Categories, category_names, with_categories
from tsattn.data.frequency import Times, future_index, infer_frequency, one_time
from tsattn.data.roles import NO_NAME
from tsattn.errors import UserError, one_of, shown
from tsattn.task import Task

__all__ = ["Panel", "wide_panel"]

logger = logging.getLogger("tsattn")


@dataclass(frozen=True, eq=False)
class Panel:
    """Series on regular time grids, laid end to end (`rows` is the sum of their lengths).

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
        static: `(S, K)` int64 numbers of the categories of each series; None without.
        static_names: their K columns.
        static_categories: the categories of each of these columns, sorted, as text.
        is_wide: whether the table was wide: one series, a column a channel.
        id_name: the column of ids.
        time_name: the column of time stamps.
        weights: `(rows, C)` float64 how much each target counts in a training; None: all alike.
        covariate_categories: by name, the categories of the covariates that are such, see `category_columns`.
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

    def __len__(self) -> int:
        """The number of series."""
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """`(S,)` rows of each series."""
        return np.diff(self.starts)

    def time_of(self, series: int) -> Times:
        """The time stamps of a series, which is given by its number."""
        return self.time[self.starts[series] : self.starts[series + 1]]

    def for_task(self, task: Task, source: str) -> Panel:
        """The same panel with the channels, covariates and categories of a trained model, in its order.

        Channels that it was not trained on are left out, which is logged.

        Args:
            task: what the model was trained for.
            source: what the table is, for messages.

        Raises:
            UserError: naming what is lacking, or another frequency.
        """
        if self.frequency != task.frequency:
            raise UserError(f"{source} has frequency {self.frequency!r}; the model was trained on {task.frequency!r}")
        unused = [name for name in self.channels if name not in task.channels]
        panel = self.with_channels(task.channels, source)
        if unused:
            logger.warning("%s: %s not used: the model was not trained on %s", source, *_as_parts_of_a_sentence(unused))
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
        weights = None if self.weights is None else self.weights[:, columns]
        return replace(self, channels=tuple(channels), values=self.values[:, columns], weights=weights)

    def future_time(self, series: int, horizon: int) -> Times:
        """The `horizon` time stamps after the last row of a series, which is given by its number."""
        return future_index(self.time[self.starts[series + 1] - 1], self.frequency, horizon)

    def future_times(self, numbers: NDArray[np.int64], horizon: int) -> Times:
        """The same of some of the series, end to end."""
        # most series end at a few time stamps: of many, a calendar is too slow to be asked for each
        places, ends = pd.factorize(self.time[self.starts[1:][numbers] - 1])
        first, *others = (future_index(end, self.frequency, horizon) for end in ends)
        steps = places[:, None] * horizon + np.arange(horizon)
        all_times = first.append(others).take(steps.ravel())
        return one_time(all_times)

    def future_for(self, horizon: int) -> NDArray[np.float64] | None:
        """The future covariates of the `horizon` steps after the last row of each series.

        Returns:
            `(S, horizon, F)` finite values, or None without future covariates.

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
        lacking = np.flatnonzero(np.isnan(self.ahead).all(axis=0))  # all of them if there are no rows ahead
        if lacking.size:
            names = one_of(shown(self.future_names[column]) for column in lacking)
            raise UserError(
                f"no future values of {names} were given; give one for each of the {horizon} steps to forecast, in "
                "rows after the last target or in a frame of future values"
            )
        missing = np.argwhere(np.isnan(values))
        if missing.size:
            series, step, column = missing[0].tolist()
            raise UserError(
                f"future covariate {shown(self.future_names[column])} stops early: {self._series(series)}no value at "
                f"{self.future_time(series, step + 1)[-1]}, step {step + 1} of the {horizon} to forecast; give one for "
                "each, in rows after the last target or in a frame of future values"
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
            return None if part is None or not wanted else part[:, [names.index(name) for name in wanted]]

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
            categories: the categories of each of them.
            source: what the table is, for messages.

        Raises:
            UserError: naming a column that is lacking, or a category that is not among those given and its series.
        """
        missing = [name for name in names if name not in self.static_names]
        if missing:
            raise UserError(f"{source} lacks the static column {missing[0]!r} that the model was trained with")
        columns = []
        for name, known in zip(names, categories, strict=True):
            assert self.static is not None
            k = self.static_names.index(name)
            number = {category: i for i, category in enumerate(known)}
            codes = np.array([number.get(category, -1) for category in self.static_categories[k]])[self.static[:, k]]
            if (codes < 0).any():
                series = int(codes.argmin())
                category = self.static_categories[k][self.static[series, k]]
                which = "" if self.is_wide else ", which"
                raise UserError(
                    f"static column {shown(name)}: {self._series(series)}category {shown(category)}{which} was not "
                    f"seen in training; valid are {one_of(map(shown, known[:20]))}"
                )
            columns.append(codes)
        return replace(
            self,
            static=np.stack(columns, axis=1).astype(np.int64) if columns else None,
            static_names=tuple(names),
            static_categories=tuple(tuple(known) for known in categories),
        )

    def until(self, ends: NDArray[np.int64]) -> Panel:
        """The same series, each up to a row; what is known of the future covariates after it becomes their future.

        Args:
            ends: `(S,)` rows of each series to keep, at least 1.
        """
        is_kept = self._rows_within(np.zeros_like(ends), ends)
        starts = np.concatenate([[0], np.cumsum(ends)])
        cut = self._rows(is_kept, starts)
        if self.future_covariates is None:
            return cut
        # of each series the rows that are cut off, then those that were ahead of it already
        steps = np.diff(self.ahead_starts)
        order = np.argsort(
            np.concatenate([np.arange(len(self)).repeat(self.lengths - ends), np.arange(len(self)).repeat(steps)]),
            kind="stable",
        )
        assert self.ahead is not None
        ahead = np.concatenate([self.future_covariates[~is_kept], self.ahead])[order]
        return replace(cut, ahead=ahead, ahead_starts=np.concatenate([[0], np.cumsum(self.lengths - ends + steps)]))

    def last_rows(self, rows: int) -> Panel:
        """The end of each series: `rows` rows, and as many more as it takes to hold a value of each channel."""
        known = np.where(np.isnan(self.values), -1, np.arange(len(self.values))[:, None])
        last_known = np.maximum.reduceat(known, self.starts[:-1]).min(axis=1) - self.starts[:-1]
        # a channel without any value needs no row
        first = np.minimum(np.maximum(self.lengths - rows, 0), np.where(last_known < 0, self.lengths, last_known))
        is_kept = self._rows_within(first, self.lengths)
        return self._rows(is_kept, np.concatenate([[0], np.cumsum(self.lengths - first)]))

    def take(self, numbers: NDArray[np.int64]) -> Panel:
        """Some of the series, given by rising numbers."""
        is_kept = np.isin(np.arange(len(self)), numbers)
        part = self._rows(is_kept.repeat(self.lengths), np.concatenate([[0], np.cumsum(self.lengths[numbers])]))
        steps = np.diff(self.ahead_starts)
        return replace(
            part,
            ids=tuple(self.ids[number] for number in numbers),
            ahead=None if self.ahead is None else self.ahead[is_kept.repeat(steps)],
            ahead_starts=np.concatenate([[0], np.cumsum(steps[numbers])]),
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
            columns[name] = np.array(categories, dtype=object)[self.static[:, k]].repeat(self.lengths)
        return pd.DataFrame(columns)

    def _rows_within(self, first: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
        """`(rows,)` whether a row of a series is from the row `first (S,)` of it on and before `end (S,)`."""
        row = np.arange(len(self.values)) - self.starts[:-1].repeat(self.lengths)
        inside: NDArray[np.bool_] = (row >= first.repeat(self.lengths)) & (row < end.repeat(self.lengths))
        return inside

    def _rows(self, is_kept: NDArray[np.bool_], starts: NDArray[np.int64]) -> Panel:
        return replace(
            self,
            time=self.time[is_kept],
            starts=starts,
            values=self.values[is_kept],
            weights=None if self.weights is None else self.weights[is_kept],
            past_covariates=None if self.past_covariates is None else self.past_covariates[is_kept],
            future_covariates=None if self.future_covariates is None else self.future_covariates[is_kept],
        )

    def _series(self, series: int) -> str:
        return "" if self.is_wide else f"series {shown(self.ids[series])} has "


def _as_parts_of_a_sentence(columns: Sequence[str]) -> tuple[str, str]:
    """Columns that are not used, as the subject of a message and as its object."""
    names = one_of(map(shown, columns))
    return (f"column {names} is", "it") if len(columns) == 1 else (f"columns {names} are", "them")


def wide_panel(frame: pd.DataFrame, source: str, *, frequency: str | None = None) -> Panel:
    """One series from a checked frame: float columns over regular time stamps.

    Args:
        frame: the columns are the channels.
        source: what the frame was read from, for messages.
        frequency: the one that its time stamps must have; None infers it.

    Raises:
        UserError: naming the first time stamp that is not regular.
    """
    time = pd.DatetimeIndex(frame.index)
    frequency = infer_frequency(time, source, expected=frequency)
    return Panel(
        ids=("series",),
        channels=tuple(map(str, frame.columns)),
        frequency=frequency,
        time=time,
        starts=np.array([0, len(frame)]),
        values=frame.to_numpy(dtype=np.float64),
        past_covariates=None,
        past_names=(),
        future_covariates=None,
        future_names=(),
        ahead=None,
        ahead_starts=np.zeros(2, np.int64),
        static=None,
        static_names=(),
        static_categories=(),
        is_wide=True,
        time_name=str(frame.index.name or NO_NAME),
    )
