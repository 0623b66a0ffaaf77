"""Turn the rows of a table, in memory or in parts, into a panel: each row at its place on the time grid of its series.

Rows are read twice: `Survey` collects the facts of each series, then `_Places` writes each row to its place. Its array
`source` holds, for each place, the number (from 1) of the row written there. Regular rows in memory are not copied.

Shape letters: R rows, S series, C targets, P past and F future covariates, K static columns.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data import frequency as rhythms
from tsattn.data.columns import Categories, first_names, id_order, recoded
from tsattn.data.frequency import OFF_GRID, Grid, Times, counts, is_steps, normalise_frequency
from tsattn.data.panel import Panel
from tsattn.data.stamps import time_numbers, time_unit, time_zone, times_of
from tsattn.data.table_rows import NO_NAME, Roles, Rows, is_nameless
from tsattn.errors import UserError, number_of, one_of, shown

logger = logging.getLogger("tsattn")

Array = NDArray[Any]

_MISSING = "missing"  # the category of a series without a category
_FREE_ROWS, _MAX_GROWTH = 1_000_000, 10  # filling gaps may add the first number plus the second times the given rows
_HEAD = 1 << 22  # most rows of a series from which to find its frequency
_BLOCK = 1 << 20  # rows of the arrays to process at a time
_MOST_TEXTS = 1 << 16  # most categories of a covariate to remember
_OF_MONTHS = "date months by their first or last day, or give another `frequency`, such as SMS-15 for half months"
_TRUE_ONE = "give the right `--data.frequency` (Python: `frequency=`)"
_NEVER, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_ROW_PARTS = {"values": "values", "past_covariates": "past", "future_covariates": "known", "weight": "weights"}
_PER_UNIT = {None: 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}  # nanoseconds; 1 for steps


def in_memory(name: str, shape: tuple[int, ...]) -> Array:
    """Make an array of a panel in memory."""
    return np.zeros(shape, np.int64) if name in ("time", "source") else np.empty(shape)


@dataclass(frozen=True)
class Assembly:
    """Assembles a panel from the rows of a table."""

    parts: Callable[[], Iterable[Rows]]  # returns the rows at each call; the last part may be a future
    roles: Roles
    source: str  # names the table in messages
    where: Callable[[int], str]  # names a row in messages, by its number over all parts
    frequency: str | None = None  # None infers it
    max_filled: float = 1.0  # largest share of the rows of a series that may be filled
    every_target: bool = False  # leave out channels without values
    is_strict: bool = False  # do not log missing values
    times: Callable[[], Iterable[Rows]] | None = None  # like `parts`, but only series and time
    room: Callable[[str, tuple[int, ...]], Array] = in_memory  # makes an array; zeros for `source`
    final_ids: Callable[[list[Any]], list[Any]] = list  # converts the ids of the rows to the ids of the panel

    def panel(self) -> tuple[Panel, Array | None]:
        """Make the panel, and the column of weights `(rows, 1)`, NaN in filled rows."""
        survey = Survey(self.roles)
        for rows in self.parts():
            survey.add(rows)
        return _Places(self, survey).panel()


class Survey:
    """Facts about each series; series are numbered in the order of their first rows."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.ids: dict[Any, int] = {}  # number of each series
        C, K = len(roles.target), len(roles.static)
        # for each series: first and last time in nanoseconds or steps; late: whether rows are out of order; known:
        # number of values; static: number of the category or -1; lacking: first row without category, from 1, or 0
        self._new: dict[str, Any] = {
            **{"rows": 0, "first": _LATEST, "last": _NEVER, "last_target": _NEVER, "late": 0},
            **{"known": [0] * C, "static": [-1] * K, "lacking": [0] * K},
        }
        self.series: dict[str, Array] = {name: np.empty((0, *np.shape(new)), int) for name, new in self._new.items()}
        self.has_value = np.zeros(len(roles.past) + len(roles.future), bool)  # whether a covariate has values
        self.texts: dict[str, dict[str, int] | None] = {}  # categories of a covariate; None if it is numeric
        self.static: dict[str, dict[str, int]] = {name: {} for name in roles.static}  # number of each text
        self.time: Any = None  # an empty index with the zone and the finest unit of all rows
        self.rows = 0
        self.regular: tuple[Array, Array] | None = None  # steps and first rows of the series, if rows are in order

    def add(self, rows: Rows) -> None:
        """Include more rows in the facts."""
        time = rows.time[:0]
        self.time = time if self.time is None else self.time
        # constant offsets may differ from part to part
        zones = [getattr(one, "tz", None) for one in (time, self.time)]
        if zones[0] != zones[1] and all(zone is not None and zone.utcoffset(None) is not None for zone in zones):
            time, self.time = (pd.DatetimeIndex(one).tz_convert("UTC") for one in (time, self.time))
        if time_zone(time) != time_zone(self.time) or (time_unit(time) is None) != (time_unit(self.time) is None):
            mine, others = (time_zone(one) or "none" for one in (time, self.time))
            raise UserError(f"{rows.where(0)}: time zone {mine}, but {others} in earlier rows; all rows need the same")
        if rows.is_own and _PER_UNIT[time_unit(time)] < _PER_UNIT[time_unit(self.time)]:
            self.time = time
        before = len(self.ids)
        for name in rows.names:
            self.ids.setdefault(name, len(self.ids))
        for name, new in self._new.items():
            room = np.full((len(self.ids) - before, *np.shape(new)), new, int)
            self.series[name] = np.concatenate([self.series[name], room]) if len(room) else self.series[name]
        codes = self.codes(rows)
        self._add_covariates(rows)
        if rows.is_own:
            for k, name in enumerate(self.roles.static):
                self._add_static(k, name, rows, codes)
        stamps, values, per = time_numbers(rows.time), rows.values, _PER_UNIT[time_unit(rows.time)]
        begin = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
        is_sorted = bool((codes[begin[1:]] > codes[begin[:-1]]).all())
        if not is_sorted:
            order = np.argsort(codes, kind="stable")
            codes, stamps, values = codes[order], stamps[order], values[order]
            begin = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
        number, sizes, steps = codes[begin], np.diff(begin, append=len(codes)), stamps[1:] - stamps[:-1]
        back = steps < 0
        back[begin[1:] - 1] = False
        a, is_back = self.series, bool(back.any())
        self.regular = (steps, begin) if self.rows == 0 and is_sorted and not is_back else None
        a["late"][number] |= stamps[begin] * per < a["last"][number]
        first, last = stamps[begin], stamps[begin + sizes - 1]
        if is_back:
            a["late"][codes[1:][back]] = 1
            first, last = np.minimum.reduceat(stamps, begin), np.maximum.reduceat(stamps, begin)
        with_target, missing = last * per, np.isnan(values)
        a["known"][number] += sizes[:, None]
        if missing.any():
            a["known"][number] -= np.add.reduceat(missing, begin, dtype=np.int64)
            with_target = np.maximum.reduceat(np.where(missing.all(axis=1), _NEVER, stamps * per), begin)
        a["rows"][number] += sizes
        a["first"][number] = np.minimum(a["first"][number], first * per)
        a["last"][number] = np.maximum(a["last"][number], last * per)
        a["last_target"][number] = np.maximum(a["last_target"][number], with_target)
        self.rows += len(codes)

    def codes(self, rows: Rows) -> Array:
        """`(R,)`: the number of the series of each row."""
        places = np.array([self.ids.get(name, -1) for name in rows.names], np.int64)
        if (places < 0).any():
            raise UserError(f"{rows.where(0)}: the file was changed while it was read; start again")
        return rows.series if np.array_equal(places, np.arange(len(places))) else places[rows.series]

    def stamps(self, numbers: Array) -> Times:
        """Convert nanoseconds to stamps in the time zone of the rows; keep steps."""
        is_time = isinstance(self.time, pd.DatetimeIndex)
        return times_of(numbers, "ns" if is_time else None, getattr(self.time, "tz", None))

    @property
    def categories(self) -> Categories:
        """The sorted categories of the covariates that have categories."""
        return {name: tuple(sorted(known)) for name, known in self.texts.items() if known is not None}

    def _add_covariates(self, rows: Rows) -> None:
        is_given = ~np.isnan(np.concatenate([rows.past, rows.known], axis=1))
        self.has_value |= is_given.any(axis=0)
        for k, name in enumerate((*self.roles.past, *self.roles.future)):
            if not is_given[:, k].any():
                continue
            texts = self.texts.setdefault(name, {} if name in rows.categories else None)
            if (texts is None) != (name not in rows.categories):
                where, before = rows.where(int(is_given[:, k].argmax())), "numbers" if texts is None else "text"
                raise UserError(f"{where}: covariate {shown(name)} has no {before} from here on; give text or numbers")
            texts = {} if texts is None else texts
            texts |= dict.fromkeys(rows.categories.get(name, ()), 0)
            if len(texts) > _MOST_TEXTS:
                says = f"covariate {shown(name)} has more than {_MOST_TEXTS} categories; use fewer, or numbers"
                raise UserError(f"{rows.where(0)}: {says}")

    def _add_static(self, k: int, name: str, rows: Rows, codes: Array) -> None:
        known = self.static[name]
        numbers = np.array([*(known.setdefault(text, len(known)) for text in rows.categories[name]), -1], np.int64)
        own = numbers[np.nan_to_num(rows.static[:, k], nan=0).astype(np.int64) - 1]  # missing: last, -1
        static, first = self.series["static"][:, k], self.series["lacking"][:, k]
        lacking = np.flatnonzero((own < 0) & ~np.isnan(rows.values).all(axis=1))[::-1]
        lacking = lacking[first[codes[lacking]] == 0]
        first[codes[lacking]] = rows.start + lacking + 1  # reversed, so that the first row of several wins
        given = np.flatnonzero(own >= 0)[::-1]
        given = given[static[codes[given]] < 0]
        static[codes[given]] = own[given]
        changes = (own != static[codes]) & (own >= 0)
        if changes.any():
            row = int(changes.argmax())
            series, text = shown(list(self.ids)[codes[row]]), shown(list(known)[own[row]])
            says = f"static column {shown(name)} changes within series {series}, to {text}; make it a covariate"
            raise UserError(f"{rows.where(row)}: {says}")


