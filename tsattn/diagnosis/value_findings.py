"""What stands out in values: missing, constant or far out ones, series that are short or of another size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.table_rows import Rows
from tsattn.diagnosis.finding import Finding
from tsattn.diagnosis.given_rows import GivenRows
from tsattn.errors import number_of, shown

__all__ = ["category_findings", "outliers", "value_findings"]

_FAR = 10.0  # robust standard deviations of seasonal differences, from which on a value is an outlier
_RARE = 0.01  # the share of values, above which they are how the series is
_FEWEST = 20  # differences, below which nothing is said of their spread
_APART = 1000.0  # times the scale of another series
_NORMAL = 1.4826, 1.2533  # of a normal distribution, the standard deviation over MAD and over mean absolute deviation

_MASKED = "they are masked"

Array = NDArray[np.float64]


def value_findings(rows: GivenRows, context_length: int, prediction_length: int) -> Iterator[Finding]:
    """Missing values, constants, outliers, series that are too short, and scales that lie far apart."""
    yield from _short(rows, context_length, prediction_length)
    for series in range(len(rows.names)):
        yield from _of_series(rows, series, prediction_length)
    yield from _constant_covariates(rows)
    yield from _scales(rows)


def outliers(values: Array, season: int) -> NDArray[np.int64]:
    """The places of values `(n,)` on a grid, NaN where missing, that lie far from those a season before and after.

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
    if len(values) <= lag:
        return far
    differences = values[lag:] - values[:-lag]
    known = differences[~np.isnan(differences)]
    if len(known) < _FEWEST:
        return far
    deviation = abs(known - np.median(known))
    scale = max(_NORMAL[0] * float(np.median(deviation)), _NORMAL[1] * float(deviation.mean()))
    if scale > 0:
        far[lag:] = (differences - np.median(known)) / scale
    return far


def _of_series(rows: GivenRows, series: int, prediction_length: int) -> Iterator[Finding]:
    part = rows.rows(series)
    end = part.start + (rows.last_target(series) if rows.roles.future else part.stop - part.start)
    given = slice(part.start, max(end, part.start))
    is_empty = bool(np.isnan(rows.values[part]).all())
    for channel, column in enumerate(rows.roles.target):
        label = rows.label(series, channel)
        values = rows.values[given, channel]
        every = "the series is left out" if is_empty else "the reader refuses that"
        yield from _missing(rows, label, column, values, given.start, every)
        known = values[~np.isnan(values)]
        if len(known) > 1 and (known == known[0]).all():
            sentence = (
                f"every value is {known[0]:g}: there is nothing to learn, and scores such as MASE are not defined"
            )
            yield Finding(label, column, "constant", len(known), "everywhere", sentence)
            continue
        spread = rows.spread(series, rows.values[:, [channel]])
        if spread is None:
            continue
        time, full = spread
        places = outliers(full[:, 0], rows.season)
        if len(places):
            worst = int(places[np.argmax(abs(full[places, 0] - np.nanmedian(full)))])
            sentence = (
                f"{number_of(len(places), 'value')} more than {_FAR:g} robust standard deviations from those a season "
                f"before and after, the farthest {full[worst, 0]:g} at {time[worst]}"
            )
            yield Finding(label, column, "outlier", len(places), str(time[places[0]]), sentence)
    for names, columns, rows_of in ((rows.roles.past, rows.past, given), (rows.roles.future, rows.known, part)):
        for number, column in enumerate(names):
            label = rows.label(series) if not rows.roles.is_wide else ""
            ahead = 0
            if columns is rows.known and end > part.start:
                steps = rows.coordinates[end : part.stop] - rows.coordinates[end - 1]
                needed = rows.on_grid[end : part.stop] & (steps <= prediction_length)
                ahead = int(np.isnan(columns[end : part.stop, number][needed]).sum())
            yield from _missing(rows, label, column, columns[rows_of, number], rows_of.start, _MASKED, ahead)


