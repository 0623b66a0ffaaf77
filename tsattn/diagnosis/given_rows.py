"""The rows of a table as they are given: sorted, but nothing filled and nothing refused that can be looked at.

Shape letters: R rows, S series, C targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.data.frequency import Times, season_length
from tsattn.data.grid import OFF_GRID, Grid, are_business_days, counts, usual_frequency
from tsattn.data.roles import Roles
from tsattn.data.table_rows import Rows, Table, read_rows

__all__ = ["GivenRows", "Repeated", "given_rows", "without_empty_columns"]

_MOST_STEPS = 10  # times the rows of a series, and a thousand: more are of a date that is wrong
_ALWAYS = 1000


@dataclass(frozen=True)
class Repeated:
    """A series with time stamps that are there more than once: how many rows more, the first, and if rows differ."""

    series: int
    count: int
    first: Any
    differs: bool


@dataclass(frozen=True)
class GivenRows:
    """Rows of series end to end, each time stamp of a series once.

    Attributes:
        roles: which column is what.
        names: the S ids, sorted.
        time: `(R,)` time stamps, or steps, rising within each series.
        begin: `(S + 1,)` the first row of each series, and R.
        values: `(R, C)` targets, NaN where missing, as in what follows.
        past: `(R, P)` past covariates.
        known: `(R, F)` future covariates.
        repeated: series with repeated time stamps, of which the first row is here.
        frequency: what most stamps of the longest series follow, or the one given; None where there are too few.
        coordinates: `(R,)` the number of each stamp on the grid of that frequency.
        on_grid: `(R,)` whether a stamp is on the grid of most of its series.
    """

    roles: Roles
    names: tuple[Any, ...]
    time: Times
    begin: NDArray[np.int64]
    values: NDArray[np.float64]
    past: NDArray[np.float64]
    known: NDArray[np.float64]
    repeated: list[Repeated]
    frequency: str | None
    coordinates: NDArray[np.int64]
    on_grid: NDArray[np.bool_]

    @property
    def season(self) -> int:
        """Steps in a season; 1 where the frequency is not known."""
        return 1 if self.frequency is None else season_length(self.frequency)

    def rows(self, series: int) -> slice:
        """The rows of a series."""
        return slice(int(self.begin[series]), int(self.begin[series + 1]))

    def label(self, series: int, channel: int | None = None) -> Any:
        """What a series is called: of a wide table, by its column, or not at all."""
        if not self.roles.is_wide:
            return self.names[series]
        return "" if channel is None else self.roles.target[channel]

    def spread(self, series: int, columns: NDArray[np.float64]) -> tuple[Times, NDArray[np.float64]] | None:
        """The rows `(R, n)` of a series on its grid, `(steps, n)`, and the stamps of those that are there.

        Stamps of steps that are missing are those of the row before. None where there are far more steps than rows.
        """
        own = np.flatnonzero(self.on_grid[self.rows(series)]) + self.begin[series]
        if not len(own):
            return None
        places = self.coordinates[own] - self.coordinates[own[0]]
        steps = int(places[-1]) + 1
        if steps > _ALWAYS + _MOST_STEPS * len(own):
            return None
        full = np.full((steps, columns.shape[1]), np.nan)
        full[places] = columns[own]
        return self.time[own[np.searchsorted(places, np.arange(steps), side="right") - 1]], full

    def last_target(self, series: int) -> int:
        """How many rows of a series there are up to its last target: what comes later is its future."""
        known = np.flatnonzero(~np.isnan(self.values[self.rows(series)]).all(axis=1))
        return int(known[-1]) + 1 if len(known) else 0


def without_empty_columns(table: Table) -> tuple[Table, list[str]]:
    """The table without the targets and covariates of which every value is missing, and these."""
    frame, roles = table.frame, table.roles
    numbers = (*roles.target, *roles.past, *roles.future)
    empty = [name for name in numbers if len(frame) and bool(frame[name].isna().all())]

    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in empty)

    some = replace(roles, target=kept(roles.target), past=kept(roles.past), future=kept(roles.future))
    return replace(table, roles=some), empty


def given_rows(table: Table) -> tuple[GivenRows, Rows]:
    """The rows of a table sorted, and in the order given.

    Raises:
        UserError: for a cell that is no number, date or id, naming its row.
    """
    given = read_rows(table)
    stamps = counts(given.time)
    order = np.lexsort((stamps, given.series))
    again = (np.diff(given.series[order]) == 0) & (np.diff(stamps[order]) == 0)
    repeated = [*_repeated(given, order, np.flatnonzero(again) + 1)]
    order = order[np.concatenate([[True], ~again])]
    time, series = given.time[order], given.series[order]
    begin = np.searchsorted(series, np.arange(len(given.names) + 1))
    frequency, coordinates, on_grid = _on_grid(time, begin, table.frequency)
    rows = GivenRows(
        roles=table.roles,
        names=given.names,
        time=time,
        begin=begin,
        values=given.values[order],
        past=given.past[order],
        known=given.known[order],
        repeated=repeated,
        frequency=frequency,
        coordinates=coordinates,
        on_grid=on_grid,
    )
    return rows, given


def _repeated(given: Rows, order: NDArray[np.int64], later: NDArray[np.int64]) -> Iterator[Repeated]:
    """Of each series with repeated stamps, given the places in the order of rows like those before them."""
    cells = np.concatenate([given.values, given.past, given.known], axis=1)
    owners = given.series[order[later]]
    for series in np.unique(owners).tolist():
        places = later[owners == series]
        one, other = cells[order[places - 1]], cells[order[places]]
        differs = bool(((one != other) & ~(np.isnan(one) & np.isnan(other))).any())
        yield Repeated(series, len(places), given.time[order[places[0]]], differs)


def _on_grid(
    time: Times, begin: NDArray[np.int64], given: str | None
) -> tuple[str | None, NDArray[np.int64], NDArray[np.bool_]]:
    """The frequency, coordinates on its grid, and which stamps are on that of most of their series."""
    lengths = np.diff(begin)
    longest = int(lengths.argmax())
    frequency = given
    if frequency is None and lengths[longest] > 2:
        frequency = usual_frequency(time[begin[longest] : begin[longest + 1]])
        if frequency == "D" and are_business_days(time, begin[:-1]):
            frequency = "B"
    if frequency is None:
        return None, np.arange(len(time)), np.ones(len(time), dtype=bool)
    coordinates, phases = Grid(time, frequency).split(time)
    usual = np.empty(len(lengths), np.int64)
    for series, (first, end) in enumerate(pairwise(begin.tolist())):
        own = phases[first:end]
        if (own == own[0]).all():
            usual[series] = own[0]
        else:
            found, how_often = np.unique(own[own != OFF_GRID], return_counts=True)
            usual[series] = found[how_often.argmax()] if len(found) else OFF_GRID
    on_grid = (phases == np.repeat(usual, lengths)) & (phases != OFF_GRID)
    return frequency, coordinates, on_grid
