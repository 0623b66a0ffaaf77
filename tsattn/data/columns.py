"""Columns of a table as arrays: time stamps, numbers, series and categories, checked cell by cell.

Every function takes `where`, which names a row (from 0) in messages, such as ``the frame, row 12``.
"""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.errors import UserError, shown

__all__ = [
    "category_codes",
    "column_name",
    "column_names",
    "in_zone_of",
    "match_ids",
    "number_columns",
    "series_numbers",
    "time_stamps",
]


def column_names(columns: Any, what: str) -> tuple[str, ...]:
    """One name or any list of names as text, for numbers can name columns too; none for None.

    Raises:
        UserError: for anything else, which is called `what`.
    """
    if columns is None:
        return ()
    if isinstance(columns, str | Integral) and not isinstance(columns, bool):
        return (str(columns),)
    names = [*columns] if isinstance(columns, Iterable) and not isinstance(columns, bytes | dict) else [None]
    if any(name is None or isinstance(name, bool) or not isinstance(name, Hashable) for name in names):
        raise UserError(f"{what} must be the name of a column or a list of names, not {shown(repr(columns))}")
    return tuple(map(str, names))


def column_name(column: Any, what: str) -> str | None:
    """One name as text, see `column_names`."""
    if not isinstance(column, str | Integral | None) or isinstance(column, bool):
        raise UserError(f"{what} must be the name of a column, not {shown(repr(column))}")
    return None if column is None else str(column)


def number_columns(
    frame: pd.DataFrame, names: tuple[str, ...], where: Callable[[int], str], role: str
) -> NDArray[np.float64]:
    """`(rows, columns)` numbers, NaN where missing, none infinite."""
    matrix = np.empty((len(frame), len(names)))
    for k, name in enumerate(names):
        matrix[:, k] = _numbers(frame[name], where, role)
    infinite = np.argwhere(np.isinf(matrix))
    if infinite.size:
        row, column = infinite[0].tolist()
        raise UserError(f"{where(row)}: the value of {shown(names[column])} is infinite; a finite number is needed")
    return matrix


