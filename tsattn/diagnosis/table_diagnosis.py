"""Read a table as it is given, sorted, nothing filled or refused that can be looked at, and list its problems.

Shape letters: R rows, S series, C targets, P past and F future covariates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.frequency import Times, season_length
from tsattn.data.grid import (
    OFF_GRID,
    Grid,
    are_business_days,
    business_series,
    coarser_series,
    counts,
    runs_of_longer_steps,
    usual_frequency,
)
from tsattn.data.quiet import quiet
from tsattn.data.reader import TableReader
from tsattn.data.roles import Roles
from tsattn.data.table_rows import Rows, Table, read_rows
from tsattn.errors import number_of, shown, whole_number

__all__ = ["KINDS", "diagnose", "outliers"]

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

_RUN = 4  # stamps off the grid that follow each other at one step, from which on it is a frequency
_FAR = 10.0  # robust standard deviations of seasonal differences, from which on a value is an outlier
_RARE = 0.01  # the share of values, above which they are how the series is
_FEWEST = 20  # differences, below which nothing is said of their spread
_APART = 1000.0  # times the scale of another series
_NORMAL = 1.4826, 1.2533  # of a normal distribution, the standard deviation over MAD and over mean absolute deviation
_MOST_STEPS, _ALWAYS = 10, 1000  # times the rows of a series, and steps more: longer grids are of a date that is wrong

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Finding:
    """A row of what `diagnose` returns."""

    series: Any
    column: str
    kind: str
    count: int
    where: str
    sentence: str


@dataclass(frozen=True)
class _GivenRows:
    """Rows of series end to end, each time stamp of a series once."""

    roles: Roles
    names: tuple[Any, ...]  # the S ids, sorted
    time: Times  # (R,), rising within each series
    begin: NDArray[np.int64]  # (S + 1,) the first row of each series, and R
    values: Array  # (R, C), NaN where missing, as in what follows
    past: Array  # (R, P)
    known: Array  # (R, F)
    frequency: str | None  # of most stamps of the longest series, or as given; None where there are too few
    coordinates: NDArray[np.int64]  # (R,) the number of each stamp on the grid of that frequency
    on_grid: NDArray[np.bool_]  # (R,) whether a stamp is on the grid of most of its series

    def rows(self, series: int) -> slice:
        """The rows of a series."""
        return slice(int(self.begin[series]), int(self.begin[series + 1]))

    def before_future(self, series: int) -> slice:
        """The rows of a series up to its last target, if there are covariates of the future; else all of them."""
        part = self.rows(series)
        if not self.roles.future:
            return part
        known = np.flatnonzero(~np.isnan(self.values[part]).all(axis=1))
        return slice(part.start, part.start + (int(known[-1]) + 1 if len(known) else 0))

    def label(self, series: int, channel: int | None = None) -> Any:
        """What a series is called: of a wide table, by its column, or not at all."""
        if not self.roles.is_wide:
            return self.names[series]
        return "" if channel is None else self.roles.target[channel]


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
    date_format: str | None = None,
    separator: str = ",",
    decimal: str = ".",
    encoding: str = "utf-8",
    comment: str = "",
    skip_rows: int = 0,
) -> pd.DataFrame:
    """Report problems of a table before you train on it: errors, and findings that would pass silently.

    Nothing is changed, and nothing is refused but what cannot be read: a cell that is no number or date, a column that
    is not there. Limits are thresholds (see `tsattn.diagnosis.table_diagnosis.outliers`), so that a finding is a reason
    to look, and none is no proof.

    Args:
        frame: a frame or the path of a file, as `tsattn.Forecaster` takes them.
        context_length: past steps that a model will see; by default the fewest that a `Forecaster` chooses among.
        prediction_length: steps that it will forecast.
        id_column: of series ids of a long frame, or several columns that make them up; found by itself if named
            ``unique_id`` or ``item_id``.
        time_column: of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``.
        target: the columns to forecast; found if named ``y`` or ``target`` in a long frame, all others in a wide one.
        past_covariates: columns known for the past only.
        future_covariates: columns known for the future too.
        static: columns of categories, constant within a series.
        frequency: pandas frequency of the data, as text, offset or length of time, or 1, 2, ... where time counts
            steps; None infers it.
        date_format: of dates in text, such as ``%d/%m/%y``.
        separator: the character between the cells of CSV files.
        decimal: the character before the decimals in CSV files.
        encoding: of CSV files.
        comment: the character that begins the lines of CSV files that are not read, such as ``#``; empty for none.
        skip_rows: lines before the header of CSV files.

    Returns:
        a row for each series, column and kind of finding: ``series`` (of a wide frame the column that is forecast;
        empty where it is of none alone), ``column``, ``kind`` (one of `KINDS`, in whose order rows come), ``count``,
        ``where`` and ``sentence``. No rows where nothing was found.

    Raises:
        UserError: for a frame that cannot be read, naming the row.
    """
    reader = TableReader.of(locals())
    context_length = whole_number("context_length", context_length)
    prediction_length = whole_number("prediction_length", prediction_length)
    with quiet():
        table = reader.table(frame)
        findings = [*_empty_columns(table, reader)]
        table = _without(table, [finding.column for finding in findings])
        rows, given, repeated = _given_rows(table)
        findings += [*repeated, *_time_findings(rows, reader.max_filled)]
        findings += _value_findings(rows, context_length, prediction_length)
        findings += _rare_categories(table, given)
    order = [*KINDS]
    found = sorted(findings, key=lambda finding: order.index(finding.kind))
    return pd.DataFrame(found, columns=[field.name for field in fields(Finding)])


def _empty_columns(table: Table, reader: TableReader) -> Iterator[Finding]:
    """Targets and covariates of which every value is missing."""
    roles, frame = table.roles, table.frame
    columns = (*roles.target, *roles.past, *roles.future)
    empty = [name for name in columns if len(frame) and bool(frame[name].isna().all())]
    has_targets = any(name not in empty for name in roles.target)
    for column in empty:
        refused = "every value is missing; the reader refuses that"
        if column not in roles.target:
            sentence = f"{refused}: leave the covariate out"
        elif roles.is_wide and reader.target is None and has_targets:
            sentence = "every value is missing: the column is left out"
        else:
            sentence = f"{refused}: {'leave it out of the targets' if has_targets else 'a target needs some'}"
        yield Finding("", column, "missing", len(frame), "everywhere", sentence)


def _without(table: Table, columns: list[str]) -> Table:
    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in columns)

    roles = table.roles
    return replace(
        table, roles=replace(roles, target=kept(roles.target), past=kept(roles.past), future=kept(roles.future))
    )


def _given_rows(table: Table) -> tuple[_GivenRows, Rows, list[Finding]]:
    """The rows of a table sorted, each time stamp once; in the order given; and what is repeated."""
    given = read_rows(table)
    stamps = counts(given.time)
    order = np.lexsort((stamps, given.series))
    again = (np.diff(given.series[order]) == 0) & (np.diff(stamps[order]) == 0)
    once = order[np.concatenate([[True], ~again])]
    time = given.time[once]
    begin = np.searchsorted(given.series[once], np.arange(len(given.names) + 1))
    frequency, coordinates, on_grid = _on_grid(time, begin, table.frequency)
    parts = given.values[once], given.past[once], given.known[once]
    rows = _GivenRows(table.roles, given.names, time, begin, *parts, frequency, coordinates, on_grid)
    return rows, given, [*_repeated(rows, given, order, np.flatnonzero(again) + 1)]


def _repeated(rows: _GivenRows, given: Rows, order: NDArray[np.int64], later: NDArray[np.int64]) -> Iterator[Finding]:
    """Of each series with repeated stamps, given the places in the order of rows like those before them."""
    cells = np.concatenate([given.values, given.past, given.known], axis=1)
    owners = given.series[order[later]]
    for series in np.unique(owners).tolist():
        places = later[owners == series]
        one, other = cells[order[places - 1]], cells[order[places]]
        differs = bool(((one != other) & ~(np.isnan(one) & np.isnan(other))).any())
        sentence = (
            f"{number_of(len(places), 'row')} of a time stamp that is there already, with "
            f"{'other' if differs else 'the same'} values; the reader refuses that: remove them, sum what they hold, "
            "or name id_column if they are of several series"
        )
        first, column = str(given.time[order[places[0]]]), shown(rows.roles.time)
        yield Finding(rows.label(series), column, "repeated", len(places), first, sentence)


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
    usual = np.full(len(lengths), OFF_GRID, np.int64)
    for series, (first, end) in enumerate(pairwise(begin.tolist())):
        own = phases[first:end]
        if (own == own[0]).all():
            usual[series] = own[0]
        elif (own != OFF_GRID).any():
            found, how_often = np.unique(own[own != OFF_GRID], return_counts=True)
            usual[series] = found[how_often.argmax()]
    on_grid = (phases == np.repeat(usual, lengths)) & (phases != OFF_GRID)
    return frequency, coordinates, on_grid


def _rare_categories(table: Table, given: Rows) -> Iterator[Finding]:
    """Static categories that a single series has; of one or two series nothing is said."""
    for column in table.roles.static if len(given.names) > 2 else ():
        pairs = pd.DataFrame({"series": given.series, "category": table.frame[column].to_numpy()}).dropna()
        series_of = pairs.drop_duplicates().groupby("category", sort=True)["series"].nunique()
        once = series_of.index[series_of == 1]
        if len(once):
            listed = ", ".join(shown(name) for name in once[:5]) + (", ..." if len(once) > 5 else "")
            sentence = (
                f"{number_of(len(once), 'category')} of {len(series_of)} that a single series has: nothing can be "
                "learnt of them beside that series"
            )
            yield Finding("", column, "category", len(once), listed, sentence)


def _time_findings(rows: _GivenRows, max_filled: float) -> Iterator[Finding]:
    """Find missing time stamps, those off the grid, and series or parts of series of another frequency."""
    column = shown(rows.roles.time)
    if rows.frequency is None:
        return
    begin, lengths = rows.begin[:-1], np.diff(rows.begin)
    coarse = coarser_series(rows.coordinates, begin)
    if rows.frequency == "D":
        coarse |= business_series(rows.time, begin)
    for series in range(len(lengths)):
        label, part = rows.label(series), rows.rows(series)
        time, off = rows.time[part], ~rows.on_grid[part]
        if coarse[series]:
            own = usual_frequency(time)
            sentence = f"its frequency is {own}, others' {rows.frequency}; the reader refuses that: bring all to one"
            yield Finding(label, column, "frequency", lengths[series], str(time[0]), sentence)
            continue
        run = _regular_run(time, off)
        if run is not None:
            first, last = run
            apart = time[first + 1] - time[first]  # type: ignore[operator]
            sentence = f"stamps come {apart} apart there, else at frequency {rows.frequency}; the reader refuses that"
            yield Finding(label, column, "frequency", int(off.sum()), f"{time[first]} to {time[last]}", sentence)
        elif off.any():
            sentence = (
                f"{number_of(int(off.sum()), 'time stamp')} not on the grid of frequency {rows.frequency}; the reader "
                "refuses that: round them, or give the right frequency"
            )
            yield Finding(label, column, "irregular", int(off.sum()), str(time[int(off.argmax())]), sentence)
        yield from _gaps(rows, label, column, time[~off], rows.coordinates[part][~off], max_filled)


def _regular_run(time: Times, off: NDArray[np.bool_]) -> tuple[int, int] | None:
    """The first and last of the first stamps off the grid, or between such, that follow each other at one step."""
    steps = np.diff(counts(time))
    ends = (np.flatnonzero(np.diff(steps)) + 1).tolist() if off.any() else []
    runs = zip([0, *ends], [*ends, len(steps)], strict=True)
    return next((run for run in runs if off[run[0] : run[1] + 1].sum() >= _RUN), None)


def _gaps(
    rows: _GivenRows, label: Any, column: str, time: Times, places: NDArray[np.int64], max_filled: float
) -> Iterator[Finding]:
    """Missing stamps between those of a series that are on the grid, and parts at a longer step."""
    if len(places) < 2:
        return
    missing = np.diff(places) - 1  # before each row but the first
    for first, last in runs_of_longer_steps(places, np.array([0])).tolist():
        sentence = (
            f"stamps come {time[first] - time[first - 1]} apart there, else at frequency {rows.frequency}; give that "
            "as the frequency to have what is between filled as missing, or bring all to one"
        )
        where = f"{time[first - 1]} to {time[last]}"
        yield Finding(label, column, "frequency", last - first + 2, where, sentence)
        missing[first - 1 : last] = 0
    if not missing.any():
        return
    total, gaps = int(missing.sum()), np.flatnonzero(missing)
    share, what = total / (total + len(places)), "they are filled as missing"
    if share > max_filled:
        what = (
            f"that is {share:.1%} of its time stamps, and the reader refuses more than {max_filled:.0%}: check its "
            "dates and frequency, or give a larger max_filled"
        )
    sentence = (
        f"{number_of(total, 'time stamp')} missing in {number_of(len(gaps), 'gap')}, the longest of "
        f"{number_of(int(missing.max()), 'step')}; {what}"
    )
    yield Finding(label, column, "gap", total, f"after {time[int(gaps[0])]}", sentence)


def _value_findings(rows: _GivenRows, context_length: int, prediction_length: int) -> Iterator[Finding]:
    """Find missing values, constants, outliers, series that are too short, and scales that lie far apart."""
    needed = context_length + prediction_length
    for series in range(len(rows.names)):
        part = rows.before_future(series)
        own = rows.coordinates[part][rows.on_grid[part]]
        steps = int(np.ptp(own)) + 1 if len(own) else 0
        if steps < needed:
            sentence = (
                f"{number_of(steps, 'step')}, and a window takes {needed} (context_length {context_length}, "
                f"prediction_length {prediction_length}): nothing is learnt from a whole window of it"
            )
            yield Finding(rows.label(series), shown(rows.roles.time), "short", steps, "everywhere", sentence)
        yield from _of_targets(rows, series)
        yield from _of_covariates(rows, series, prediction_length)
    for names, columns in ((rows.roles.past, rows.past), (rows.roles.future, rows.known)):
        for column, values in zip(names, columns.T, strict=True):
            if (known := _constant(values)) is not None:
                sentence = f"every value of this covariate is {known[0]:g}, in all series: it says nothing"
                yield Finding("", column, "constant", len(known), "everywhere", sentence)
    yield from _scales(rows)


def _of_targets(rows: _GivenRows, series: int) -> Iterator[Finding]:
    part = rows.before_future(series)
    is_empty = bool(np.isnan(rows.values[rows.rows(series)]).all())
    every = "the series is left out" if is_empty else "the reader refuses that"
    season = 1 if rows.frequency is None else season_length(rows.frequency)
    for channel, column in enumerate(rows.roles.target):
        label, values = rows.label(series, channel), rows.values[part, channel]
        yield from _missing(rows, label, column, values, part.start, every)
        if (known := _constant(values)) is not None:
            sentence = (
                f"every value is {known[0]:g}: there is nothing to learn, and scores such as MASE are not defined"
            )
            yield Finding(label, column, "constant", len(known), "everywhere", sentence)
            continue
        own = np.flatnonzero(rows.on_grid[rows.rows(series)]) + part.start
        steps = rows.coordinates[own] - rows.coordinates[own[:1]]  # on the grid of the series
        if not len(own) or steps[-1] >= _ALWAYS + _MOST_STEPS * len(own):
            continue
        full = np.full(int(steps[-1]) + 1, np.nan)
        full[steps] = rows.values[own, channel]
        places = outliers(full, season)
        if len(places):
            worst = int(places[np.argmax(abs(full[places] - np.nanmedian(full)))])
            first_time, worst_time = (rows.time[own[np.searchsorted(steps, place)]] for place in (places[0], worst))
            sentence = (
                f"{number_of(len(places), 'value')} more than {_FAR:g} robust standard deviations from those a season "
                f"before and after, the farthest {full[worst]:g} at {worst_time}"
            )
            yield Finding(label, column, "outlier", len(places), str(first_time), sentence)


def _of_covariates(rows: _GivenRows, series: int, prediction_length: int) -> Iterator[Finding]:
    """Missing values of covariates, and of those that `predict` needs after the last target."""
    given, part, masked = rows.before_future(series), rows.rows(series), "they are masked"
    label = "" if rows.roles.is_wide else rows.label(series)
    for column, values in zip(rows.roles.past, rows.past.T, strict=True):
        yield from _missing(rows, label, column, values[given], given.start, masked)
    later = slice(given.stop, part.stop)
    for column, values in zip(rows.roles.future, rows.known.T, strict=True):
        ahead = 0
        if given.stop > part.start:
            steps = rows.coordinates[later] - rows.coordinates[given.stop - 1]
            ahead = int(np.isnan(values[later][rows.on_grid[later] & (steps <= prediction_length)]).sum())
        for finding in _missing(rows, label, column, values[part], part.start, masked):
            needed = (
                f", but for {ahead} among the steps to forecast after the last target: `predict` refuses these, give "
                "one for each step"
            )
            yield replace(finding, sentence=finding.sentence + needed * bool(ahead))


def _missing(rows: _GivenRows, label: Any, column: str, values: Array, start: int, every: str) -> Iterator[Finding]:
    """Missing values of a column; `every` says what comes of it where all are."""
    lacking = np.isnan(values)
    count = int(lacking.sum())
    if count:
        edges = np.flatnonzero(np.diff(np.concatenate([[False], lacking, [False]])))
        sentence = f"every value is missing; {every}"
        if count < len(values):
            sentence = (
                f"{count} of {number_of(len(values), 'value')} missing ({count / len(values):.1%}), at most "
                f"{int(np.diff(edges)[::2].max())} in a row; they are masked"
            )
        yield Finding(label, column, "missing", count, str(rows.time[start + int(lacking.argmax())]), sentence)


def _constant(values: Array) -> Array | None:
    """The known values, if they are several and all one."""
    known = values[~np.isnan(values)]
    return known if len(known) > 1 and (known == known[0]).all() else None


def _scales(rows: _GivenRows) -> Iterator[Finding]:
    """The spread of each series (or channel) compared with that of the widest."""
    is_wide, names = rows.roles.is_wide, rows.roles.target if rows.roles.is_wide else rows.names
    for channel, column in enumerate(rows.roles.target[:1] if is_wide else rows.roles.target):
        columns = rows.values.T if is_wide else [rows.values[rows.rows(one), channel] for one in range(len(names))]
        spreads = np.array([np.nanstd(values) if (~np.isnan(values)).any() else 0.0 for values in columns])
        known = np.flatnonzero(spreads > 0)
        if len(known) < 2:
            continue
        least, most = known[spreads[known].argmin()], known[spreads[known].argmax()]
        if spreads[most] > _APART * spreads[least]:
            count = int((spreads[known] * _APART < spreads[most]).sum())
            small, name = shown(names[least]), names[most] if is_wide else column
            sentence = (
                f"its values spread {spreads[most] / spreads[least]:.3g} times as far as those of {small}: keep "
                "scaling series, and compare by scaled scores, MASE or sMAPE, as the large ones decide errors in "
                "original units"
            )
            yield Finding(names[most], name, "scale", count, f"{small} is the least", sentence)


def outliers(values: Array, season: int) -> NDArray[np.int64]:
    """Find the places of values `(n,)` on a grid, NaN where missing, that lie far from those a season before and after.

    Differences over a season are held against their median absolute deviation (MAD) or their mean absolute deviation,
    whichever is the larger spread: the median alone is blind to how a rate moves that mostly stands still. A value is
    an outlier if that before it and that after it say so, and to the same side: a level that has shifted, which lies
    far from one of them alone, is none. In the first and the last season, where there is but one, its neighbours must
    say so, too. Where more than 1 % of the values would be outliers (and more than three), that is how the series is,
    and none is.

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
    """How many robust standard deviations values lie from those `lag` places before, NaN where that is not known."""
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
