"""Read a table as it is given, sorted, nothing filled or refused that can be looked at, and list its problems.

Shape letters: R rows, S series, C targets, P past and F future covariates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.frequency import Times
from tsattn.data.grid import OFF_GRID, Grid, are_business_days, counts, usual_frequency
from tsattn.data.quiet import quiet
from tsattn.data.reader import TableReader
from tsattn.data.table_rows import Rows, Table, read_rows
from tsattn.diagnosis.findings import Finding, GivenRows, time_findings, value_findings
from tsattn.errors import number_of, shown, whole_number

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
    is not there. `tsattn.diagnosis.findings.outliers` says how outliers are found; its limits are thresholds, so that
    a finding is a reason to look, and none is no proof.

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
        findings += [*repeated, *time_findings(rows, reader.max_filled)]
        findings += value_findings(rows, context_length, prediction_length)
        findings += _rare_categories(table, given)
    order = [*KINDS]
    return pd.DataFrame(sorted(findings, key=lambda finding: order.index(finding.kind)), columns=Finding._fields)


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
    kept = {
        role: tuple(name for name in getattr(table.roles, role) if name not in columns)
        for role in ("target", "past", "future")
    }
    return replace(table, roles=replace(table.roles, **kept))


def _given_rows(table: Table) -> tuple[GivenRows, Rows, list[Finding]]:
    """The rows of a table sorted, each time stamp once; in the order given; and what is repeated.

    Raises:
        UserError: for a cell that is no number, date or id, naming its row.
    """
    given = read_rows(table)
    stamps = counts(given.time)
    order = np.lexsort((stamps, given.series))
    again = (np.diff(given.series[order]) == 0) & (np.diff(stamps[order]) == 0)
    once = order[np.concatenate([[True], ~again])]
    time = given.time[once]
    begin = np.searchsorted(given.series[once], np.arange(len(given.names) + 1))
    frequency, coordinates, on_grid = _on_grid(time, begin, table.frequency)
    parts = given.values[once], given.past[once], given.known[once]
    rows = GivenRows(table.roles, given.names, time, begin, *parts, frequency, coordinates, on_grid)
    return rows, given, [*_repeated(rows, given, order, np.flatnonzero(again) + 1)]


def _repeated(rows: GivenRows, given: Rows, order: NDArray[np.int64], later: NDArray[np.int64]) -> Iterator[Finding]:
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