def _numbers(column: pd.Series, where: Callable[[int], str], role: str) -> NDArray[np.float64]:
    """A column as floats; bools are 0 and 1 in covariates alone."""
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) and kind.kind in "iuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    cells, given = column.astype(object), column.notna().to_numpy()
    types = np.fromiter((_kind(cell) for cell in cells), dtype="U1", count=len(cells))
    is_covariate = role.endswith("covariate")
    if is_covariate and (types[given] == "b").all():
        return np.asarray(cells.where(given, np.nan), dtype=np.float64)
    # pandas would drop imaginary parts and count bools and dates as numbers
    numbers = pd.to_numeric(cells.where(given & (types == "n"), np.nan), errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(np.isnan(numbers) & given)
    if wrong.size:
        row = int(wrong[0])
        advice = "" if role == "channel" else " (name text columns as static, or list the targets)"
        raise UserError(
            f"{where(row)}: {shown(cells.iloc[row])} in column {shown(column.name)} is not a number; a {role} needs "
            f"numbers{' or bools' if is_covariate else ''}{advice}"
        )
    return numbers


def _kind(cell: object) -> str:
    """``b`` for bools, ``n`` for what may be read as a float, ``-`` for anything else."""
    if isinstance(cell, bool | np.bool_):
        return "b"
    if isinstance(cell, int):
        return "n" if abs(cell) < 1 << 1023 else "-"
    return "n" if isinstance(cell, str | Real | Decimal) else "-"


def time_stamps(column: pd.Series, where: Callable[[int], str]) -> pd.DatetimeIndex:
    """Time stamps of one time zone, none missing, all within the years 1678 to 2261."""
    kind = column.dtype
    if isinstance(kind, pd.PeriodDtype):
        raise UserError(
            f"{where(0)}: column {shown(column.name)} holds periods; turn them into time stamps with .dt.to_timestamp()"
        )
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        stamps = pd.DatetimeIndex(column)
    elif pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_timedelta64_dtype(kind):
        raise _no_date(column, 0, where)
    else:
        stamps = _parsed(column.astype(object), where)
    if (row := stamps.isna().argmax()) or stamps.isna()[0]:
        raise _no_date(column, int(row), where)
    outside = (stamps < pd.Timestamp("1678", tz=stamps.tz)) | (stamps > pd.Timestamp("2261-12-31", tz=stamps.tz))
    if outside.any():
        raise UserError(f"{where(int(outside.argmax()))}: {stamps[outside][0]} is not within the years 1678 to 2261")
    return stamps


def in_zone_of(other: pd.DatetimeIndex, time: pd.DatetimeIndex, source: str, others: str) -> pd.DatetimeIndex:
    """The same instants in the time zone of other time stamps.

    Args:
        other: the time stamps whose zone is taken.
        time: those to convert.
        source: what these are of, for messages.
        others: what the other time stamps are of.

    Raises:
        UserError: if one has a zone and the other has not.
    """
    if (time.tz is None) != (other.tz is None):
        mine, theirs = ("no time zone" if tz is None else f"time zone {tz}" for tz in (time.tz, other.tz))
        raise UserError(f"{source} has {mine}, {others} {theirs}; time stamps need one in both or in neither")
    return time if time.tz is None else time.tz_convert(other.tz)


def _parsed(cells: pd.Series, where: Callable[[int], str]) -> pd.DatetimeIndex:
    """Dates in text or objects; NaT for what is none."""
    first = str(cells.iloc[0])
    in_doubt = re.match(r"\d{1,2}[/.-]\d{1,2}[/.-]\d{4}", first)
    readings: list[dict[str, Any]] = [{}, {"dayfirst": True}] if in_doubt else [{}, {"format": "ISO8601"}]
    best, whole = pd.DatetimeIndex([pd.NaT] * len(cells)), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas, on odd dates and mixed zones, which are refused below
        for reading in readings:
            try:
                result = pd.to_datetime(cells, errors="coerce", **reading)
            except (ValueError, TypeError, OverflowError):  # mixed zones among them
                continue
            if pd.api.types.is_datetime64_any_dtype(result.dtype):
                best = max(best, pd.DatetimeIndex(result), key=lambda index: np.count_nonzero(index.notna()))
                if not result.isna().any():
                    whole.append(pd.DatetimeIndex(result))
            if whole and not in_doubt:
                return whole[0]
    if len(whole) == 2 and not whole[0].equals(whole[1]):
        raise UserError(
            f"{where(0)}: {shown(first)} in column {shown(cells.name)} can be read with the day or the month first; "
            "write dates like 2016-07-01"
        )
    if not whole:
        zones = [_zone(cell) for cell in cells]
        known = [zone for zone in zones if zone is not None]
        if len(set(known)) > 1:
            row = next(row for row, zone in enumerate(zones) if zone not in (None, known[0]))
            raise UserError(
                f"{where(row)}: {shown(cells.iloc[row])} in column {shown(cells.name)} has another time zone than "
                "the rows before; write all dates in UTC, or all without a zone"
            )
    return best


def _zone(cell: object) -> str | None:
    """The time zone that a date is written in, "" if without one; None for what is no date."""
    if isinstance(cell, datetime.datetime) and not pd.isna(cell):
        return "" if cell.tzinfo is None else str(cell.tzinfo)
    match = re.search(r"\d{4}.*?\d(Z|[+-]\d\d(?::?\d\d)?)?$", cell.strip()) if isinstance(cell, str) else None
    if match is None:
        return None
    has_time = ":" in str(cell)  # or the end of a plain date would be taken for a zone
    return (match[1] or "").replace("Z", "+00:00") if has_time else ""


def _no_date(column: pd.Series, row: int, where: Callable[[int], str]) -> UserError:
    return UserError(
        f"{where(row)}: {shown(column.iloc[row])} in column {shown(column.name)} is not a date; write dates like "
        "2016-07-01 00:00:00"
    )


def series_numbers(
    ids: pd.Series | None, rows: int, where: Callable[[int], str]
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """The number of the series of each row, `(rows,)`, and the ids in order of first appearance."""
    if ids is None:
        return np.zeros(rows, np.int64), ("series",)
    try:
        codes, uniques = pd.factorize(ids)
    except TypeError as error:
        raise UserError(f"column {shown(ids.name)} holds no ids; valid are texts and numbers") from error
    if (codes < 0).any():
        raise UserError(f"{where(int((codes < 0).argmax()))}: the id in column {shown(ids.name)} is missing")
    names = tuple(uniques.tolist())
    # ids are saved with a model, as plain data
    strange = [number for number, name in enumerate(names) if not isinstance(name, str | int | float | tuple)]
    if strange:
        row = int((codes == strange[0]).argmax())
        raise UserError(
            f"{where(row)}: {shown(names[strange[0]])} in column {shown(ids.name)} is a "
            f"{type(names[strange[0]]).__name__}, not an id; valid are texts and numbers"
        )
    return codes.astype(np.int64), names


def match_ids(ids: Sequence[Any], known: Sequence[Any]) -> dict[Any, Any]:
    """Which of the known ids each of some ids is, if it is one of them.

    Files and frames may write the same ids as text and as numbers: if no id is known as it is, but each of them is as
    text, then that counts.
    """
    places = {name: name for name in known}
    found = {name: places[name] for name in ids if name in places}
    texts = {str(name): name for name in known}
    if not found and len(texts) == len(known) and len({*map(str, ids)} & texts.keys()) == len(ids):
        found = {name: texts[str(name)] for name in ids}
    return found


def category_codes(
    frame: pd.DataFrame,
    columns: tuple[str, ...],
    series: NDArray[np.int64],
    names: tuple[Any, ...],
    where: Callable[[int], str],
    may_lack: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], tuple[tuple[str, ...], ...]]:
    """The category of each series in each static column, `(S, K)`, and the categories of each column.

    In the rows `may_lack` of the table a category may be missing, if another row of the series has it.
    """
    codes, categories = np.empty((len(names), len(columns)), np.int64), []
    for k, name in enumerate(columns):
        try:
            raw, uniques = pd.factorize(frame[name])
        except TypeError as error:
            raise UserError(f"static column {shown(name)} holds no categories; valid are texts and numbers") from error
        first_rows = np.full(len(names), len(frame))
        np.minimum.at(first_rows, series[raw >= 0], np.flatnonzero(raw >= 0))
        lacking = (raw < 0) & (~may_lack | (first_rows == len(frame))[series])
        if lacking.any():
            row = int(lacking.argmax())
            raise UserError(f"{where(row)}: the category in static column {shown(name)} is missing")
        texts = [_category(value) for value in uniques.tolist()]
        known = sorted(set(texts))
        number = {text: i for i, text in enumerate(known)}
        column = np.array([number[text] for text in texts])[raw]
        codes[:, k] = column[first_rows]
        changes = (column != codes[series, k]) & (raw >= 0)
        if changes.any():
            row = int(changes.argmax())
            raise UserError(
                f"{where(row)}: static column {shown(name)} changes within series {shown(names[series[row]])}, to "
                f"{shown(known[column[row]])}; it must be constant (or be a covariate)"
            )
        categories.append(tuple(known))
    return codes, tuple(categories)


def _category(value: object) -> str:
    """A category as text; 1.0 is the category 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
