"""Rows of many series on their time grids: sorted, checked, and with a place for every stamp that is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.frequency import Times, is_steps, try_infer_frequency
from tsattn.data.grid import OFF_GRID, Grid, counts, normalise_frequency, regularity, usual_frequency
from tsattn.data.time_numbers import times_like
from tsattn.errors import UserError, number_of, shown

__all__ = ["GridLayout", "are_business_days", "business_series", "coarser_series", "lay_out", "runs_of_longer_steps"]

logger = logging.getLogger("tsattn")

_FREE_ROWS = 1_000_000  # filling gaps may add this many rows, or ...
_MAX_GROWTH = 10  # ... this many times the rows given
_SEVERAL = {True: "several series, name id_column", False: "more series, list all columns of ids in id_column"}
_CERTAIN = 14.0  # how rare a chance must be not to be one: e to the power of minus this


@dataclass(frozen=True)
class GridLayout:
    """Where the rows of a table go on the grids of its series.

    Attributes:
        frequency: pandas frequency of all series.
        time: `(rows,)` time stamps, or steps, of all series end to end, the missing ones filled in.
        starts: `(S + 1,)` int64 first row of each series, and `rows`.
        moved: `(rows of the table,)` int64, the row that each row of the table goes to; None: none moves.
    """

    frequency: str
    time: Times
    starts: NDArray[np.int64]
    moved: NDArray[np.int64] | None

    @property
    def places(self) -> NDArray[np.int64]:
        """`(rows of the table,)` the row that each row of the table goes to."""
        return np.arange(len(self.time)) if self.moved is None else self.moved

    def spread(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """`(rows, n)` with NaN in filled rows, of `(rows of the table, n)`."""
        if self.moved is None:
            return part
        result = np.full((len(self.time), part.shape[1]), np.nan)
        result[self.moved] = part
        return result


@dataclass(frozen=True)
class _SortedRows:
    """The rows of a table in order of series, then time.

    Attributes:
        index: `(R,)` time stamps, or steps.
        stamps: `(R,)` their `counts`.
        number: `(R,)` of the series of each row.
        order: `(R,)` the row of the table that each was; None: rows are in the order of the table.
        begin: `(S,)` the first row of each series.
        rows: `(S,)` how many each has.
        names: the ids.
        where: names a row of the table in messages.
        is_wide: whether there is but one series, without an id.
        num_own: how many rows, the first ones, are of the table itself; those after them are of its future.
    """

    index: Times
    stamps: NDArray[np.int64]
    number: NDArray[np.int64]
    order: NDArray[np.int64] | None
    begin: NDArray[np.int64]
    rows: NDArray[np.int64]
    names: tuple[Any, ...]
    where: Callable[[int], str]
    is_wide: bool
    num_own: int

    @classmethod
    def of(
        cls,
        time: Times,
        series: NDArray[np.int64],
        names: tuple[Any, ...],
        where: Callable[[int], str],
        source: str,
        is_wide: bool,
        num_own: int,
    ) -> Self:
        """Those of a table.

        Raises:
            UserError: for a time stamp that a series has twice.
        """
        given = counts(time)
        order = _order_by_time(given, series, source)
        stamps, index, number = (given, time, series) if order is None else (given[order], time[order], series[order])
        begin = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1]]))
        rows = np.diff(begin, append=len(number))
        self = cls(index, stamps, number, order, begin, rows, names, where, is_wide, num_own)
        repeats = (stamps[1:] == stamps[:-1]) & (number[1:] == number[:-1])
        if repeats.any():
            after = np.flatnonzero(repeats) + 1
            pairs = np.sort(np.stack([self.given_row(after - 1), self.given_row(after)], axis=1), axis=1)
            first, second = pairs[pairs[:, 1].argmin()].tolist()
            raise UserError(
                f"{where(second)}: time stamp {time[second]}{self.label(series[second])} is there twice, first in "
                f"{where(first)}; each may come once (if the rows are of {_SEVERAL[is_wide]})"
            )
        return self

    def given_row(self, row: Any) -> Any:
        """The row, or rows, of the table."""
        return row if self.order is None else self.order[row]

    def place(self, row: Any) -> str:
        """What a row is called in messages."""
        return self.where(int(self.given_row(row)))

    def label(self, number: int) -> str:
        """What a series is called in messages."""
        return "" if self.is_wide else f" of series {shown(self.names[number])}"

    def own(self, run: slice) -> NDArray[np.bool_]:
        """Which rows of a run are of the table itself."""
        is_own: NDArray[np.bool_] = self.given_row(np.arange(run.start, run.stop)) < self.num_own
        return is_own

    def run(self, number: int) -> slice:
        """The rows of a series."""
        first = int(self.begin[number])
        return slice(first, first + int(self.rows[number]))

    @property
    def longest(self) -> int:
        """The number of the longest series."""
        return int(self.rows.argmax())

    def frequency(self) -> str:
        """That of the longest series.

        Raises:
            UserError: if that has too few rows.
        """
        longest = self.longest
        if self.rows[longest] < 3:
            raise UserError(
                f"{self.place(self.begin[longest])}: no series has the 3 rows that it takes to see a frequency (the "
                f"longest has {self.rows[longest]}); give the frequency"
            )
        run = self.run(longest)
        own = self.own(run)
        frequency = usual_frequency(self.index[run][own] if own.sum() > 2 else self.index[run])
        return "B" if frequency == "D" and are_business_days(self.index, self.begin) else frequency


def lay_out(
    time: Times,
    series: NDArray[np.int64],
    names: tuple[Any, ...],
    frequency: str | None,
    where: Callable[[int], str],
    source: str,
    *,
    is_wide: bool,
    max_filled: float = 1.0,
    is_inferred: bool = False,
    num_own: int | None = None,
) -> GridLayout:
    """Sort rows by series and time, find the frequency, check every stamp against it and make room for missing ones.

    The frequency is that of the longest series; all work but its inference is done for all series at once.

    Args:
        time: `(rows of the table,)` time stamps, or steps.
        series: `(rows of the table,)` number of the series of each row; every number up to the largest occurs.
        names: the ids, for messages.
        frequency: the frequency that all series must have; None infers it.
        where: names a row (from 0) of the table in messages.
        source: what the table is, for messages.
        is_wide: whether there is but one series, without an id.
        max_filled: the share of the rows of a series that may be filled.
        is_inferred: whether the frequency is no user's, but was inferred from other series of the same table.
        num_own: how many rows, the first ones, are of the table itself, the others of its future; all by default.

    Raises:
        UserError: for stamps that are there twice or off the grid, mixed frequencies, gaps too long to be filled.
    """
    given = _SortedRows.of(time, series, names, where, source, is_wide, len(series) if num_own is None else num_own)
    is_given = frequency is not None and not is_inferred
    frequency = given.frequency() if frequency is None else _given(frequency, time, source)
    grid = Grid(given.index, frequency)
    coordinates, phases = grid.split(given.index, given.stamps)
    _refuse_off_grid(given, phases, frequency, is_given)
    begin, rows = given.begin, given.rows
    lengths = coordinates[begin + rows - 1] - coordinates[begin] + 1
    _refuse_longer_steps(given, coordinates, lengths, frequency, is_given)
    if not is_given and (lengths > rows).any():
        _refuse_two_rhythms(given, coordinates, frequency)
    _refuse_gaps(given, lengths, frequency, max_filled)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    if not (missing := int(starts[-1]) - len(coordinates)):
        moved = None if given.order is None else np.empty_like(coordinates)
        if moved is not None:
            moved[given.order] = np.arange(len(moved))
        return GridLayout(frequency, given.index, starts, moved)
    logger.warning(
        "%s: filled %s in %d of %d series",
        *(source, number_of(missing, "missing time stamp"), (lengths > rows).sum(), len(names)),
    )
    places = np.repeat(starts[:-1] - coordinates[begin], rows) + coordinates
    is_filled = np.ones(starts[-1], dtype=bool)
    is_filled[places] = False
    owner = np.repeat(np.arange(len(names)), lengths)[is_filled]
    steps = np.flatnonzero(is_filled) - starts[owner]
    whole = np.empty(starts[-1], np.int64)
    whole[places] = given.stamps
    whole[is_filled] = counts(grid.join(coordinates[begin][owner] + steps, phases[begin][owner]))
    moved = places
    if given.order is not None:
        moved = np.empty_like(places)
        moved[given.order] = places
    return GridLayout(frequency, times_like(time, whole), starts, moved)


def _refuse_off_grid(given: _SortedRows, phases: NDArray[np.int64], frequency: str, is_given: bool) -> None:
    """Refuse series whose time stamps do not share one grid of the frequency."""
    if phases[0] != OFF_GRID and (phases == phases[0]).all():
        return
    on_grid = (phases == np.repeat(phases[given.begin], given.rows)) & (phases != OFF_GRID)
    if not on_grid.all():
        culprit = int(given.number[on_grid.argmin()])
        others = "" if culprit == given.longest else _like_the_longest(given, is_given)
        raise _irregular(given, culprit, phases[given.run(culprit)], frequency, others, is_given)


def _refuse_longer_steps(
    given: _SortedRows, coordinates: NDArray[np.int64], lengths: NDArray[np.int64], frequency: str, is_given: bool
) -> None:
    """Refuse series of which no two rows follow each other, and business days among days."""
    begin, rows = given.begin, given.rows
    coarser = np.zeros(len(rows), dtype=bool)
    if (lengths > rows).any():
        coarser = coarser_series(coordinates, begin)
    if not is_given and frequency == "D":
        coarser |= business_series(given.index, begin)
    # a frequency that is given also holds for a series that happens to have no two rows in a row, but not if none has
    if coarser.any() and (not is_given or coarser[rows > 2].all()):
        culprit = int(coarser.argmax())
        own, others = usual_frequency(given.index[given.run(culprit)]), _like_the_longest(given, is_given)
        raise _mixed(given, culprit, own, frequency, others, is_given)


def _like_the_longest(given: _SortedRows, is_given: bool) -> str:
    return "" if is_given or len(given.names) == 1 else f" like series {shown(given.names[given.longest])}"


def _given(frequency: str, time: Times, source: str) -> str:
    """A frequency that a user gives, under its one name.

    Raises:
        UserError: if it is one of steps, but the data has time stamps, or the other way round.
    """
    frequency, has_steps = normalise_frequency(frequency), not isinstance(time, pd.DatetimeIndex)
    if is_steps(frequency) != has_steps:
        what, other = ("whole numbers that count steps", "is one of time stamps; valid are 1, 2, ...")
        if not has_steps:
            what, other = ("time stamps", "counts steps; valid are such as 15min, h, D, W-SUN, MS")
        raise UserError(f"{source} has {what}, but frequency {frequency!r} {other}")
    return frequency


def _order_by_time(stamps: NDArray[np.int64], series: NDArray[np.int64], source: str) -> NDArray[np.int64] | None:
    """The rows in order of series, then time; of rows alike, in the order given. None where they are, as most are."""
    order = None if (series[1:] >= series[:-1]).all() else np.argsort(series, kind="stable")
    number, time = (series, stamps) if order is None else (series[order], stamps[order])
    is_back = (number[1:] == number[:-1]) & (time[1:] < time[:-1])
    if is_back.any():
        unsorted = np.unique(number[1:][is_back]).size
        logger.warning("%s: sorted the rows of %d of %d series by time", source, unsorted, series.max() + 1)
        order = np.lexsort((stamps, series))
    return order


def are_business_days(index: Times, begin: NDArray[np.int64]) -> bool:
    """Whether no stamp is on a weekend though some series goes on in another week."""
    days = _days(index)
    weeks = (days.astype(np.int64) + 3) // 7  # 1970-01-01 was a Thursday
    ends = np.append(begin[1:], len(index)) - 1
    return bool(np.is_busday(days).all() and np.any(weeks[begin] != weeks[ends]))


def _days(index: Times) -> NDArray[np.datetime64]:
    assert isinstance(index, pd.DatetimeIndex)
    return np.asarray(index.tz_localize(None)).astype("M8[D]")


def _irregular(
    given: _SortedRows, number: int, phases: NDArray[np.int64], frequency: str, others: str, is_given: bool
) -> UserError:
    """What is wrong with the time stamps of one series, not all of which are on one grid of the frequency."""
    run = given.run(number)
    index: Any = given.index[run]
    is_own = given.own(run)
    if not is_own.all() and is_own.any() and (phases[is_own] == phases[0]).all() and phases[0] != OFF_GRID:
        row = int((phases != phases[0]).argmax())  # what its future alone has
        last = index[is_own][-1]
        return UserError(
            f"{given.place(run.start + row)}: time stamp {index[row]}{given.label(number)} is not on the grid of its "
            f"series, which ends at {last} with frequency {frequency!r}; give the steps after that"
        )
    own = try_infer_frequency(index) if len(index) > 2 else None
    if own is not None and (own := normalise_frequency(own)) != frequency:
        return _mixed(given, number, own, frequency, others, is_given)
    candidates, how_often = np.unique(phases, return_counts=True)
    # in doubt the first row is right
    phase = candidates[how_often.argmax()] if 3 * how_often.max() > 2 * len(phases) else phases[0]
    row = int(np.argmax((phases != phase) | (phases == OFF_GRID)))
    place = f" comes {index[row] - index[row - 1]} after the row before, but" if row else ""
    return UserError(
        f"{given.place(run.start + row)}: time stamp {index[row]}{given.label(number)}{place} is not on the grid of "
        f"frequency {frequency!r}{others}; {regularity(index)}"
    )


def _mixed(given: _SortedRows, number: int, own: str, frequency: str, others: str, is_given: bool) -> UserError:
    needs = "give the right one as frequency" if len(given.names) == 1 else "all series need the same frequency"
    if not is_given and len(given.names) > 1:
        needs += " (where rows are missing, give the right one as frequency)"
    return UserError(
        f"{given.place(given.begin[number])}: the time stamps{given.label(number)} have frequency {own!r}, not "
        f"{frequency!r}{others}; {needs}"
    )


def coarser_series(coordinates: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(S,)` whether a series has 3 rows or more but never two that follow each other on the grid."""
    follows = np.concatenate([[False], coordinates[1:] - coordinates[:-1] <= 1])
    follows[begin] = False
    coarser: NDArray[np.bool_] = ~np.logical_or.reduceat(follows, begin)
    return coarser & (np.diff(begin, append=len(coordinates)) > 2)


