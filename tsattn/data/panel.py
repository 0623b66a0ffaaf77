"""Many series of different lengths in one record, in original units.

Shape letters: S series, C target channels, P past-only covariates, F known-future covariates, K static columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import UNSEEN, Categories
from tsattn.data.frequency import Times, future_index, one_time, wall_times
from tsattn.data.row_ranges import FileView, columns_of, is_mapped, last_row_of_places, runs_of
from tsattn.data.stamps import time_numbers, time_unit, times_of
from tsattn.errors import UserError


@dataclass(frozen=True, eq=False, kw_only=True)
class Panel:
    """Series on regular time grids, concatenated (`rows` is the sum of their lengths).

    The arrays of rows may be views of files (`numpy.memmap`, float32 if that is exact), see `data/mapped.py`.

    Missing or filled numbers are NaN; an array is None if the table lacks its columns.
    """

    ids: tuple[Any, ...]  # ids of the series, sorted; ``("series",)`` for a wide table
    channels: tuple[str, ...]  # target columns: one in most long tables, every value column of a wide table
    frequency: str  # pandas frequency of all series; a whole number if time counts steps
    time: Times  # (rows,) time stamps, in the table's time zone, or steps
    starts: NDArray[np.int64]  # (S + 1,) first row of each series, and `rows`
    values: NDArray[np.float64]  # (rows, C)
    past_covariates: NDArray[np.float64] | None = None  # (rows, P) known for the past only
    past_names: tuple[str, ...] = ()
    future_covariates: NDArray[np.float64] | None = None  # (rows, F) known for the future, too
    future_names: tuple[str, ...] = ()
    ahead: NDArray[np.float64] | None = None  # (steps ahead, F) future covariates after each series, concatenated
    ahead_starts: NDArray[np.int64]  # (S + 1,) first row of each series in `ahead`, and its length
    static: NDArray[np.int64] | None = None  # (S, K) numbers of categories, -1 if not seen in training
    static_names: tuple[str, ...] = ()
    static_categories: tuple[tuple[str, ...], ...] = ()  # sorted categories of each static column, as text
    is_wide: bool = False  # whether the table was wide: one series, with a column for each channel
    id_name: str = "unique_id"
    time_name: str = "ds"
    weights: NDArray[np.float64] | None = None  # (rows, C) how much each target counts in a training; None: equally
    covariate_categories: Categories = field(default_factory=dict)  # by name, for covariates with categories
    fills_ahead: bool = False  # impute missing values in `ahead`, as in past rows; False refuses them

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """`(S,)`: number of rows of each series."""
        return np.diff(self.starts)

    @property
    def is_mapped(self) -> bool:
        """Whether the rows lie in files instead of memory."""
        return is_mapped(self.values)

    def time_of(self, series: int) -> Times:
        """The time stamps of the series with this number."""
        return self.time[self.starts[series] : self.starts[series + 1]]

    def future_time(self, series: int, horizon: int) -> Times:
        """The `horizon` time stamps, or steps, after the last row of the series with this number."""
        return self.future_times(np.array([series]), horizon)

    def future_times(self, numbers: NDArray[np.int64], horizon: int) -> Times:
        """The `horizon` time stamps, or steps, after the last row of each of these series, concatenated."""
        last = self.starts[1:][numbers] - 1
        # the stamp before shows if a change of clocks moved the last stamp; for a single row, use the panel's first
        before = np.where(last > self.starts[:-1][numbers], last - 1, 0)
        # most series end at a few time stamps; computing them for each of many series would be slow
        codes = [pd.factorize(self.time[rows])[0] for rows in (last, before)]
        _, some, places = np.unique(codes[0] * (codes[1].max() + 1) + codes[1], return_index=True, return_inverse=True)
        parts = []
        for earlier, end in zip(self.time[before[some]], self.time[last[some]], strict=True):
            wall = None
            if isinstance(end, pd.Timestamp) and end.tz is not None:
                wall = pd.Timestamp(wall_times(pd.DatetimeIndex([earlier, end]))[1]).as_unit(end.unit)
            parts.append(future_index(end, self.frequency, horizon, wall))
        steps = places[:, None] * horizon + np.arange(horizon)
        return one_time(parts[0].append(parts[1:]).take(steps.ravel()))

    def select(
        self,
        *,
        channels: Sequence[str] | None = None,
        past: Sequence[str] | None = None,
        future: Sequence[str] | None = None,
        static: Sequence[str] | None = None,
    ) -> Panel:
        """Keep these columns, in this order; None keeps all."""
        changed: dict[str, Any] = {}
        for wanted, names, parts in (
            (channels, "channels", ("values", "weights")),
            (past, "past_names", ("past_covariates",)),
            (future, "future_names", ("future_covariates", "ahead")),
            (static, "static_names", ("static",)),
        ):
            if wanted is None:
                continue
            columns = [getattr(self, names).index(name) for name in wanted]
            changed[names] = tuple(wanted)
            for part in parts:
                array = getattr(self, part) if columns or part == "values" else None
                changed[part] = None if array is None else columns_of(array, columns)
            if names == "static_names":
                changed["static_categories"] = tuple(self.static_categories[column] for column in columns)
        panel = replace(self, **changed)
        kept = {*panel.past_names, *panel.future_names}
        known = {name: own for name, own in self.covariate_categories.items() if name in kept}
        return replace(panel, covariate_categories=known)

    def until(self, ends: NDArray[np.int64]) -> Panel:
        """Keep the first `ends (S,)` rows of each series, at least 1; later future covariates become its future."""
        cut = self._part(np.arange(len(self)), np.zeros_like(ends), ends)
        if self.future_covariates is None or self.ahead is None:
            return cut
        # for each series: first the rows that are cut off, then its previous future
        cut_off, steps = self.lengths - ends, np.diff(self.ahead_starts)
        numbers = np.arange(len(self))
        order = np.argsort(np.concatenate([numbers.repeat(cut_off), numbers.repeat(steps)]), kind="stable")
        known = runs_of(self.future_covariates, self.starts[:-1] + ends, cut_off)
        ahead = np.concatenate([known, self.ahead])[order]
        return replace(cut, ahead=ahead, ahead_starts=np.concatenate([[0], np.cumsum(cut_off + steps)]))

    def last_rows(self, rows: int | NDArray[np.int64], seasons: Sequence[int] = ()) -> Panel:
        """Keep the last rows of each series, and the rows before them that are needed to impute their first values."""
        first = np.maximum(self.lengths - rows, 0)
        begin = first.copy()
        covariates = [part for part in (self.past_covariates, self.future_covariates) if part is not None]
        for part, lengths in ((self.values, (1, *seasons)), *((part, (1,)) for part in covariates)):
            for season in lengths:
                places = np.minimum(first[:, None] + np.arange(season), self.lengths[:, None] - 1)
                missing = np.isnan(part[self.starts[:-1, None] + places])
                for number in np.flatnonzero(missing.any(axis=(1, 2)) & (first > 0)):
                    start = int(self.starts[number])
                    known = last_row_of_places(part, start, start + int(first[number]), season)
                    # a column without earlier numbers needs no row
                    wanted = known[missing[number] & (known >= 0)]
                    begin[number] = min(begin[number], wanted.min(initial=start + begin[number]) - start)
        return self._part(np.arange(len(self)), begin, self.lengths)

    def take(self, numbers: NDArray[np.int64]) -> Panel:
        """The series with these numbers."""
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
        """Make each channel of a wide table a series, sorted by name, with one channel ``y`` and all covariates."""
        if not self.is_wide:
            raise UserError("the table has an id column already; only the columns of a wide table can become series")
        order = np.argsort(np.array(self.channels, dtype=object))
        columns = {name: part for name in ("values", "weights") if (part := getattr(self, name)) is not None}
        first: Any = {name: part[:, :1] for name, part in columns.items()}
        stacked: Any = {name: np.ascontiguousarray(part.T[order]).reshape(-1, 1) for name, part in columns.items()}
        return replace(
            replace(self, **first).take(np.zeros(len(order), np.int64)),
            ids=tuple(self.channels[number] for number in order),
            channels=("y",),
            is_wide=False,
            **stacked,
        )

    def to_frame(self) -> pd.DataFrame:
        """A table that would be read as this panel, with gaps filled, but without the future covariates ahead."""
        columns: dict[str, Any] = {}
        if not self.is_wide:
            columns[self.id_name] = pd.Index([*self.ids], tupleize_cols=False).repeat(self.lengths)
        columns[self.time_name] = self.time
        columns |= zip(self.channels, self.values.T, strict=True)
        for part, names in ((self.past_covariates, self.past_names), (self.future_covariates, self.future_names)):
            columns |= zip(names, () if part is None else part.T, strict=True)
        for name, known in self.covariate_categories.items():
            texts = np.array([UNSEEN, *known, None], dtype=object)  # None is the last place, -1: missing
            columns[name] = texts[np.nan_to_num(columns[name], nan=-1).astype(np.int64)]
        static = () if self.static is None else self.static.T
        for name, categories, codes in zip(self.static_names, self.static_categories, static, strict=True):
            columns[name] = np.array([*categories, UNSEEN], dtype=object)[codes].repeat(self.lengths)
        return pd.DataFrame(columns)

    def __getstate__(self) -> dict[str, Any]:
        time = FileView.of(time_numbers(self.time))
        stamps = self.time if time is None else (time, time_unit(self.time), getattr(self.time, "tz", None))
        return {**{name: FileView.of(part) or part for name, part in vars(self).items()}, "time": stamps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fields = {name: part.open() if isinstance(part, FileView) else part for name, part in state.items()}
        time = fields["time"]
        vars(self).update(fields, time=times_of(time[0].open(), *time[1:]) if isinstance(time, tuple) else time)

    def _part(self, numbers: NDArray[np.int64], first: NDArray[np.int64], end: NDArray[np.int64]) -> Panel:
        begin, lengths = self.starts[:-1][numbers] + first, end - first
        time = runs_of(time_numbers(self.time), begin, lengths)
        names = "values", "weights", "past_covariates", "future_covariates"
        there = {name: part for name in names if (part := getattr(self, name)) is not None}
        arrays: Any = {name: runs_of(part, begin, lengths) for name, part in there.items()}
        return replace(
            self,
            time=times_of(time, time_unit(self.time), getattr(self.time, "tz", None)),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            **arrays,
        )
