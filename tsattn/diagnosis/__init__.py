"""Report problems of a table before you train on it: it is read as it is given, sorted, with nothing filled.

Shape letters: R rows, S series, C targets, P past and F future covariates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.frequency import (
    OFF_GRID,
    Grid,
    Times,
    are_business_days,
    business_series,
    coarser_series,
    counts,
    runs_of_longer_steps,
    season_length,
    usual_frequency,
)
from tsattn.data.reader import TableReader
from tsattn.data.table_options import TableOptions
from tsattn.data.table_rows import Table, read_rows
from tsattn.descriptions import check_names
from tsattn.errors import number_of, quiet, shown, whole_number

__all__ = ["KINDS", "diagnose"]

KINDS = {
    "repeated": "time stamps that a series has more than once",
    "irregular": "time stamps that are not on the grid of the frequency",
    "frequency": "series, or parts of series, of another frequency",
    "gap": "time stamps that are missing between others",
    "missing": "values that are missing in rows that are there",
    "short": "series with fewer steps than a context and a horizon",
    "constant": "series or covariates of one value",
    "outlier": "values far from those a season before and after, and from the level of the series",
    "scale": "series whose values spread more than a thousand times as far as those of another",
    "category": "static categories that a single series has",
}
"""The kinds of findings, in the order in which they are listed."""

_RUN = 4  # consecutive stamps off the grid, at one step, from which on they count as a frequency
_FAR = 10.0  # robust standard deviations of seasonal differences, from which on a value is an outlier
_RARE = 0.01  # share of outliers, above which they are normal for the series
_FEWEST = 20  # fewest differences to estimate their spread
_APART = 1000.0  # times the scale of another series
_NORMAL = 1.4826, 1.2533  # of a normal distribution, the standard deviation over MAD and over mean absolute deviation
_MOST_STEPS, _ALWAYS = 10, 1000  # times the rows of a series, and steps more: longer grids come from a wrong date

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def diagnose(
    frame: Any,
    *,
    context_length: int = 24,
    prediction_length: int = 96,
    id_column: str | Sequence[str] | None = None,
    time_column: str | None = None,
    target: str | Sequence[str] | None = None,
    past_covariates: Sequence[str] = (),
    future_covariates: Sequence[str] = (),
    static: Sequence[str] = (),
    frequency: str | int | timedelta | pd.offsets.BaseOffset | None = None,
    **text: Any,
) -> pd.DataFrame:
    """Report problems of a table before you train on it: errors, and findings that would pass silently.

    It changes nothing, and refuses only cells that are no number or date, and columns that are not there. A finding is
    a reason to look: limits are thresholds, see `tsattn.diagnosis.outliers`.

    Args:
        frame: a frame or the path of a file, as `tsattn.Forecaster` takes them.
        context_length: past steps that a model will see; by default the fewest that a `Forecaster` chooses among.
        prediction_length: steps that it will forecast.
        id_column: of series ids, or columns that make them up; found if named ``unique_id`` or ``item_id``.
        time_column: of time stamps; found if named ``ds``, ``timestamp`` or ``date``.
        target: to forecast; found if named ``y`` or ``target`` in a long frame, all others in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns known for the future too.
        static: columns of categories, constant within a series.
        frequency: pandas frequency as text, offset or length of time, or 1, 2, ... for steps; None infers it.
        text: other fields of `TableOptions`: ``date_format``, of CSV files ``separator``, ``decimal`` and so on.

    Returns:
        A row for each series, column and kind of finding: ``series`` (of a wide frame the target column; empty for a
        finding in several), ``column``, ``kind`` (one of `KINDS`, in this order), ``count``, ``where``, ``sentence``.

    Raises:
        UserError: for a frame that cannot be read, naming the row, or an unknown option.
    """
    check_names(text, ["context_length", "prediction_length", *(one.name for one in fields(TableOptions))], "diagnose")
    reader = TableReader.of({**locals(), **text})
    context_length = whole_number("context_length", context_length)
    prediction_length = whole_number("prediction_length", prediction_length)
    with quiet():
        diagnosis = _Diagnosis(reader.table(frame), reader)
        diagnosis.look_at_time()
        diagnosis.look_at_values(context_length + prediction_length, prediction_length)
    found = sorted(diagnosis.findings, key=lambda finding: [*KINDS].index(finding[2]))
    return pd.DataFrame(found, columns=["series", "column", "kind", "count", "where", "sentence"])


class _Diagnosis:
    """Findings of a table, and its rows by series and time, each time stamp of a series once."""

    owner: NDArray[np.int64]  # (R,), the number of the series of each row, which rises
    begin: NDArray[np.int64]  # (S + 1,), the first row of each series
    coordinates: NDArray[np.int64]  # (R,), the stamps as numbers on the grid of `frequency`
    on_grid: Bools  # (R,), whether a stamp is on the grid of most of its series

    def __init__(self, table: Table, reader: TableReader) -> None:
        self.findings: list[tuple[Any, ...]] = []
        roles, frame, self.max_filled = table.roles, table.frame, reader.max_filled
        by_role = {name: getattr(roles, name) for name in ("target", "past", "future")}
        empty = [name for names in by_role.values() for name in names if len(frame) and frame[name].isna().all()]
        has_targets, refused = bool({*roles.target} - {*empty}), "every value is missing; the reader refuses that"
        target = f"{refused}: {'leave it out of the targets' if has_targets else 'a target needs some'}"
        if roles.is_wide and reader.target is None and has_targets:
            target = "every value is missing: the column is left out"
        for column in empty:
            sentence = target if column in roles.target else f"{refused}: leave the covariate out"
            self.add("", column, "missing", len(frame), "everywhere", sentence)
        kept: Any = {role: tuple(name for name in names if name not in empty) for role, names in by_role.items()}
        self.roles, self.time_name = replace(roles, **kept), shown(roles.time)
        given = read_rows(replace(table, roles=self.roles))
        self.names, stamps = given.names, counts(given.time)
        order = np.lexsort((stamps, given.series))
        again = (np.diff(given.series[order]) == 0) & (np.diff(stamps[order]) == 0)
        once = order[np.concatenate([[True], ~again])]
        self.time, self.owner = given.time[once], given.series[once]
        self.begin = np.searchsorted(self.owner, np.arange(len(given.names) + 1))
        self.values, self.past, self.known = given.values[once], given.past[once], given.known[once]
        lengths, self.frequency = np.diff(self.begin), table.frequency
        longest = int(lengths.argmax())
        if self.frequency is None and lengths[longest] > 2:
            self.frequency = usual_frequency(self.time[self.rows(longest)])
            if self.frequency == "D" and are_business_days(self.time, self.begin[:-1]):
                self.frequency = "B"
        self.coordinates, self.on_grid = np.arange(len(self.time)), np.ones(len(self.time), dtype=bool)
        if self.frequency is not None:
            self.coordinates, phases = Grid(self.time, self.frequency).split(self.time)
            known = pd.Series(phases).where(phases != OFF_GRID)
            usual = known.groupby(self.owner).agg(lambda own: own.mode().get(0, np.nan))
            self.on_grid = (known == usual.to_numpy()[self.owner]).to_numpy()

        later = np.flatnonzero(again) + 1
        cells, owners = np.concatenate([given.values, given.past, given.known], axis=1), given.series[order[later]]
        for series in np.unique(owners).tolist():
            places = later[owners == series]
            are_equal = np.array_equal(cells[order[places - 1]], cells[order[places]], equal_nan=True)
            values = "the same values" if are_equal else "other values"
            what = f"{number_of(len(places), 'row')} repeat a time stamp with {values}"
            sentence = f"{what}; the reader refuses that: remove or sum them, or name id_column"
            first = str(given.time[order[places[0]]])
            self.add(self.label(series), self.time_name, "repeated", len(places), first, sentence)
        for column in self.roles.static if len(self.names) > 2 else ():  # of one or two series nothing is said
            pairs = pd.DataFrame({"series": given.series, "category": table.frame[column].to_numpy()}).dropna()
            series_of = pairs.groupby("category", sort=True)["series"].nunique()
            rare = series_of.index[series_of == 1]
            if len(rare):
                many = number_of(len(rare), "category")
                sentence = f"{many} of {len(series_of)} occur in one series only: too few to learn from"
                listed = ", ".join(shown(name) for name in rare[:5]) + (", ..." if len(rare) > 5 else "")
                self.add("", column, "category", len(rare), listed, sentence)

    def add(self, *finding: Any) -> None:
        self.findings.append(finding)  # a row of what `diagnose` returns

    def rows(self, series: int) -> slice:
        return slice(int(self.begin[series]), int(self.begin[series + 1]))

    def label(self, series: int, channel: int | None = None) -> Any:
        if not self.roles.is_wide:
            return self.names[series]
        return "" if channel is None else self.roles.target[channel]

    def look_at_time(self) -> None:
        if self.frequency is None:
            return
        refused, usual = "the reader refuses that", f"frequency {self.frequency}"
        coarse = coarser_series(self.coordinates, self.begin[:-1])
        if self.frequency == "D":
            coarse |= business_series(self.time, self.begin[:-1])
        for series in range(len(self.names)):
            of, part = (self.label(series), self.time_name), self.rows(series)
            time, off = self.time[part], ~self.on_grid[part]
            if coarse[series]:
                own = usual_frequency(time)
                sentence = f"its frequency is {own}, not {self.frequency}; {refused}: bring all series to one"
                self.add(*of, "frequency", len(time), str(time[0]), sentence)
                continue
            # the first consecutive stamps off the grid at one step
            jumps = np.diff(counts(time))
            ends = (np.flatnonzero(np.diff(jumps)) + 1).tolist() if off.any() else []
            runs = zip([0, *ends], [*ends, len(jumps)], strict=True)
            if run := next((run for run in runs if off[run[0] : run[1] + 1].sum() >= _RUN), None):
                apart: Any = time[run[0] + 1] - time[run[0]]
                sentence = f"stamps come {apart} apart there, else at {usual}; {refused}"
                self.add(*of, "frequency", int(off.sum()), f"{time[run[0]]} to {time[run[1]]}", sentence)
            elif off.any():
                many = number_of(int(off.sum()), "time stamp")
                sentence = f"{many} not on the grid of {usual}; {refused}: round them, or give the right `frequency`"
                self.add(*of, "irregular", int(off.sum()), str(time[int(off.argmax())]), sentence)
            self._look_for_gaps(of, time[~off], self.coordinates[part][~off])

    def _look_for_gaps(self, of: tuple[Any, str], time: Times, places: NDArray[np.int64]) -> None:
        missing = np.diff(places) - 1  # before each row but the first
        for first, last in runs_of_longer_steps(places, np.array([0])).tolist() if len(places) > 1 else ():
            apart = f"stamps come {time[first] - time[first - 1]} apart there, else at frequency {self.frequency}"
            sentence = f"{apart}: give the finer `frequency`, or bring all rows to one"
            self.add(*of, "frequency", last - first + 2, f"{time[first - 1]} to {time[last]}", sentence)
            missing[first - 1 : last] = 0
        if not missing.any():
            return
        total, gaps = int(missing.sum()), np.flatnonzero(missing)
        share, what = total / (total + len(places)), "they are filled as missing"
        if share > self.max_filled:
            what = f"that is {share:.1%} of its time stamps, and the reader refuses more than {self.max_filled:.0%}"
            what += ": check its dates and frequency, or give a larger max_filled"
        many, longest = f"{number_of(total, 'time stamp')} missing in {number_of(len(gaps), 'gap')}", int(missing.max())
        sentence = f"{many}, the longest of {number_of(longest, 'step')}; {what}"
        self.add(*of, "gap", total, f"after {time[int(gaps[0])]}", sentence)

    def look_at_values(self, needed: int, prediction_length: int) -> None:
        for series in range(len(self.names)):
            part = self.rows(series)
            if self.roles.future:  # the rows up to the last target
                known = np.flatnonzero(~np.isnan(self.values[part]).all(axis=1))
                part = slice(part.start, part.start + (int(known[-1]) + 1 if len(known) else 0))
            own = self.coordinates[part][self.on_grid[part]]
            steps = int(np.ptp(own)) + 1 if len(own) else 0
            if steps < needed:
                lengths = f"context_length {needed - prediction_length}, prediction_length {prediction_length}"
                sentence = f"{number_of(steps, 'step')}, fewer than the {needed} of a whole window ({lengths})"
                self.add(self.label(series), self.time_name, "short", steps, "everywhere", sentence)
            self._look_at_targets(series, part)
            self._look_at_covariates(series, part, prediction_length)
        covariates = zip((*self.roles.past, *self.roles.future), (*self.past.T, *self.known.T), strict=True)
        for column, values in covariates:
            sentence = "every value of this covariate is {:g}, in all series: leave it out"
            self._look_for_constant("", column, values, sentence)
        spreads = pd.DataFrame(self.values).groupby(self.owner).std(ddof=0).to_numpy()  # (S, C)
        is_wide, names = self.roles.is_wide, self.roles.target if self.roles.is_wide else self.names
        for column, spread in zip(self.roles.target, spreads if is_wide else spreads.T, strict=False):
            known = np.flatnonzero(spread > 0)
            order = known[spread[known].argsort(kind="stable")]
            if len(order) and spread[order[-1]] > _APART * spread[order[0]]:
                least, most = order[0], order[-1]
                count = int((spread[known] * _APART < spread[most]).sum())
                small, name = shown(names[least]), names[most] if is_wide else column
                far = f"its values spread {spread[most] / spread[least]:.3g} times as far as those of {small}"
                sentence = f"{far}: it decides errors in original units, so compare by MASE or sMAPE"
                self.add(names[most], name, "scale", count, f"{small} is the least", sentence)

    def _look_at_targets(self, series: int, part: slice) -> None:
        is_empty = bool(np.isnan(self.values[self.rows(series)]).all())
        every = "the series is left out" if is_empty else "the reader refuses that"
        season = 1 if self.frequency is None else season_length(self.frequency)
        own = np.flatnonzero(self.on_grid[self.rows(series)]) + part.start
        steps = self.coordinates[own] - self.coordinates[own[:1]]  # on the grid of the series
        is_too_long = not len(own) or steps[-1] >= _ALWAYS + _MOST_STEPS * len(own)
        constant = "every value is {:g}: there is nothing to learn, and scores such as MASE are not defined"
        for channel, column in enumerate(self.roles.target):
            label, values = self.label(series, channel), self.values[part, channel]
            self._look_for_missing(label, column, values, part.start, every)
            if self._look_for_constant(label, column, values, constant) or is_too_long:
                continue
            full = np.full(int(steps[-1]) + 1, np.nan)
            full[steps] = self.values[own, channel]
            places = outliers(full, season)
            if len(places):
                worst = int(places[np.argmax(abs(full[places] - np.nanmedian(full)))])
                first, far = (self.time[own[np.searchsorted(steps, place)]] for place in (places[0], worst))
                what = f"more than {_FAR:g} robust standard deviations from those a season before and after"
                sentence = f"{number_of(len(places), 'value')} {what}, the farthest {full[worst]:g} at {far}"
                self.add(label, column, "outlier", len(places), str(first), sentence)

    def _look_at_covariates(self, series: int, given: slice, prediction_length: int) -> None:
        part, masked, label = self.rows(series), "they are masked", self.label(series)
        for column, values in zip(self.roles.past, self.past.T, strict=True):
            self._look_for_missing(label, column, values[given], given.start, masked)
        steps = self.coordinates[given.stop : part.stop] - self.coordinates[max(given.stop, 1) - 1]
        is_ahead = self.on_grid[given.stop : part.stop] & (steps <= prediction_length) & (given.stop > part.start)
        for column, values in zip(self.roles.future, self.known.T, strict=True):
            ahead = int(np.isnan(values[given.stop : part.stop][is_ahead]).sum())
            needed = f", but for {ahead} among the steps to forecast after the last target: `predict` refuses these"
            self._look_for_missing(label, column, values[part], part.start, masked, needed if ahead else "")

    def _look_for_missing(self, label: Any, column: str, values: Array, start: int, every: str, more: str = "") -> None:
        """Find missing values of a column; `every` ends the sentence if all are."""
        lacking = np.isnan(values)
        count, sentence = int(lacking.sum()), f"every value is missing; {every}"
        if not count:
            return
        if count < len(values):
            longest = np.diff(np.flatnonzero(np.diff(np.concatenate([[False], lacking, [False]]))))[::2].max()
            share = f"{count} of {number_of(len(values), 'value')} missing ({count / len(values):.1%})"
            sentence = f"{share}, at most {longest} in a row; they are masked"
        self.add(label, column, "missing", count, str(self.time[start + int(lacking.argmax())]), sentence + more)

    def _look_for_constant(self, label: Any, column: str, values: Array, sentence: str) -> bool:
        known = values[~np.isnan(values)]
        is_constant = len(known) > 1 and bool((known == known[0]).all())
        if is_constant:
            self.add(label, column, "constant", len(known), "everywhere", sentence.format(known[0]))
        return is_constant


def outliers(values: Array, season: int) -> NDArray[np.int64]:
    """Find values `(n,)` on a grid, NaN where missing, that lie far from those a season before and after.

    The scale is the larger of median and mean absolute deviation of the differences over a season. The median alone is
    blind to a rate that mostly stands still. An outlier lies far from both, to the same side; a shifted level does not.
    In the first and last season its neighbours decide. No value is an outlier if more than 1 % (and three) would be.

    Source: Iglewicz & Hoaglin, *How to Detect and Handle Outliers* (1993), for the scale.
    """
    before, after = _far(values, season), _far(values[::-1], season)[::-1]
    is_out = (before * after > 0) & (np.minimum(abs(before), abs(after)) > _FAR)
    one = np.where(np.isnan(before), after, before)
    is_edge = np.isnan(before) != np.isnan(after)
    near = _far(values, 1), _far(values[::-1], 1)[::-1]
    sides = [np.where(np.isnan(side), other, side) for side, other in (near, near[::-1])]
    is_near = (one * sides[0] > 0) & (one * sides[1] > 0) & (np.minimum(abs(sides[0]), abs(sides[1])) > _FAR)
    places = np.flatnonzero(is_out | (is_edge & (abs(one) > _FAR) & is_near))
    return places if len(places) <= max(3, _RARE * len(values)) else places[:0]


def _far(values: Array, lag: int) -> Array:
    """Return the robust standard deviations between values and the values `lag` places before, NaN if unknown."""
    far = np.full(len(values), np.nan)
    differences = values[lag:] - values[:-lag]
    known = differences[~np.isnan(differences)]
    if len(values) <= lag or len(known) < _FEWEST:
        return far
    deviation = abs(known - np.median(known))
    scale = max(_NORMAL[0] * float(np.median(deviation)), _NORMAL[1] * float(deviation.mean()))
    if scale > 0:
        far[lag:] = (differences - np.median(known)) / scale
    return far