def _missing(
    rows: GivenRows, label: Any, column: str, values: Array, start: int, every: str, ahead: int = 0
) -> Iterator[Finding]:
    """Missing values of a column, of which there may be all, and those that `predict` needs after the last target."""
    lacking = np.isnan(values)
    count = int(lacking.sum())
    if not count:
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], lacking, [False]])))
    longest = int(np.diff(edges)[::2].max())
    where = str(rows.time[start + int(lacking.argmax())])
    if count == len(values):
        sentence = f"every value is missing; {every}"
    else:
        sentence = (
            f"{count} of {number_of(len(values), 'value')} missing ({count / len(values):.1%}), at most {longest} in a "
            f"row; {_MASKED}"
        )
    if ahead:
        sentence += (
            f", but for {ahead} among the steps to forecast after the last target: `predict` refuses these, give one "
            "for each step"
        )
    yield Finding(label, column, "missing", count, where, sentence)


def _short(rows: GivenRows, context_length: int, prediction_length: int) -> Iterator[Finding]:
    needed = context_length + prediction_length
    for series in range(len(rows.names)):
        part = rows.rows(series)
        last = part.start + (rows.last_target(series) if rows.roles.future else part.stop - part.start)
        own = np.flatnonzero(rows.on_grid[part.start : last])
        steps = int(np.ptp(rows.coordinates[part.start : last][own])) + 1 if len(own) else 0
        if steps < needed:
            sentence = (
                f"{number_of(steps, 'step')}, and a window takes {needed} (context_length {context_length}, "
                f"prediction_length {prediction_length}): nothing is learnt from a whole window of it"
            )
            yield Finding(rows.label(series), shown(rows.roles.time), "short", steps, "everywhere", sentence)


def _constant_covariates(rows: GivenRows) -> Iterator[Finding]:
    for names, columns in ((rows.roles.past, rows.past), (rows.roles.future, rows.known)):
        for number, column in enumerate(names):
            known = columns[:, number][~np.isnan(columns[:, number])]
            if len(known) > 1 and (known == known[0]).all():
                sentence = f"every value of this covariate is {known[0]:g}, in all series: it says nothing"
                yield Finding("", column, "constant", len(known), "everywhere", sentence)


def _scales(rows: GivenRows) -> Iterator[Finding]:
    """The spread of each series (or channel) beside that of the widest."""
    wide = rows.roles.is_wide
    for channel, column in enumerate(rows.roles.target[:1] if wide else rows.roles.target):
        columns = rows.values.T if wide else [rows.values[rows.rows(one), channel] for one in range(len(rows.names))]
        labels = [rows.label(0, one) for one in range(len(columns))] if wide else [*rows.names]
        spreads = np.array([np.nanstd(values) if (~np.isnan(values)).any() else 0.0 for values in columns])
        known = np.flatnonzero(spreads > 0)
        if len(known) < 2:
            continue
        least, most = known[spreads[known].argmin()], known[spreads[known].argmax()]
        ratio = spreads[most] / spreads[least]
        if ratio > _APART:
            count = int((spreads[known] * _APART < spreads[most]).sum())
            sentence = (
                f"its values spread {ratio:.3g} times as far as those of {shown(labels[least])}: keep scaling series, "
                "and compare by scaled scores, MASE or sMAPE, as the large ones decide errors in original units"
            )
            name = labels[most] if wide else column
            yield Finding(labels[most], name, "scale", count, f"{shown(labels[least])} is the least", sentence)


def category_findings(frame: pd.DataFrame, rows: GivenRows, given: Rows) -> Iterator[Finding]:
    """Static categories that a single series has; of one or two series nothing is said."""
    if len(rows.names) < 3:
        return
    for column in rows.roles.static:
        pairs = pd.DataFrame({"series": given.series, "category": frame[column].to_numpy()}).dropna()
        series_of = pairs.drop_duplicates().groupby("category", sort=True)["series"].nunique()
        once = series_of.index[series_of == 1]
        if len(once):
            listed = ", ".join(shown(name) for name in once[:5]) + (", ..." if len(once) > 5 else "")
            sentence = (
                f"{number_of(len(once), 'category')} of {len(series_of)} that a single series has: nothing can be "
                "learnt of them beside that series"
            )
            yield Finding("", column, "category", len(once), listed, sentence)
