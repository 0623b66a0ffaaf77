"""Rows of many series on their time grids: sorted, checked, and with a place for every stamp that is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.frequency import try_infer_frequency
from tsattn.data.grid import OFF_GRID, Grid, normalise_frequency, usual_frequency
from tsattn.data.messages import counted
from tsattn.errors import UserError, shown

__all__ = ["Layout", "lay_out"]

logger = logging.getLogger("tsattn")

_FREE_ROWS = 1_000_000  # filling gaps may add this many rows, or ...
_MAX_GROWTH = 10  # ... this many times the rows given


@dataclass(frozen=True)
class Layout:
    """Where the rows of a table go on the grids of its series.

    Attributes:
        frequency: pandas frequency of all series.
        time: `(rows,)` time stamps of all series end to end, gaps filled.
        starts: `(S + 1,)` int64 first row of each series, and `rows`.
        places: `(rows of the table,)` int64, the row that each row of the table goes to.
    """

    frequency: str
    time: pd.DatetimeIndex
    starts: NDArray[np.int64]
    places: NDArray[np.int64]

    def spread(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """`(rows, n)` with NaN in filled rows, of `(rows of the table, n)`."""
        result = np.full((len(self.time), part.shape[1]), np.nan)
        result[self.places] = part
        return result


def lay_out(
    time: pd.DatetimeIndex,
    series: NDArray[np.int64],
    names: tuple[Any, ...],
    frequency: str | None,
    where: Callable[[int], str],
    source: str,
    *,
    is_wide: bool,
) -> Layout:
    """Sort rows by series and time, find the frequency, check every stamp against it and make room for missing ones.

    The frequency is that of the longest series; all work but its inference is done for all series at once.

    Args:
        time: `(rows of the table,)` time stamps.
        series: `(rows of the table,)` number of the series of each row; every number up to the largest occurs.
        names: the ids, for messages.
        frequency: the frequency that all series must have; None infers it.
        where: names a row (from 0) of the table in messages.
        source: what the table is, for messages.
        is_wide: whether there is but one series, without an id.

    Raises:
        UserError: for stamps that are there twice or off the grid, mixed frequencies, gaps too long to be filled.
    """

    def label(number: int) -> str:
        return "" if is_wide else f" of series {shown(names[number])}"

    stamps = time.as_unit("ns").asi8
    order = _order_by_time(stamps, series, source)
    repeats = (np.diff(stamps[order]) == 0) & (np.diff(series[order]) == 0)
    if repeats.any():
        pairs = np.sort(np.stack([order[:-1][repeats], order[1:][repeats]], axis=1), axis=1)
        first, second = pairs[pairs[:, 1].argmin()].tolist()
        raise UserError(
            f"{where(second)}: time stamp {time[second]}{label(series[second])} is there twice, first in "
            f"{where(first)}; each may come once"
        )
    index, number = time[order], series[order]
    begin = np.flatnonzero(np.diff(number, prepend=-1))
    counts = np.diff(begin, append=len(number))
    runs = [slice(first, first + count) for first, count in zip(begin.tolist(), counts.tolist(), strict=True)]

    longest, is_given = int(counts.argmax()), frequency is not None
    if not is_given and counts[longest] < 3:
        raise UserError(
            f"{where(int(order[begin[longest]]))}: no series has the 3 rows that it takes to see a frequency (the "
            f"longest has {counts[longest]}); give the frequency"
        )
    if frequency is None:
        frequency = usual_frequency(index[runs[longest]])
        if frequency == "D" and _are_business_days(index, begin):
            frequency = "B"
    else:
        frequency = normalise_frequency(frequency)
    grid = Grid(index, frequency)
    coordinates, phases = grid.split(index)
    others = "" if is_given or len(names) == 1 else f" like series {shown(names[longest])}"
    on_grid = (phases == np.repeat(phases[begin], counts)) & (phases != OFF_GRID)
    if not on_grid.all():
        culprit = int(number[(~on_grid).argmax()])
        run, others = runs[culprit], "" if culprit == longest else others
        raise _irregular(index[run], phases[run], order[run], frequency, others, label(culprit), where)
    coarser = _coarser_series(index, coordinates, begin, frequency)
    # a frequency that is given also holds for a series that happens to have no two rows in a row, but not if none has
    if coarser.any() and (not is_given or coarser[counts > 2].all()):
        culprit = int(coarser.argmax())
        own = usual_frequency(index[runs[culprit]])
        raise _mixed(where(int(order[begin[culprit]])), label(culprit), own, frequency, others)

    lengths = coordinates[begin + counts - 1] - coordinates[begin] + 1
    missing = int(lengths.sum()) - len(stamps)
    if missing > _FREE_ROWS + _MAX_GROWTH * len(stamps):
        worst = int((lengths - counts).argmax())
        first, last = index[runs[worst]][[0, -1]]
        raise UserError(
            f"{where(int(order[begin[worst]]))}: from {first} to {last} there are {lengths[worst]} time stamps"
            f"{label(worst)} at frequency {frequency!r}, but only {counts[worst]} rows; check its dates"
        )
    starts = np.concatenate([[0], np.cumsum(lengths)])
    sorted_places = np.repeat(starts[:-1] - coordinates[begin], counts) + coordinates
    if missing:
        logger.warning(
            "%s: filled %s in %d of %d series",
            source,
            counted(missing, "missing time stamp"),
            (lengths > counts).sum(),
            len(names),
        )
        is_filled = np.ones(starts[-1], dtype=bool)
        is_filled[sorted_places] = False
        owner = np.repeat(np.arange(len(names)), lengths)[is_filled]
        steps = np.flatnonzero(is_filled) - starts[owner]
        whole = np.empty(starts[-1], np.int64)
        whole[sorted_places] = stamps[order]
        whole[is_filled] = grid.join(coordinates[begin][owner] + steps, phases[begin][owner]).asi8
        index = pd.DatetimeIndex(whole.view("M8[ns]"))
        index = (index if time.tz is None else index.tz_localize("UTC").tz_convert(time.tz)).as_unit(time.unit)
    places = np.empty_like(sorted_places)
    places[order] = sorted_places
    return Layout(frequency, index, starts, places)


def _order_by_time(stamps: NDArray[np.int64], series: NDArray[np.int64], source: str) -> NDArray[np.int64]:
    """The rows in order of series, then time; of rows alike, in the order given."""
    order = np.argsort(series, kind="stable")
    is_back = (np.diff(series[order]) == 0) & (np.diff(stamps[order]) < 0)
    if is_back.any():
        unsorted = np.unique(series[order][1:][is_back]).size
        logger.warning("%s: sorted the rows of %d of %d series by time", source, unsorted, series.max() + 1)
        order = np.lexsort((stamps, series))
    return order


def _are_business_days(index: pd.DatetimeIndex, begin: NDArray[np.int64]) -> bool:
    """Whether no stamp is on a weekend though some series goes on in another week."""
    days = _days(index)
    weeks = (days.astype(np.int64) + 3) // 7  # 1970-01-01 was a Thursday
    ends = np.append(begin[1:], len(index)) - 1
    return bool(np.is_busday(days).all() and np.any(weeks[begin] != weeks[ends]))


def _days(index: pd.DatetimeIndex) -> NDArray[np.datetime64]:
    return np.asarray(index.tz_localize(None)).astype("M8[D]")


def _irregular(
    index: pd.DatetimeIndex,
    phases: NDArray[np.int64],
    order: NDArray[np.int64],
    frequency: str,
    others: str,
    label: str,
    where: Callable[[int], str],
) -> UserError:
    """What is wrong with the time stamps of one series, not all of which are on one grid of the frequency."""
    own = try_infer_frequency(index) if len(index) > 2 else None
    if own is not None and (own := normalise_frequency(own)) != frequency:
        return _mixed(where(int(order[0])), label, own, frequency, others)
    candidates, counts = np.unique(phases, return_counts=True)
    # in doubt the first row is right
    phase = candidates[counts.argmax()] if 3 * counts.max() > 2 * len(phases) else phases[0]
    row = int(np.argmax((phases != phase) | (phases == OFF_GRID)))
    behind = f" comes {index[row] - index[row - 1]} after the row before, but" if row else ""
    return UserError(
        f"{where(int(order[row]))}: time stamp {index[row]}{label}{behind} is not on the grid of frequency "
        f"{frequency!r}{others}; time stamps must be regular, though some may be missing"
    )


def _mixed(place: str, label: str, own: str, frequency: str, others: str) -> UserError:
    return UserError(
        f"{place}: the time stamps{label} have frequency {own!r}, not {frequency!r}{others}; all series need the same "
        "frequency (where rows are missing, give the right one as frequency)"
    )


def _coarser_series(
    index: pd.DatetimeIndex,
    coordinates: NDArray[np.int64],
    begin: NDArray[np.int64],
    frequency: str,
) -> NDArray[np.bool_]:
    """`(S,)` whether a series has 3 rows or more but never two that follow each other on the grid.

    Among daily series also those that are regular on business days.
    """
    counts = np.diff(begin, append=len(index))
    steps = np.diff(coordinates, prepend=0)
    steps[begin] = np.iinfo(np.int64).max
    coarser: NDArray[np.bool_] = (counts > 2) & (np.minimum.reduceat(steps, begin) > 1)
    if frequency == "D":
        days = _days(index)
        no_weekend = np.logical_and.reduceat(np.is_busday(days), begin)
        first, last = days[begin], days[begin + counts - 1]
        spans_weekend = (last - first).astype(np.int64) >= counts
        coarser |= (counts > 2) & no_weekend & spans_weekend & (np.busday_count(first, last) == counts - 1)
    return coarser