def business_series(index: Times, begin: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(S,)` whether a series of 3 rows or more is regular on business days, over a weekend."""
    rows = np.diff(begin, append=len(index))
    days = _days(index)
    no_weekend = np.logical_and.reduceat(np.is_busday(days), begin)
    first, last = days[begin], days[begin + rows - 1]
    spans_weekend = (last - first).astype(np.int64) >= rows
    is_regular = np.busday_count(first, last) == rows - 1
    business: NDArray[np.bool_] = (rows > 2) & no_weekend & spans_weekend & is_regular
    return business


def runs_of_longer_steps(coordinates: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where some rows of a series follow each other at a longer step, so many that it can be no chance.

    Rows that are missing by chance leave a step of k between two others with a probability of at most
    (k - 1)^(k - 1) / k^k, however many are missing, and the same again only with the product.

    Args:
        coordinates: `(rows,)` of series end to end, rising within each.
        begin: `(S,)` the first row of each.

    Returns:
        `(runs, 2)` the first row and the last that come so long after the rows before them.
    """
    steps = np.diff(coordinates, prepend=coordinates[:1])
    steps[begin] = 0  # a run ends with its series
    first = np.flatnonzero(np.diff(steps, prepend=-1))
    k, length = steps[first].astype(np.float64), np.diff(first, append=len(steps))
    is_long = (k > 1) & (length > 3)  # one date that is wrong is rare, too
    k = np.maximum(k, 2)
    rarity = k * np.log(k) - (k - 1) * np.log(k - 1)  # minus the logarithm of that probability
    chance = is_long & (length * rarity > np.log(len(steps)) + _CERTAIN)
    runs: NDArray[np.int64] = np.stack([first, first + length - 1], axis=1)[chance]
    return runs


def _refuse_two_rhythms(given: _SortedRows, coordinates: NDArray[np.int64], frequency: str) -> None:
    """Refuse a series of which some rows follow each other at a longer step, so many that it can be no chance."""
    runs = runs_of_longer_steps(coordinates, given.begin)
    if len(runs):
        at, end = runs[0].tolist()
        number = int(np.searchsorted(given.begin, at, side="right")) - 1
        stamps: Any = given.index
        raise UserError(
            f"{given.place(at)}: from {stamps[at - 1]} to {stamps[end]} the time stamps{given.label(number)} come "
            f"{stamps[at] - stamps[at - 1]} apart, but others at frequency {frequency!r}; a series needs one frequency "
            "(to have what is between filled as missing, give the right one as frequency)"
        )


def _refuse_gaps(given: _SortedRows, lengths: NDArray[np.int64], frequency: str, max_filled: float) -> None:
    """Refuse to fill more rows than may be, in all or in a series."""
    rows, total = given.rows, len(given.stamps)
    if lengths.sum() - total > _FREE_ROWS + _MAX_GROWTH * total:
        worst, advice = int((lengths - rows).argmax()), "check its dates"
    elif (lengths - rows > max_filled * lengths).any():
        worst = int(((lengths - rows) / lengths).argmax())
        advice = "none of them may be filled; check its dates and frequency"
        if max_filled:
            share = f"{1 - rows[worst] / lengths[worst]:.0%}"
            advice = (
                f"filling {share} of them is more than max_filled {max_filled:g} allows; check its dates and "
                "frequency, or give a larger max_filled"
            )
    else:
        return
    run = given.run(worst)
    raise UserError(
        f"{given.place(run.start)}: from {given.index[run.start]} to {given.index[run.stop - 1]} there are "
        f"{lengths[worst]} time stamps{given.label(worst)} at frequency {frequency!r}, but only {rows[worst]} rows; "
        f"{advice}"
    )
