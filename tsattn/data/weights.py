"""How much rows and series count in a training, so that odd ones can be left out.

Shape letters: S series, C channels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.panel import Panel
from tsattn.data.row_ranges import are_first, blocks_of, made_rows, owners
from tsattn.data.splits import in_zone, iso_date
from tsattn.errors import UserError, is_whole_number, one_of, shown

__all__ = ["RowWeights", "check_cells", "mean_weight", "without_column"]

_FORM = "row_weights must be a list of first and last time stamp and weight, such as [2020-03-01, 2020-05-31, 0]"


@dataclass(frozen=True)
class RowWeights:
    """Weights of targets by series and by stretches of time; they multiply those in a column of the table.

    Attributes:
        series: by the id of a series, or by the name of a column of a wide table; 1 for those that are not here.
        rows: first and last time stamp (or step) of a stretch, both included, and its weight.
    """

    series: Mapping[Any, float] = field(default_factory=dict)
    rows: tuple[tuple[Any, Any, float], ...] = ()

    @classmethod
    def of(cls, series_weights: Any = None, row_weights: Any = None) -> Self:
        """Read these arguments of `FrameDataModule`; UserError for what is no mapping, list or weight."""
        series = {} if series_weights is None else series_weights
        if not isinstance(series, Mapping):
            raise UserError(f"series_weights must be weights by ids, such as {{a: 0.5}}, not {shown(repr(series))}")
        rows = [] if row_weights is None else row_weights
        for one in (rows, *(rows if isinstance(rows, Sequence) else ())):
            if not isinstance(one, Sequence) or isinstance(one, str) or (one is not rows and len(one) != 3):
                raise UserError(f"{_FORM}, not {shown(repr(one))}")
        of_series = {name: _weight(value, f"of series {shown(name)}") for name, value in series.items()}
        return cls(of_series, tuple((start, end, _weight(w, f"from {start} to {end}")) for start, end, w in rows))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.series or self.rows)

    def plain(self) -> dict[str, Any]:
        """The arguments, as YAML has them."""
        rows = [[*(int(one) if is_whole_number(one) else str(one) for one in row[:2]), row[2]] for row in self.rows]
        series = {str(name): value for name, value in self.series.items()}
        return {"series_weights": series or None, "row_weights": rows or None}

    def on(self, panel: Panel, cells: NDArray[np.float64] | None, source: str) -> Panel:
        """Weight the targets of a panel, also by a column of weights, NaN in rows that fill gaps.

        Raises:
            UserError: for a series that `source` has not got, or a stretch of time that has no row or is none.
        """
        names = panel.channels if panel.is_wide else panel.ids
        places = {str(name): place for place, name in enumerate(names)} | {one: i for i, one in enumerate(names)}
        of_series = np.ones((len(panel), len(panel.channels)))
        for name, weight in self.series.items():
            place = places.get(name, places.get(str(name)))
            if place is None:
                raise UserError(
                    f"series_weights names {shown(name)}, which {source} has not got; valid are "
                    f"{one_of(map(shown, names[:12]))}"
                )
            of_series[(slice(None), place) if panel.is_wide else place] *= weight
        # a date alone is a whole day, in whatever time zone
        is_day = [isinstance(panel.time, pd.DatetimeIndex) and _is_day(end) for _, end, _ in self.rows]
        ends = [[_moment(one, panel.time) for one in (start, end)] for start, end, _ in self.rows]
        is_there = np.zeros(len(ends), dtype=bool)

        def weights_of(rows: slice) -> NDArray[np.float64]:
            weights = np.ones((rows.stop - rows.start, len(panel.channels)))
            if cells is not None:
                weights *= np.nan_to_num(cells[rows])
            weights *= of_series[owners(panel.starts, rows)]
            time: Any = panel.time[rows]
            for number, (first, last) in enumerate(ends):
                is_before = (
                    time.tz_localize(None).normalize() <= last.tz_localize(None) if is_day[number] else time <= last
                )
                inside = np.asarray((time >= first) & is_before)
                is_there[number] |= inside.any()
                weights[inside] *= self.rows[number][2]
            return weights

        weights = made_rows(panel.values, weights_of)
        if not is_there.all():
            start, end, _ = self.rows[int(is_there.argmin())]
            raise UserError(f"row_weights: {source} has no row from {start} to {end}")
        return replace(panel, weights=weights)


def check_cells(
    cells: NDArray[np.float64], values: NDArray[np.float64], name: str, where: Callable[[int], str]
) -> None:
    """Refuse weights `(rows, 0 or 1)` of the column `name` that are missing or below 0, by the place of the row.

    A row without any target `(rows, C)` needs no weight.
    """
    for column in cells.T:
        wrong = np.flatnonzero((column < 0) | (np.isnan(column) & ~np.isnan(values).all(axis=1)))
        if wrong.size:
            row = int(wrong[0])
            what = "is missing" if np.isnan(column[row]) else f"is {column[row]:g}"
            raise UserError(
                f"{where(row)}: the weight in column {shown(name)} {what}; a number of at least 0 is needed"
            )


def without_column(table: pd.DataFrame, column: str | None) -> pd.DataFrame:
    """Drop the column of weights, if it is there: tables to forecast or score are not weighted."""
    return table if column is None else table.drop(columns=[name for name in table.columns if str(name) == column])


def mean_weight(panel: Panel, weights: NDArray[np.float64], history: NDArray[np.int64]) -> float:
    """Average the weights above 0 of the observed targets in the first `history (S,)` rows of each series.

    Weights are divided by it, so that only their ratios matter, and a weight of 0 is as a missing target.

    Raises:
        UserError: if no weight is above 0.
    """
    total, count = 0.0, 0
    for rows in blocks_of(panel.values):
        block = weights[rows]
        counts = (block > 0) & ~np.isnan(panel.values[rows]) & are_first(panel.starts, history, rows)[:, None]
        total, count = total + float(block[counts].sum()), count + int(counts.sum())
    if not count:
        raise UserError("every target for training has weight 0, so that there is nothing to learn")
    return total / count


def _weight(value: Any, what: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise UserError(f"the weight {what} must be a number of at least 0, not {shown(repr(value))}")
    return float(value)


def _is_day(given: Any) -> bool:
    """Whether a date has no time of day, so that it means the whole day."""
    if isinstance(given, datetime):  # a Timestamp too
        return False
    return isinstance(given, date) or re.fullmatch(r"\s*\d{4}-?\d{2}-?\d{2}\s*", str(given)) is not None


def _moment(given: Any, time: Any) -> Any:
    """A time stamp in the time zone of others, or a step."""
    if isinstance(time, pd.DatetimeIndex):
        return in_zone(iso_date(given), time.tz, "row_weights")
    if not is_whole_number(given):
        raise UserError(f"the data count steps, so row_weights must give steps, not {shown(repr(given))}")
    return int(given)
