"""From the rows of a table, in memory or part by part, to a panel: each row at its place on the grid of its series.

The rows are looked at twice. First what is known of each series is counted; frequency, grids and the size of all arrays
follow from that. Then each row is written to its place, in any order: nothing is sorted, and memory holds a part of the
rows. An array beside those of the panel has, for each place, the number of the row that came there, from 1: it shows
what is there twice, and what is missing. Rows in memory that are regular as they are stay where they are.

Shape letters: R rows, S series, C targets, P past and F future covariates, K static columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.category_columns import recoded
from tsattn.data.columns import id_order
from tsattn.data.frequency import Times, is_steps, normalise_frequency, try_infer_frequency
from tsattn.data.grid import (
    OFF_GRID,
    Grid,
    business_series,
    coarser_series,
    counts,
    regularity,
    runs_of_longer_steps,
    usual_frequency,
)
from tsattn.data.panel import Panel
from tsattn.data.roles import NO_NAME, Roles, is_nameless
from tsattn.data.stamps import time_unit, times_of
from tsattn.data.survey import PER_UNIT, Survey
from tsattn.data.table_rows import Rows, listed
from tsattn.errors import UserError, number_of, one_of, shown

__all__ = ["MISSING", "Assembly", "in_memory"]

logger = logging.getLogger("tsattn")

Array = NDArray[Any]

MISSING = "missing"
"""The category of a series that has none."""

_FREE_ROWS, _MAX_GROWTH = 1_000_000, 10  # filling gaps may add so many rows, or so many times the rows given
_HEAD = 1 << 22  # rows of one series that its frequency is found from
_BLOCK = 1 << 20  # rows of the arrays that are looked at together
_ROW_PARTS = {"values": "values", "past_covariates": "past", "future_covariates": "known", "weight": "weights"}


def in_memory(name: str, shape: tuple[int, ...]) -> Array:
    """Make an array of a panel in memory."""
    return np.zeros(shape, np.int64) if name in ("time", "source") else np.empty(shape)


@dataclass(frozen=True)
class _Layout:
    """Where every row goes."""

    roles: Roles  # without channels that have no value
    channels: Array  # `(C,)` the places of these channels among those of the table
    ids: tuple[Any, ...]  # of the series that have a value, sorted
    order: Array  # `(S,)` their numbers in the survey
    number: Array  # the other way round, -1 of a series that is left out
    frequency: str
    grid: Grid
    origin: Array  # `(S,)` coordinate of the first time stamp
    phase: Array  # `(S,)` of all time stamps
    rows: Array  # `(S,)` rows of the table
    kept: Array  # `(S,)` steps up to the last time stamp, or, with future covariates, to the last target
    whole: Array  # `(S,)` all steps

    @property
    def starts(self) -> Array:
        """`(S + 1,)` first kept step of each series, and how many there are."""
        return np.concatenate([[0], np.cumsum(self.kept)])

    @property
    def whole_starts(self) -> Array:
        """`(S + 1,)` first step of each series, and how many there are."""
        return np.concatenate([[0], np.cumsum(self.whole)])

    def times(self, places: Array) -> Times:
        """The time stamps of places, which count the steps of all series."""
        series = np.searchsorted(self.whole_starts, places, side="right") - 1
        return self.grid.join(self.origin[series] + places - self.whole_starts[series], self.phase[series])


class Assembly:
    """Puts the rows of a table together.

    Args:
        parts: gives the rows, part by part, each time it is called; the last may be those of a future.
        roles: which column is what.
        source: what the table is, for messages.
        where: names a row, counted over all parts, in messages.
        frequency: of the table, if it is known.
        max_filled: the share of the rows of a series that may be filled.
        every_target: whether channels without any value are left out.
        is_strict: whether missing values are not logged.
        times: as `parts`, for series and time alone.
        room: makes the array of a name and shape, which is zeros for `source`.
        final_ids: turns the ids of the rows into those of the panel.
    """

    def __init__(
        self,
        parts: Callable[[], Iterable[Rows]],
        roles: Roles,
        source: str,
        where: Callable[[int], str],
        *,
        frequency: str | None = None,
        max_filled: float = 1.0,
        every_target: bool = False,
        is_strict: bool = False,
        times: Callable[[], Iterable[Rows]] | None = None,
        room: Callable[[str, tuple[int, ...]], Array] = in_memory,
        final_ids: Callable[[list[Any]], list[Any]] = list,
    ) -> None:
        self._parts, self._roles, self._source, self._where = parts, roles, source, where
        self._given, self._max_filled, self._every_target = frequency, max_filled, every_target
        self._is_strict, self._times, self._room, self._final_ids = is_strict, times or parts, room, final_ids

    def panel(self) -> tuple[Panel, Array | None]:
        """Make the panel, and the cells of the column of weights `(rows, 1)`, NaN where a row was filled."""
        survey = Survey(self._roles)
        for rows in self._parts():
            survey.add(rows)
        layout = self._layout(survey)
        arrays = self._as_they_are(survey, layout) or self._written(survey, layout)
        return self._finished(survey, layout, arrays)

    def _layout(self, survey: Survey) -> _Layout:
        """Where the rows go."""
        a, (roles, channels) = survey.series, self._with_values(survey)
        known = a["known"][:, channels]
        has_value = np.atleast_1d(known.any(axis=1)) | roles.is_wide
        if not has_value.any():
            raise UserError(f"{self._source}: every target of every series is missing; at least one is needed")
        names = self._final_ids(list(survey.ids))
        if not has_value.all():
            left = [name for name, is_full in zip(names, has_value, strict=True) if not is_full]
            left = [left[place] for place in id_order(left)]
            says = "%s: left out %d of %d series, without any value: %s"
            logger.warning(says, self._source, len(left), len(names), listed(left))
        kept = np.flatnonzero(has_value)
        order = kept[id_order([names[place] for place in kept])]
        ids, number = tuple(names[place] for place in order), np.full(len(names), -1)
        number[order] = np.arange(len(order))
        empty = np.argwhere(known[order] == 0)
        if empty.size:
            series, channel = empty[0].tolist()
            of = "" if roles.is_wide else f" of series {shown(ids[series])}"
            raise UserError(
                f"{self._source}: every value of {shown(roles.target[channel])}{of} is missing; at least one is needed"
            )
        rows, first, last, target = (a[name][order] for name in ("rows", "first", "last", "last_target"))
        frequency = self._frequency(survey, int(order[rows.argmax()]), first, last)
        edges = [self._like(survey, stamps) for stamps in (first, last, target if roles.future else last)]
        grid = Grid(edges[0].append(edges[1]), frequency)
        coordinates, phases = grid.split(edges[0].append(edges[1:]))
        origin, latest, end = coordinates.reshape(3, -1)
        phase, others, _ = phases.reshape(3, -1)
        kept, whole = end - origin + 1, latest - origin + 1
        layout = _Layout(roles, channels, ids, order, number, frequency, grid, origin, phase, rows, kept, whole)
        wrong = np.flatnonzero((phase == OFF_GRID) | (others != phase))
        if wrong.size:
            raise self._irregular(survey, layout, int(wrong[0]))
        self._refuse_gaps(survey, layout, _FREE_ROWS + _MAX_GROWTH * int(rows.sum()))
        return layout

    def _with_values(self, survey: Survey) -> tuple[Roles, Array]:
        """The roles without the channels of a wide table that have no value, unless they were listed."""
        roles = self._roles
        for name, count in zip((*roles.past, *roles.future), survey.covariates, strict=True):
            if not count:
                raise UserError(
                    f"{self._source}: every value of covariate {shown(name)} is missing; at least one is needed"
                )
        is_full = np.atleast_1d(survey.series["known"].any(axis=0))
        if not roles.is_wide or not self._every_target or is_full.all() or not is_full.any():
            return roles, np.arange(len(roles.target))
        empty = [shown(name) for name, is_kept in zip(roles.target, is_full, strict=True) if not is_kept]
        what = f"column {empty[0]}" if len(empty) == 1 else f"columns {one_of(empty)}"
        logger.warning("%s: left out %s, without any value", self._source, what)
        channels = np.flatnonzero(is_full)
        return replace(roles, target=tuple(roles.target[place] for place in channels)), channels

    def _like(self, survey: Survey, stamps: Array) -> Times:
        """Stamps in nanoseconds in the time zone of the rows; or steps."""
        is_time = isinstance(survey.time, pd.DatetimeIndex)
        return times_of(stamps, "ns" if is_time else None, getattr(survey.time, "tz", None))

    def _stamps(self, survey: Survey, code: int) -> tuple[Any, Array, Array]:
        """Time stamps of a series as they rise, at most `_HEAD`, the numbers of their rows, and which are its own."""
        stamps, numbers, is_own, count = [], [], [], 0
        for rows in self._times():
            found = np.flatnonzero(survey.codes(rows) == code)
            stamps.append(counts(rows.time[found]))
            numbers.append(rows.start + found)
            is_own.append(np.full(len(found), rows.is_own))
            count += len(found)
            if count >= _HEAD:
                break
        time = np.concatenate(stamps)
        order = np.argsort(time, kind="stable")
        return self._like(survey, time[order]), np.concatenate(numbers)[order], np.concatenate(is_own)[order]

    def _frequency(self, survey: Survey, longest: int, first: Array, last: Array) -> str:
        """The frequency that was given, under its one name, or the usual one of the longest series."""
        if self._given is not None:
            frequency, has_steps = normalise_frequency(self._given), not isinstance(survey.time, pd.DatetimeIndex)
            if is_steps(frequency) != has_steps:
                what, other = ("whole numbers that count steps", "is one of time stamps; valid are 1, 2, ...")
                if not has_steps:
                    what, other = ("time stamps", "counts steps; valid are such as 15min, h, D, W-SUN, MS")
                raise UserError(f"{self._source} has {what}, but frequency {frequency!r} {other}")
            return frequency
        time, rows, is_own = self._stamps(survey, longest)
        if len(time) < 3:
            raise UserError(
                f"{self._where(int(rows[0]))}: no series has the 3 rows that it takes to see a frequency (the longest "
                f"has {len(time)}); give the frequency"
            )
        again = np.flatnonzero(time[1:] == time[:-1])
        if again.size:
            at = int(again[rows[again + 1].argmin()])
            raise self._twice(list(survey.ids)[longest], time[at], *rows[at : at + 2].tolist())
        own = time[is_own] if is_own.sum() > 2 else time
        frequency = usual_frequency(own)
        if frequency != "D" or not np.is_busday(_days(own)).all():
            return frequency
        # days of which none is on a weekend, in any series, though one goes on in another week
        weeks = [(_days(self._like(survey, stamps)).astype(np.int64) + 3) // 7 for stamps in (first, last)]
        if (weeks[0] == weeks[1]).all() or not all(np.is_busday(_days(part.time)).all() for part in self._times()):
            return "D"
        return "B"

    def _refuse_gaps(self, survey: Survey, layout: _Layout, most: int | None = None) -> None:
        """Refuse to fill more rows of a series than may be; or more than so many in all."""
        rows, whole = layout.rows, layout.whole
        if most is not None:
            if (whole - rows).sum() <= most:
                return
            worst, advice = int((whole - rows).argmax()), "check its dates"
        elif not (whole - rows > self._max_filled * whole).any():
            return
        else:
            worst = int(((whole - rows) / whole).argmax())
            advice = "none of them may be filled; check its dates and frequency"
            if self._max_filled:
                share = f"{1 - rows[worst] / whole[worst]:.0%}"
                advice = (
                    f"filling {share} of them is more than max_filled {self._max_filled:g} allows; check its dates and "
                    "frequency, or give a larger max_filled"
                )
        code = int(layout.order[worst])
        _, numbers, _ = self._stamps(survey, code)
        first, last = (self._like(survey, survey.series[name][[code]])[0] for name in ("first", "last"))
        raise UserError(
            f"{self._where(int(numbers[0]))}: from {first} to {last} there are {whole[worst]} time "
            f"stamps{self._label(layout.ids[worst])} at frequency {layout.frequency!r}, but only {rows[worst]} rows; "
            f"{advice}"
        )

    def _label(self, name: Any) -> str:
        return "" if self._roles.is_wide else f" of series {shown(name)}"

    def _twice(self, name: Any, time: Any, first: int, second: int) -> UserError:
        several = "several series, name id_column"
        if not self._roles.is_wide:
            several = "more series, list all columns of ids in id_column"
        return UserError(
            f"{self._where(second)}: time stamp {time}{self._label(name)} is there twice, first in "
            f"{self._where(first)}; each may come once (if the rows are of {several})"
        )

    def _like_the_longest(self, layout: _Layout, series: int) -> str:
        longest = int(layout.rows.argmax())
        if self._given is not None or len(layout.ids) == 1 or series == longest:
            return ""
        return f" like series {shown(layout.ids[longest])}"

    def _irregular(self, survey: Survey, layout: _Layout, series: int) -> UserError:
        """What is wrong with the time stamps of a series, not all of which are on one grid of the frequency."""
        time, rows, is_own = self._stamps(survey, int(layout.order[series]))
        own = try_infer_frequency(time) if len(time) > 2 else None
        if own is not None and normalise_frequency(own) != layout.frequency:
            return self._mixed(layout, series, normalise_frequency(own), int(rows[0]))
        label = self._label(layout.ids[series])
        phases = layout.grid.split(time)[1]
        if not is_own.all() and is_own.any() and (phases[is_own] == phases[0]).all() and phases[0] != OFF_GRID:
            row = int((phases != phases[0]).argmax())
            return UserError(
                f"{self._where(int(rows[row]))}: time stamp {time[row]}{label} is not on the grid of its series, which "
                f"ends at {time[is_own][-1]} with frequency {layout.frequency!r}; give the steps after that"
            )
        candidates, how_often = np.unique(phases, return_counts=True)
        # in doubt the first row is right
        phase = candidates[how_often.argmax()] if 3 * how_often.max() > 2 * len(phases) else phases[0]
        row = int(np.argmax((phases != phase) | (phases == OFF_GRID)))
        place = f" comes {time[row] - time[row - 1]} after the row before, but" if row else ""
        return UserError(
            f"{self._where(int(rows[row]))}: time stamp {time[row]}{label}{place} is not on the grid of frequency "
            f"{layout.frequency!r}{self._like_the_longest(layout, series)}; {regularity(time)}"
        )

    def _mixed(self, layout: _Layout, series: int, own: str, row: int) -> UserError:
        needs = "give the right one as frequency" if len(layout.ids) == 1 else "all series need the same frequency"
        if self._given is None and len(layout.ids) > 1:
            needs += " (where rows are missing, give the right one as frequency)"
        return UserError(
            f"{self._where(row)}: the time stamps{self._label(layout.ids[series])} have frequency {own!r}, not "
            f"{layout.frequency!r}{self._like_the_longest(layout, series)}; {needs}"
        )

    def _as_they_are(self, survey: Survey, layout: _Layout) -> dict[str, Any] | None:
        """The arrays of rows in memory that have no gap and come in the order of series and time; None of others."""
        is_whole = survey.rows == layout.whole.sum() == layout.kept.sum() and len(layout.ids) == len(survey.ids)
        if self._room is not in_memory or survey.regular is None or not is_whole:
            return None
        is_in_order = np.array_equal(layout.order, np.arange(len(layout.ids)))
        if not is_in_order or len(layout.channels) < len(self._roles.target):
            return None
        (rows,) = self._parts()
        (steps, begin), step = survey.regular, layout.grid.step
        if step is not None:
            length, rest = divmod(step, PER_UNIT[time_unit(rows.time)])
            follows, is_on_grid = steps == length, rest == 0
        else:
            coordinates, phases = layout.grid.split(rows.time)
            follows, is_on_grid = np.diff(coordinates) == 1, bool((phases == layout.phase.repeat(layout.rows)).all())
        follows[begin[1:] - 1] = True
        if not follows.all() or not is_on_grid:
            return None
        return {"time": rows.time, **{name: getattr(rows, part) for name, part in _ROW_PARTS.items()}}

    def _written(self, survey: Survey, layout: _Layout) -> dict[str, Any]:
        """The arrays with every row at its place, and what is missing filled."""
        rows, total, roles = int(layout.kept.sum()), int(layout.whole.sum()), layout.roles
        widths = {"values": len(roles.target), "past_covariates": len(roles.past)}
        widths |= {"future_covariates": len(roles.future), "weight": int(roles.weight is not None)}
        shapes: dict[str, tuple[int, ...]] = {name: (rows, width) for name, width in widths.items() if width}
        shapes |= {"time": (rows,), "source": (total,)}
        if roles.future:
            shapes["ahead"] = total - rows, len(roles.future)
        arrays = {name: self._room(name, shape) for name, shape in shapes.items()}
        drops = np.zeros(len(roles.past), dtype=bool)
        for part in self._parts():
            drops |= self._write(survey, layout, arrays, part)
        self._check_rhythms(survey, layout, arrays["source"])
        self._refuse_gaps(survey, layout)
        filled = sum(self._fill(survey, layout, arrays, first) for first in range(0, total, _BLOCK))
        self._log_rows(survey, layout, drops)
        assert survey.time is not None
        time = times_of(arrays["time"], time_unit(survey.time), getattr(survey.time, "tz", None))
        return {**dict.fromkeys(_ROW_PARTS, np.empty((rows, 0))), **arrays, "time": time, "filled": filled}

    def _write(self, survey: Survey, layout: _Layout, arrays: dict[str, Array], rows: Rows) -> Array:
        """Write rows to their places; which past covariates `(P,)` have values after the last target."""
        number = layout.number[survey.codes(rows)]
        coordinates, phases = layout.grid.split(rows.time)
        own = np.flatnonzero(number >= 0)
        number, phases = number[own], phases[own]
        steps = coordinates[own] - layout.origin[number]
        off = (phases != layout.phase[number]) | (steps < 0) | (steps >= layout.whole[number])
        if off.any():
            raise self._irregular(survey, layout, int(number[off].min()))
        source, places, rank = arrays["source"], layout.whole_starts[number] + steps, rows.start + own + 1
        before = source[places]
        source[places] = rank
        now = source[places]
        twice = np.flatnonzero((before != 0) | (now != rank))
        if twice.size:
            first, second = np.where(before != 0, before, rank)[twice], np.where(before != 0, rank, now)[twice]
            at = int(second.argmin())
            stamp = rows.time[own[twice[at]]]
            raise self._twice(layout.ids[number[twice[at]]], stamp, int(first[at]) - 1, int(second[at]) - 1)
        is_kept = steps < layout.kept[number]
        if is_kept.any() and not rows.is_own:
            at = int(own[is_kept][0])
            raise UserError(
                f"{rows.where(at)}: time stamp {rows.time[at]}{self._label(rows.names[rows.series[at]])} does not come "
                "after the last row with a target"
            )
        kept, here = own[is_kept], (layout.starts[number] + steps)[is_kept]
        arrays["time"][here] = counts(rows.time[kept]) // PER_UNIT[time_unit(survey.time)]  # type: ignore[arg-type]
        arrays["values"][here] = rows.values[kept][:, layout.channels]
        texts = {name: known for name, known in survey.categories.items() if name in rows.categories}
        past = recoded(rows.past, rows.categories, layout.roles.past, texts)
        known = recoded(rows.known, rows.categories, layout.roles.future, texts)
        for name, part in (("past_covariates", past), ("future_covariates", known), ("weight", rows.weights)):
            if part.shape[1]:
                arrays[name][here] = part[kept]
        later = own[~is_kept]
        if layout.roles.future:
            ahead_starts = layout.whole_starts - layout.starts
            there = ahead_starts[number] + steps - layout.kept[number]
            arrays["ahead"][there[~is_kept]] = known[later]
        return ~np.atleast_1d(np.isnan(past[later]).all(axis=0))

    def _fill(self, survey: Survey, layout: _Layout, arrays: dict[str, Array], first: int) -> int:
        """Give the places of a block that no row came to their time stamps, and missing values; count those kept."""
        places = first + np.flatnonzero(arrays["source"][first : first + _BLOCK] == 0)
        if not len(places):
            return 0
        series = np.searchsorted(layout.whole_starts, places, side="right") - 1
        steps = places - layout.whole_starts[series]
        is_kept = steps < layout.kept[series]
        here = (layout.starts[series] + steps)[is_kept]
        stamps = counts(layout.times(places[is_kept]))
        arrays["time"][here] = stamps // PER_UNIT[time_unit(survey.time)]  # type: ignore[arg-type]
        for name in _ROW_PARTS:
            if name in arrays:
                arrays[name][here] = np.nan
        if "ahead" in arrays:
            ahead = (layout.whole_starts - layout.starts)[series] + steps - layout.kept[series]
            arrays["ahead"][ahead[~is_kept]] = np.nan
        return len(here)

    def _check_rhythms(self, survey: Survey, layout: _Layout, source: Array) -> None:
        """Refuse series with gaps whose time stamps are of another frequency, or of two.

        A frequency that is given holds for a series that happens to have no two rows in a row, but not if none has.
        """
        has_gaps, starts = layout.rows < layout.whole, layout.whole_starts
        coarser, two_rhythms = np.zeros(len(layout.ids), dtype=bool), None
        next_one = 0
        while has_gaps[next_one:].any():  # as many series as may be looked at together
            block = next_one + int(has_gaps[next_one:].argmax())
            next_one = max(block + 1, int(np.searchsorted(starts, starts[block] + _HEAD, side="right")) - 1)
            first = int(starts[block])
            places = first + np.flatnonzero(source[first : min(int(starts[next_one]), first + _HEAD)])
            series = np.searchsorted(starts, places, side="right") - 1
            begin = np.flatnonzero(np.diff(series, prepend=-1))
            coarser[series[begin]] = coarser_series(places, begin)
            if self._given is None:
                if layout.frequency == "D":
                    coarser[series[begin]] |= business_series(layout.times(places), begin)
                runs = runs_of_longer_steps(places, begin)
                if two_rhythms is None and len(runs):
                    two_rhythms = [int(places[at]) for at in (runs[0, 0] - 1, runs[0, 0], runs[0, 1])]
        if coarser.any() and (self._given is None or coarser[layout.rows > 2].all()):
            number = int(coarser.argmax())
            time, rows, _ = self._stamps(survey, int(layout.order[number]))
            raise self._mixed(layout, number, usual_frequency(time), int(rows[0]))
        if two_rhythms is not None:
            before, at, end = two_rhythms
            stamps: Any = self._like(survey, counts(layout.times(np.array([before, at, end]))))
            label = self._label(layout.ids[int(np.searchsorted(starts, at, side="right")) - 1])
            raise UserError(
                f"{self._where(int(source[at]) - 1)}: from {stamps[0]} to {stamps[2]} the time stamps{label} come "
                f"{stamps[1] - stamps[0]} apart, but others at frequency {layout.frequency!r}; a series needs one "
                "frequency (to have what is between filled as missing, give the right one as frequency)"
            )

    def _log_rows(self, survey: Survey, layout: _Layout, drops: Array) -> None:
        """Log what was done to the rows."""
        late, series = survey.series["late"][layout.order], len(layout.ids)
        if late.any():
            says = "%s: sorted the rows of %d of %d series by time"
            logger.warning(says, self._source, late.sum(), series)
        if missing := int((layout.whole - layout.rows).sum()):
            logger.warning(
                "%s: filled %s in %d of %d series",
                *(self._source, number_of(missing, "missing time stamp"), (layout.whole > layout.rows).sum(), series),
            )
        if ahead := int((layout.whole - layout.kept).sum()):
            says = "%s: read %s after the last targets as the future of the covariates"
            logger.info(says, self._source, number_of(ahead, "row"))
        if drops.any():
            names = [shown(name) for name, is_dropped in zip(layout.roles.past, drops, strict=True) if is_dropped]
            what = f"covariate{'' if len(names) == 1 else 's'} {one_of(names)}"
            logger.warning("%s: values of the past %s after the last targets are not used", self._source, what)

    def _finished(self, survey: Survey, layout: _Layout, arrays: dict[str, Any]) -> tuple[Panel, Array | None]:
        roles = layout.roles
        complete = self._complete(survey, layout, arrays)
        static, categories = self._static(survey, layout)
        panel = Panel(
            ids=layout.ids,
            channels=roles.target,
            frequency=layout.frequency,
            time=arrays["time"],
            starts=layout.starts,
            values=arrays["values"],
            past_covariates=arrays["past_covariates"] if roles.past else None,
            past_names=roles.past,
            future_covariates=arrays["future_covariates"] if roles.future else None,
            future_names=roles.future,
            ahead=arrays.get("ahead", np.empty((0, len(roles.future)))) if roles.future else None,
            ahead_starts=layout.whole_starts - layout.starts,
            static=static if roles.static else None,
            static_names=roles.static,
            static_categories=categories,
            covariate_categories=survey.categories,
            complete=frozenset() if self._room is in_memory else complete,
            is_wide=roles.is_wide,
            id_name=Panel.id_name if roles.id is None else roles.id,
            time_name=NO_NAME if is_nameless(roles.time) or roles.time.startswith("__index_level_") else roles.time,
        )
        return panel, None if roles.weight is None else arrays["weight"]

    def _complete(self, survey: Survey, layout: _Layout, arrays: dict[str, Any]) -> frozenset[str]:
        """The arrays in which no number is missing; log how many are missing in others."""
        rows, roles, complete = int(layout.kept.sum()), layout.roles, set()
        filled = arrays.get("filled", 0)
        known = {"values": survey.series["known"][layout.order].sum(axis=0)[layout.channels]}
        known["past_covariates"], known["future_covariates"] = np.split(survey.covariates, [len(roles.past)])
        if "ahead" in arrays or len(layout.ids) < len(survey.ids):
            blocks = [slice(first, first + _BLOCK) for first in range(0, rows, _BLOCK)]
            for part in (part for part in known if part in arrays):
                known[part] = np.sum([(~np.isnan(arrays[part][block])).sum(axis=0) for block in blocks], axis=0)
        given = rows - filled
        for part, columns in zip(known, (roles.target, roles.past, roles.future), strict=True):
            lacking = given - known[part]
            if columns and not filled and not lacking.any():
                complete.add(part)
            if self._is_strict or not lacking.any():
                continue
            if part == "values":
                says = "%s: %d of %d values are missing; they are masked, never scored"
                logger.warning(says, self._source, lacking.sum(), given * len(columns))
                continue
            for name, count in zip(columns, lacking.tolist(), strict=True):
                if count:
                    logger.warning(
                        "%s: covariate %s: %d of %d values are missing; a model that needs one sees the last known",
                        *(self._source, shown(name), count, given),
                    )
        return frozenset(complete)

    def _static(self, survey: Survey, layout: _Layout) -> tuple[Array, tuple[tuple[str, ...], ...]]:
        """`(S, K)` the category of each series in each static column, and the categories of each column."""
        raw, lacking = (survey.series[name][layout.order] for name in ("static", "lacking"))
        partly = np.argwhere((lacking > 0) & (raw >= 0))
        if partly.size:
            number, k = min(partly.tolist(), key=lambda place: int(lacking[*place]))
            where = self._where(int(lacking[number, k]) - 1)
            raise UserError(f"{where}: the category in static column {shown(layout.roles.static[k])} is missing")
        categories, codes = [], np.empty_like(raw)
        for k, name in enumerate(layout.roles.static):
            texts = [*(survey.texts[name] or ()), MISSING]  # -1, the last, is that of a series without any
            used = sorted({texts[code] for code in raw[:, k]})
            place = {text: number for number, text in enumerate(used)}
            codes[:, k] = np.array([place.get(text, -1) for text in texts])[raw[:, k]]
            categories.append(tuple(used))
        return codes, tuple(categories)


def _days(index: Any) -> NDArray[np.datetime64]:
    return np.asarray(index.tz_localize(None)).astype("M8[D]")
