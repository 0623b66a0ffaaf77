"""A look at a table before anything is trained on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pandas as pd

from tsattn.data.quiet import quiet
from tsattn.data.reader import TableReader
from tsattn.data.table_rows import Table
from tsattn.diagnosis.finding import Finding, as_frame
from tsattn.diagnosis.given_rows import given_rows, without_empty_columns
from tsattn.diagnosis.leakage import leakage_findings
from tsattn.diagnosis.time_findings import time_findings
from tsattn.diagnosis.value_findings import category_findings, value_findings
from tsattn.errors import whole_number

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
    "leakage": "covariates that know the future of the target",
    "copy": "past covariates that are the target itself",
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
    is not there. How outliers are found is said at `tsattn.diagnosis.value_findings.outliers`, how leakage is at
    `tsattn.diagnosis.leakage`; they are thresholds, so that a finding is a reason to look, and none is no proof.

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
        findings = [*_findings(table, reader, context_length, prediction_length)]
    order = [*KINDS]
    return as_frame(sorted(findings, key=lambda finding: order.index(finding.kind)))


def _findings(table: Table, reader: TableReader, context_length: int, prediction_length: int) -> Iterator[Finding]:
    targets = table.roles.target
    table, empty = without_empty_columns(table)
    is_left_out = table.roles.is_wide and reader.target is None and bool(table.roles.target)
    for column in empty:
        if column in targets and is_left_out:
            sentence = "every value is missing: the column is left out"
        else:
            advice = "leave it out of the targets" if table.roles.target else "a target needs some"
            advice = advice if column in targets else "leave the covariate out"
            sentence = f"every value is missing; the reader refuses that: {advice}"
        yield Finding("", column, "missing", len(table.frame), "everywhere", sentence)
    rows, given = given_rows(table)
    yield from time_findings(rows, reader.max_filled)
    yield from value_findings(rows, context_length, prediction_length)
    yield from category_findings(table.frame, rows, given)
    yield from leakage_findings(rows, prediction_length)
