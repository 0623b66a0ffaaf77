"""How much single rows and series count in a training: what is known to be odd can be left out of it.

Shape letters: S series, C channels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsattn.data.columns import column_name
from tsattn.data.frequency import Times
from tsattn.data.panel import Panel
from tsattn.data.split_rule import in_zone, iso_date
from tsattn.errors import UserError, is_whole_number, one_of, shown

__all__ = ["RowWeights", "check_cells", "normalised_weights", "without_column"]


@dataclass(frozen=True)
class RowWeights:
    """Weights of targets: the product of what a column, the series and stretches of time say.

    Attributes:
        column: of the table; None without.
        series: by the id of a series, or by the name of a column of a wide table; 1 for those that are not here.
        rows: first and last time stamp (or step) of a stretch, both included, and its weight.
    """

    column: str | None
    series: Mapping[Any, float]
    rows: tuple[tuple[Any, Any, float], ...]

    @classmethod
    def of(cls, weight_column: Any, series_weights: Any, row_weights: Any) -> Self | None:
        """What these arguments of `FrameDataModule` give; None if all of them are left out.

        Raises:
            UserError: for a weight that is no number of at least 0, or what is no such mapping or list.
        """
        if weight_column is None and series_weights is None and row_weights is None:
            return None
        column = column_name(weight_column, "weight_column")
        series = {} if series_weights is None else series_weights
        if not isinstance(series, Mapping):
            raise UserError(f"series_weights must be weights by ids, such as {{a: 0.5}}, not {shown(repr(series))}")
        rows = [] if row_weights is None else row_weights
        form = "row_weights must be a list of first and last time stamp and weight, such as [2020-03-01, 2020-05-31, 0]"
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise UserError(f"{form}, not {shown(repr(rows))}")
        for row in rows:
            if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 3:
                raise UserError(f"{form}, not {shown(repr(row))}")
        of_series = {name: _weight(value, f"of series {shown(name)}") for name, value in series.items()}
        of_rows = tuple((start, end, _weight(value, f"from {start} to {end}")) for start, end, value in rows)
        return cls(column, of_series, of_rows)

    def plain(self) -> dict[str, Any]:
        """The arguments, as YAML has them."""
        rows = [[*(int(one) if is_whole_number(one) else str(one) for one in row[:2]), row[2]] for row in self.rows]
        series = {str(name): value for name, value in self.series.items()}
        return {"weight_column": self.column, "series_weights": series or None, "row_weights": rows or None}

    def on(self, panel: Panel, cells: NDArray[np.float64], source: str) -> Panel:
        """A panel with the weights of its targets.

        Args:
            panel: the series.
            cells: `(rows, 1)` of the column, NaN in rows that fill gaps; `(rows, 0)` without.
            source: what the table is, for messages.

        Raises:
            UserError: for a series that is not there, or a stretch of time that has no row or is none.
        """
        weights = np.ones_like(panel.values)
        if self.column is not None:
            weights *= np.nan_to_num(cells)
        names = panel.channels if panel.is_wide else panel.ids
        number = {name: place for place, name in enumerate(names)}
        texts = {str(name): place for name, place in number.items()}
        for name, weight in self.series.items():
            place = number.get(name, texts.get(str(name)))
            if place is None:
                raise UserError(
                    f"series_weights names {shown(name)}, which {source} has not got; valid are "
                    f"{one_of(map(shown, names[:12]))}"
                )
            part = (slice(None), place) if panel.is_wide else slice(panel.starts[place], panel.starts[place + 1])
            weights[part] *= weight
        for start, end, weight in self.rows:
            first, last = (_moment(one, panel.time) for one in (start, end))
            ends = panel.time <= last
            if isinstance(panel.time, pd.DatetimeIndex) and _is_day(end):
                ends = panel.time.tz_localize(None).normalize() <= last.tz_localize(None)
            inside = np.asarray((panel.time >= first) & ends)
            if not inside.any():
                raise UserError(f"row_weights: {source} has no row from {start} to {end}")
            weights[inside] *= weight
        return replace(panel, weights=weights)


def check_cells(
    cells: NDArray[np.float64], values: NDArray[np.float64], name: str, where: Callable[[int], str]
) -> None:
    """Refuse weights in a table that are none.

    Args:
        cells: `(rows, 1)` of the column; `(rows, 0)` without.
        values: `(rows, C)` targets; a row without any needs no weight.
        name: of the column.
        where: names a row (from 0) in messages.

    Raises:
        UserError: naming the first row whose weight is missing or below 0.
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
    """A table without its column of weights, if it has it: what is forecast or scored is not weighted."""
    return table if column is None else table.drop(columns=[name for name in table.columns if str(name) == column])


def normalised_weights(panel: Panel, history: NDArray[np.int64]) -> torch.Tensor:
    """Weights divided by their mean over the observed targets for training that count, `(rows, C)` float32.

    So only their ratios matter, and a weight of 0 is as a missing target.

    Args:
        panel: with weights.
        history: `(S,)` how many first rows of each series are for training.

    Raises:
        UserError: if none counts.
    """
    assert panel.weights is not None
    row = np.arange(len(panel.values)) - panel.starts[:-1].repeat(panel.lengths)
    counts = (panel.weights > 0) & ~np.isnan(panel.values) & (row < history.repeat(panel.lengths))[:, None]
    if not counts.any():
        raise UserError("every target for training has weight 0, so that there is nothing to learn")
    return torch.from_numpy((panel.weights / panel.weights[counts].mean()).astype(np.float32))


def _weight(value: Any, what: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise UserError(f"the weight {what} must be a number of at least 0, not {shown(repr(value))}")
    return float(value)


def _is_day(given: Any) -> bool:
    """Whether a date has no time of day, so that it means the whole day."""
    if isinstance(given, datetime):  # a Timestamp too
        return False
    return isinstance(given, date) or re.fullmatch(r"\s*\d{4}-?\d{2}-?\d{2}\s*", str(given)) is not None


def _moment(given: Any, time: Times) -> Any:
    """A time stamp in the time zone of others, or a step."""
    if isinstance(time, pd.DatetimeIndex):
        return in_zone(iso_date(given), time.tz, "row_weights")
    if not is_whole_number(given):
        raise UserError(f"the data count steps, so row_weights must give steps, not {shown(repr(given))}")
    return int(given)