class _Places:
    """The place of each row, and the arrays of all rows."""

    def __init__(self, table: Assembly, survey: Survey) -> None:
        self.table, self.survey, self.source, a = table, survey, table.source, survey.series
        self.time: Times = survey.time
        self.per = _PER_UNIT[time_unit(self.time)]
        # `(C,)`: the numbers, among the table's channels, of channels with values
        self.channels = self._channels()
        self.roles = replace(table.roles, target=tuple(table.roles.target[place] for place in self.channels))
        known = a["known"][:, self.channels]
        has_value = np.atleast_1d(known.any(axis=1)) | self.roles.is_wide
        if not has_value.any():
            raise UserError(f"{self.source}: every target of every series is missing; at least one is needed")
        names = table.final_ids(list(survey.ids))
        order = np.array(id_order(names))
        if left := [names[place] for place in order[~has_value[order]]]:
            says = "%s: left out %d of %d series without any value: %s"
            logger.warning(says, self.source, len(left), len(names), first_names(left))
        self.order = order[has_value[order]]  # `(S,)`: numbers in the survey, in the order of sorted ids
        self.ids = tuple(names[place] for place in self.order)
        self.number = np.full(len(names), -1)  # the inverse; -1 for a series that is left out
        self.number[self.order] = np.arange(len(self.order))
        if (empty := np.argwhere(known[self.order] == 0)).size:
            series, channel = empty[0].tolist()
            raise UserError(self._missing(f"{shown(self.roles.target[channel])}{self._of(series)}"))
        self.rows, first, last, target = (a[name][self.order] for name in ("rows", "first", "last", "last_target"))
        self.frequency = self._frequency(first, last)
        edges = survey.stamps(np.concatenate([first, last, target if self.roles.future else last]))
        self.grid = Grid(edges[: 2 * len(first)], self.frequency)
        (self.origin, latest, end), phases = (part.reshape(3, -1) for part in self.grid.split(edges))
        self.phase = phases[0]
        # `(S,)`: number of steps up to the last target (without future covariates: all), and of all steps
        self.kept, self.whole = end - self.origin + 1, latest - self.origin + 1
        self.starts, self.whole_starts = (np.concatenate([[0], np.cumsum(part)]) for part in (self.kept, self.whole))
        wrong = np.flatnonzero((self.phase == OFF_GRID) | (phases[1] != self.phase))
        if wrong.size:
            raise self._irregular(int(wrong[0]))
        self._refuse_gaps(1.0, _FREE_ROWS + _MAX_GROWTH * int(self.rows.sum()))

    def panel(self) -> tuple[Panel, Array | None]:
        """Make the panel: write all rows to their places, or use them without a copy."""
        roles, arrays = self.roles, self._as_they_are() or self._written()
        self._log_missing(arrays)
        static, categories = self._static()
        panel = Panel(
            ids=self.ids,
            channels=roles.target,
            frequency=self.frequency,
            time=arrays["time"],
            starts=self.starts,
            values=arrays["values"],
            past_covariates=arrays["past_covariates"] if roles.past else None,
            past_names=roles.past,
            future_covariates=arrays["future_covariates"] if roles.future else None,
            future_names=roles.future,
            static_names=roles.static,
            ahead=arrays.get("ahead", np.empty((0, len(roles.future)))) if roles.future else None,
            ahead_starts=self.whole_starts - self.starts,
            static=static if roles.static else None,
            static_categories=categories,
            covariate_categories=self.survey.categories,
            is_wide=roles.is_wide,
            id_name=Panel.id_name if roles.id is None else roles.id,
            time_name=NO_NAME if is_nameless(roles.time) or roles.time.startswith("__index_level_") else roles.time,
        )
        return panel, None if roles.weight is None else arrays["weight"]

    def write(self, arrays: dict[str, Array], rows: Rows) -> Array:
        """Write rows to their places; return which past covariates `(P,)` have values after the last target."""
        of_rows, (coordinates, phases) = self.number[self.survey.codes(rows)], self.grid.split(rows.time)
        own = np.flatnonzero(of_rows >= 0)
        number = of_rows[own]
        steps = coordinates[own] - self.origin[number]
        off = (phases[own] != self.phase[number]) | (steps < 0) | (steps >= self.whole[number])
        if off.any():
            raise self._irregular(int(number[off].min()))
        source, places, rank = arrays["source"], self.whole_starts[number] + steps, rows.start + own + 1
        before = source[places]
        source[places] = rank
        now = source[places]
        twice = np.flatnonzero((before != 0) | (now != rank))
        if twice.size:
            first, second = np.where(before != 0, before, rank)[twice], np.where(before != 0, rank, now)[twice]
            at = int(second.argmin())
            stamp, series = rows.time[own[twice[at]]], int(number[twice[at]])
            raise self._twice(series, stamp, int(first[at]) - 1, int(second[at]) - 1)
        is_kept = steps < self.kept[number]
        if is_kept.any() and not rows.is_own:
            at = int(is_kept.argmax())
            stamp = f"time stamp {rows.time[own[at]]}{self._of(int(number[at]))}"
            raise UserError(f"{rows.where(int(own[at]))}: {stamp} is not after the last row with a target")
        kept, later, (here, there) = own[is_kept], own[~is_kept], self._rows_of(number, steps)
        texts = {name: known for name, known in self.survey.categories.items() if name in rows.categories}
        past = recoded(rows.past, rows.categories, self.roles.past, texts)
        known = recoded(rows.known, rows.categories, self.roles.future, texts)
        arrays["time"][here] = counts(rows.time[kept]) // self.per
        arrays["values"][here] = rows.values[kept][:, self.channels]
        for name, part in (("past_covariates", past), ("future_covariates", known), ("weight", rows.weights)):
            if part.shape[1]:
                arrays[name][here] = part[kept]
        if "ahead" in arrays:
            arrays["ahead"][there] = known[later]
        return ~np.atleast_1d(np.isnan(past[later]).all(axis=0))

    def _channels(self) -> Array:
        roles = self.table.roles
        for name, has_value in zip((*roles.past, *roles.future), self.survey.has_value, strict=True):
            if not has_value:
                raise UserError(self._missing(f"covariate {shown(name)}"))
        is_full = np.atleast_1d(self.survey.series["known"].any(axis=0))
        if not roles.is_wide or not self.table.every_target or is_full.all() or not is_full.any():
            return np.arange(len(roles.target))
        empty = [shown(roles.target[place]) for place in np.flatnonzero(~is_full)]
        what = f"column{'s'[: len(empty) - 1]} {one_of(empty)}"
        logger.warning("%s: left out %s without any value", self.source, what)
        return np.flatnonzero(is_full)

    def _frequency(self, first: Array, last: Array) -> str:
        if self.table.frequency is not None:
            frequency = normalise_frequency(self.table.frequency)
            if is_steps(frequency) != isinstance(self.time, pd.DatetimeIndex):
                return frequency
            has = "whole numbers that count steps", "is for time stamps; valid are 1, 2"
            if is_steps(frequency):
                has = "time stamps", "counts steps; valid are, for example, 15min, h, D, W-SUN, MS"
            raise UserError(f"{self.source} has {has[0]}, but frequency {frequency!r} {has[1]}")
        longest = int(self.rows.argmax())
        time, rows, is_own = self._stamps(longest)
        if len(time) < 3:
            says = f"no series has the 3 rows that show a frequency (the longest has {len(time)})"
            raise UserError(f"{self.table.where(int(rows[0]))}: {says}; give `--data.frequency` (Python: `frequency=`)")
        again = np.flatnonzero(time[1:] == time[:-1])
        if again.size:
            at = int(again[rows[again + 1].argmin()])
            raise self._twice(longest, time[at], *rows[at : at + 2].tolist())
        own = time[is_own] if is_own.sum() > 2 else time
        frequency = rhythms.usual_frequency(own)
        ends = self.survey.stamps(np.stack([first, last], axis=1).ravel())
        pairs = np.arange(0, len(ends), 2)
        if frequency != "D" or not (rhythms.are_business_days(own) and rhythms.are_business_days(ends, pairs)):
            return frequency
        times = self.table.times or self.table.parts
        return "B" if all(rhythms.are_business_days(part.time) for part in times()) else "D"

    def _stamps(self, series: int) -> tuple[Any, Array, Array]:
        """About `_HEAD` sorted time stamps of a series, their row numbers, and which are not from a given future."""
        parts, count = [], 0
        for rows in (self.table.times or self.table.parts)():
            found = np.flatnonzero(self.survey.codes(rows) == self.order[series])
            parts.append((counts(rows.time[found]), rows.start + found, np.full(len(found), rows.is_own)))
            count += len(found)
            if count >= _HEAD:
                break
        time, numbers, is_own = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(time, kind="stable")
        return self.survey.stamps(time[order]), numbers[order], is_own[order]

    def _times(self, places: Array) -> Times:
        series = np.searchsorted(self.whole_starts, places, side="right") - 1
        return self.grid.join(self.origin[series] + places - self.whole_starts[series], self.phase[series])

    def _as_they_are(self) -> dict[str, Any] | None:
        """Copies of the rows in memory, if they have no gaps and are in the order of series and time; else None."""
        is_whole = self.survey.rows == self.whole.sum() == self.kept.sum() and len(self.ids) == len(self.survey.ids)
        is_as_read = is_whole and len(self.channels) == len(self.table.roles.target)
        is_in_order = is_as_read and np.array_equal(self.order, np.arange(len(self.ids)))
        if self.table.room is not in_memory or self.survey.regular is None or not is_in_order:
            return None
        (rows,) = self.table.parts()
        (steps, begin), step = self.survey.regular, self.grid.step
        if step is not None:
            length, rest = divmod(step, _PER_UNIT[time_unit(rows.time)])
            follows, is_on_grid = steps == length, rest == 0
        else:
            coordinates, phases = self.grid.split(rows.time)
            follows, is_on_grid = np.diff(coordinates) == 1, bool((phases == self.phase.repeat(self.rows)).all())
        follows[begin[1:] - 1] = True
        given = {"time": rows.time, **{name: getattr(rows, part) for name, part in _ROW_PARTS.items()}}
        return copy.deepcopy(given) if follows.all() and is_on_grid else None  # the caller may change the frame

    def _written(self) -> dict[str, Any]:
        rows, total, roles = int(self.kept.sum()), int(self.whole.sum()), self.roles
        widths = {"values": len(roles.target), "past_covariates": len(roles.past)}
        widths |= {"future_covariates": len(roles.future), "weight": int(roles.weight is not None)}
        shapes: dict[str, tuple[int, ...]] = {name: (rows, width) for name, width in widths.items() if width}
        shapes |= {"time": (rows,), "source": (total,)}
        if roles.future:
            shapes["ahead"] = total - rows, len(roles.future)
        arrays = {name: self.table.room(name, shape) for name, shape in shapes.items()}
        drops = np.zeros(len(roles.past), dtype=bool)
        for part in self.table.parts():
            drops |= self.write(arrays, part)
        self._check_rhythms(arrays["source"])
        self._refuse_gaps(self.table.max_filled)
        filled = sum(self._fill(arrays, first) for first in range(0, total, _BLOCK))
        if dropped := [shown(name) for name, is_dropped in zip(roles.past, drops, strict=True) if is_dropped]:
            what = f"covariate{'s'[: len(dropped) - 1]} {one_of(dropped)}"
            logger.warning("%s: values of the past %s after the last targets are not used", self.source, what)
        late, series, lacking = self.survey.series["late"][self.order], len(self.ids), self.whole - self.rows
        if late.any():
            logger.warning("%s: sorted the rows of %d of %d series by time", self.source, late.sum(), series)
        if lacking.any():
            number = number_of(int(lacking.sum()), "missing time stamp")
            logger.warning("%s: filled %s in %d of %d series", self.source, number, (lacking > 0).sum(), series)
        if total > rows:
            says = "%s: read %s after the last targets as the future of the covariates"
            logger.info(says, self.source, number_of(total - rows, "row"))
        time = times_of(arrays["time"], time_unit(self.time), getattr(self.time, "tz", None))
        return {**dict.fromkeys(_ROW_PARTS, np.empty((rows, 0))), **arrays, "time": time, "filled": filled}

    def _fill(self, arrays: dict[str, Array], first: int) -> int:
        places = first + np.flatnonzero(arrays["source"][first : first + _BLOCK] == 0)
        if not len(places):
            return 0
        series = np.searchsorted(self.whole_starts, places, side="right") - 1
        steps = places - self.whole_starts[series]
        here, there = self._rows_of(series, steps)
        arrays["time"][here] = counts(self._times(places[steps < self.kept[series]])) // self.per
        for name, rows in (*((name, here) for name in _ROW_PARTS), ("ahead", there)):
            if name in arrays:
                arrays[name][rows] = np.nan
        return len(here)

    def _rows_of(self, series: Array, steps: Array) -> tuple[Array, Array]:
        is_kept = steps < self.kept[series]
        ahead = (self.whole_starts - self.starts)[series] + steps - self.kept[series]
        return (self.starts[series] + steps)[is_kept], ahead[~is_kept]

    def _log_missing(self, arrays: dict[str, Any]) -> None:
        filled, roles = arrays.get("filled", 0), self.roles
        if self.table.is_strict:
            return
        given = int(self.starts[-1]) - filled
        blocks = [slice(first, first + _BLOCK) for first in range(0, given + filled, _BLOCK)]
        values, known = given * len(roles.target), self.survey.series["known"][self.order][:, self.channels].sum()
        if known < values:
            says = "%s: %d of %d values are missing; they are masked, never scored"
            logger.warning(says, self.source, values - known, values)
        for part, names in (("past_covariates", roles.past), ("future_covariates", roles.future)):
            lacking: Array = np.sum([np.isnan(arrays[part][block]).sum(axis=0) for block in blocks], axis=0) - filled
            says = "%s: covariate %s: %d of %d values are missing; models that need a value get the last known one"
            for k in np.flatnonzero(lacking).tolist():
                logger.warning(says, self.source, shown(names[k]), lacking[k], given)

    def _static(self) -> tuple[Array, tuple[tuple[str, ...], ...]]:
        raw, lacking = (self.survey.series[name][self.order] for name in ("static", "lacking"))
        partly = np.argwhere((lacking > 0) & (raw >= 0))
        if partly.size:
            number, k = min(partly.tolist(), key=lambda place: int(lacking[*place]))
            where = self.table.where(int(lacking[number, k]) - 1)
            raise UserError(f"{where}: the category in static column {shown(self.roles.static[k])} is missing")
        categories, codes = [], np.empty_like(raw)
        for k, name in enumerate(self.roles.static):
            # -1 is the last place: the category of a series without a category
            texts = np.array([*self.survey.static[name], _MISSING], dtype=object)[raw[:, k]]
            used, codes[:, k] = np.unique(texts, return_inverse=True)
            categories.append(tuple(used.tolist()))
        return codes, tuple(categories)

    def _check_rhythms(self, source: Array) -> None:
        """Refuse series of a coarser frequency; a frequency that the user gave must fit at least one series."""
        has_gaps, starts, is_given = self.rows < self.whole, self.whole_starts, self.table.frequency is not None
        coarser, next_one = np.zeros(len(self.ids), dtype=bool), 0
        while has_gaps[next_one:].any():  # process several series at a time
            block = next_one + int(has_gaps[next_one:].argmax())
            next_one = max(block + 1, int(np.searchsorted(starts, starts[block] + _HEAD, side="right")) - 1)
            first = int(starts[block])
            places = first + np.flatnonzero(source[first : min(int(starts[next_one]), first + _HEAD)])
            series = np.searchsorted(starts, places, side="right") - 1
            begin = np.flatnonzero(np.diff(series, prepend=-1))
            coarser[series[begin]] = rhythms.coarser_series(places, begin)
            if self.frequency == "D" and not is_given:
                coarser[series[begin]] |= rhythms.business_series(self._times(places), begin)
        if coarser.any() and (not is_given or coarser[self.rows > 2].all()):
            number = int(coarser.argmax())
            time, rows, _ = self._stamps(number)
            raise self._mixed(number, rhythms.usual_frequency(time), int(rows[0]))

    def _refuse_gaps(self, share: float, most: float = np.inf) -> None:
        """Refuse to fill more than a share of the rows of a series, or more than `most` rows in all."""
        lacking = self.whole - self.rows
        if lacking.sum() <= most and (lacking <= share * self.whole).all():
            return
        worst, advice = int((lacking / self.whole).argmax()), "check its dates"
        if not share:
            advice = "max_filled 0 allows no gaps; check its dates and frequency"
        elif most == np.inf:
            filled = f"filling {lacking[worst] / self.whole[worst]:.0%} of them is more than max_filled {share:g}"
            raising = 'raise `--data.max_filled` (Python: `data={"max_filled": ...}`)'
            advice = f"{filled} allows; check its dates and frequency, or {raising}"
        first, last = self._times(self.whole_starts[worst] + np.array([0, self.whole[worst] - 1]))
        are = f"there are {self.whole[worst]} time stamps{self._of(worst)} at frequency {self.frequency!r}"
        where = self.table.where(int(self._stamps(worst)[1][0]))
        raise UserError(f"{where}: from {first} to {last} {are}, but only {self.rows[worst]} rows; {advice}")

    def _missing(self, what: str) -> str:
        return f"{self.source}: every value of {what} is missing; fill it, or leave it out"

    def _of(self, series: int) -> str:
        return "" if self.table.roles.is_wide else f" of series {shown(self.ids[series])}"

    def _usual(self, series: int) -> str:
        longest = int(self.rows.argmax())
        is_alone = self.table.frequency is not None or series == longest
        return f"{self.frequency!r}" + ("" if is_alone else f" like series {shown(self.ids[longest])}")

    def _twice(self, series: int, time: Any, first: int, second: int) -> UserError:
        what = "name the id column" if self.table.roles.is_wide else "list all id columns"
        mend = f"remove one. For several series, {what}: `--data.id_column` (Python: `id_column=`)"
        says = f"time stamp {time}{self._of(series)} is there twice, first in {self.table.where(first)}: {mend}"
        return UserError(f"{self.table.where(second)}: {says}")

    def _irregular(self, series: int) -> UserError:
        time, rows, is_own = self._stamps(series)
        own = rhythms.try_infer_frequency(time) if len(time) > 2 else None
        if own is not None and normalise_frequency(own) != self.frequency:
            return self._mixed(series, normalise_frequency(own), int(rows[0]))
        phases = self.grid.split(time)[1]
        candidates, how_often = np.unique(phases, return_counts=True)
        # without a clear majority, trust the first row
        phase = candidates[how_often.argmax()] if 3 * how_often.max() > 2 * len(phases) else phases[0]
        is_future = not is_own.all() and is_own.any() and bool((phases[is_own] == phases[0]).all())
        phase = phases[0] if is_future else phase
        row = int(np.argmax((phases != phase) | (phases == OFF_GRID)))
        place = f" comes {time[row] - time[row - 1]} after the row before, but" if row and not is_future else ""
        is_long = np.ptp(counts(time)) > 14 * 86_400 * _PER_UNIT["s"] * (len(time) - 1)  # half a month
        mend = _OF_MONTHS if is_long else f"round the time stamps to one frequency, or {_TRUE_ONE}"
        which = f"of frequency {self._usual(series)}; {mend}"
        if is_future:  # blame the future, even if it has more rows
            which = f"of its series, which ends at {time[is_own][-1]}, of frequency {self.frequency!r}"
        stamp = f"time stamp {time[row]}{self._of(series)}{place}"
        return UserError(f"{self.table.where(int(rows[row]))}: {stamp} is not on the grid {which}")

    def _mixed(self, series: int, own: str, row: int) -> UserError:
        needs = _TRUE_ONE if len(self.ids) == 1 else f"all series need the same (if rows are missing, {_TRUE_ONE})"
        says = f"the time stamps{self._of(series)} have frequency {own!r}, not {self._usual(series)}; {needs}"
        return UserError(f"{self.table.where(row)}: {says}")
