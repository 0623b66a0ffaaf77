"""What is wrong with time stamps: some twice, some missing, some beside the grid, other frequencies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tsattn.data.frequency import Times
from tsattn.data.grid import business_series, coarser_series, counts, runs_of_longer_steps, usual_frequency
from tsattn.diagnosis.finding import Finding
from tsattn.diagnosis.given_rows import GivenRows
from tsattn.errors import number_of, shown

__all__ = ["time_findings"]

_RUN = 4  # stamps off the grid that follow each other at one step, from which on it is a frequency


def time_findings(rows: GivenRows, max_filled: float) -> Iterator[Finding]:
    """Repeated and missing time stamps, those off the grid, and series or parts of series of another frequency.

    Args:
        rows: as they are given.
        max_filled: the share of the rows of a series that the reader fills where time stamps are missing.
    """
    column = shown(rows.roles.time)
    for one in rows.repeated:
        what = "with other values" if one.differs else "with the same values"
        sentence = (
            f"{number_of(one.count, 'row')} of a time stamp that is there already, {what}; the reader refuses that: "
            "remove them, sum what they hold, or name id_column if they are of several series"
        )
        yield Finding(rows.label(one.series), column, "repeated", one.count, str(one.first), sentence)
    if rows.frequency is None:
        return
    begin, lengths = rows.begin[:-1], np.diff(rows.begin)
    coarse = coarser_series(rows.coordinates, begin)
    if rows.frequency == "D":
        coarse |= business_series(rows.time, begin)
    for series in range(len(lengths)):
        label, part = rows.label(series), rows.rows(series)
        time = rows.time[part]
        if coarse[series]:
            own = usual_frequency(time)
            sentence = f"its frequency is {own}, others' {rows.frequency}; the reader refuses that: bring all to one"
            yield Finding(label, column, "frequency", lengths[series], str(time[0]), sentence)
            continue
        yield from _off_grid(rows, label, column, part)
        yield from _gaps(rows, label, column, part, max_filled)


def _off_grid(rows: GivenRows, label: object, column: str, part: slice) -> Iterator[Finding]:
    off = ~rows.on_grid[part]
    if not off.any():
        return
    time, count = rows.time[part], int(off.sum())
    first = int(off.argmax())
    runs = _regular_runs(time, off)
    if runs:
        start, end = runs[0]
        apart = time[start + 1] - time[start]  # type: ignore[operator]
        where = f"{time[start]} to {time[end]}"
        sentence = f"stamps come {apart} apart there, else at frequency {rows.frequency}; the reader refuses that"
        yield Finding(label, column, "frequency", count, where, sentence)
        return
    sentence = (
        f"{number_of(count, 'time stamp')} not on the grid of frequency {rows.frequency}; the reader refuses that: "
        "round them, or give the right frequency"
    )
    yield Finding(label, column, "irregular", count, str(time[first]), sentence)


def _regular_runs(time: Times, off: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The first and last of stamps off the grid, or between such, that follow each other at one step."""
    steps = np.diff(counts(time))
    ends = np.flatnonzero(np.diff(steps)) + 1
    found = []
    for first, end in zip([0, *ends.tolist()], [*ends.tolist(), len(steps)], strict=True):
        if off[first : end + 1].sum() >= _RUN:
            found.append((first, end))
    return found


def _gaps(rows: GivenRows, label: object, column: str, part: slice, max_filled: float) -> Iterator[Finding]:
    own = np.flatnonzero(rows.on_grid[part]) + part.start
    if len(own) < 2:
        return
    coordinates = rows.coordinates[own]
    missing = np.diff(coordinates) - 1  # before each row but the first
    for first, end in runs_of_longer_steps(coordinates, np.array([0])).tolist():
        apart = rows.time[own[first]] - rows.time[own[first - 1]]
        where = f"{rows.time[own[first - 1]]} to {rows.time[own[end]]}"
        sentence = (
            f"stamps come {apart} apart there, else at frequency {rows.frequency}; give that as the frequency to have "
            "what is between filled as missing, or bring all to one"
        )
        yield Finding(label, column, "frequency", end - first + 2, where, sentence)
        missing[first - 1 : end] = 0
    if not missing.any():
        return
    total, places = int(missing.sum()), np.flatnonzero(missing)
    first, longest = int(places[0]), int(missing.max())
    share, what = total / (total + len(own)), "they are filled as missing"
    if share > max_filled:
        what = (
            f"that is {share:.1%} of its time stamps, and the reader refuses more than {max_filled:.0%}: check its "
            "dates and frequency, or give a larger max_filled"
        )
    sentence = (
        f"{number_of(total, 'time stamp')} missing in {number_of(len(places), 'gap')}, the longest of "
        f"{number_of(longest, 'step')}; {what}"
    )
    yield Finding(label, column, "gap", total, f"after {rows.time[own[first]]}", sentence)
