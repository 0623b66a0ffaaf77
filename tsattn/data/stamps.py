"""A column of a table as time: time stamps of one time zone, or whole numbers that count steps."""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from tsattn.data.dates import INTEGER_FORMATS, parse_dates
from tsattn.data.frequency import Times, is_steps
from tsattn.errors import UserError, shown

__all__ = ["in_zone_of", "integer_format", "stamps_or_steps", "time_stamps"]

logger = logging.getLogger("tsattn")


def time_stamps(
    column: pd.Series, where: Callable[[int], str], *, date_format: str | None = None, ids: pd.Series | None = None
) -> pd.DatetimeIndex:
    """Time stamps of one time zone, none missing, all within the years 1678 to 2261.

    Periods are read as their first time stamps, and whole numbers such as 20160701 as dates.

    Args:
        column: time stamps, dates, periods, text (see `parse_dates`) or whole numbers.
        where: names a row (from 0) in messages.
        date_format: how text and numbers are written; None: it is found.
        ids: the series of each row, see `parse_dates`.

    Raises:
        UserError: naming the first row that is no date.
    """
    kind = column.dtype
    if isinstance(kind, pd.PeriodDtype):
        stamps = pd.DatetimeIndex(column.dt.to_timestamp())
    elif pd.api.types.is_datetime64_any_dtype(kind):
        stamps = pd.DatetimeIndex(column)
    elif (form := date_format or integer_format(column)) is not None and _whole_numbers(column) is not None:
        stamps = parse_dates(_as_text(column), where, form)
    elif pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_timedelta64_dtype(kind):
        raise _no_date(column, 0, where)
    elif isinstance(kind, pd.StringDtype):
        stamps = parse_dates(column, where, date_format, ids)
    else:
        stamps = _parsed(column.astype(object), where, date_format, ids)
    if stamps.hasnans:
        raise _no_date(column, int(stamps.isna().argmax()), where)
    if pd.Timestamp("1678", tz=stamps.tz) <= stamps.min() and stamps.max() <= pd.Timestamp("2261-12-31", tz=stamps.tz):
        return stamps
    outside = (stamps < pd.Timestamp("1678", tz=stamps.tz)) | (stamps > pd.Timestamp("2261-12-31", tz=stamps.tz))
    if outside.any():
        raise UserError(f"{where(int(outside.argmax()))}: {stamps[outside][0]} is not within the years 1678 to 2261")
    return stamps


def stamps_or_steps(
    column: pd.Series,
    where: Callable[[int], str],
    *,
    date_format: str | None,
    ids: pd.Series | None,
    frequency: str | None,
) -> Times:
    """The same; whole numbers that are no dates, or whose known frequency is one of steps, are steps.

    Raises:
        UserError: naming the first row that is neither.
    """
    numbers = _whole_numbers(column)
    if numbers is not None and date_format is None:
        is_known = frequency is not None and is_steps(frequency)
        if is_known or (frequency is None and integer_format(column) is None):
            if not is_known:
                logger.warning("column %s holds whole numbers that are no dates: they count steps", shown(column.name))
            if len(numbers) < len(column):
                row = int(column.isna().to_numpy().argmax())
                raise UserError(f"{where(row)}: the step in column {shown(column.name)} is missing")
            return pd.Index(numbers.astype("int64"))
    return time_stamps(column, where, date_format=date_format, ids=ids)


def in_zone_of(other: Times, time: Times, source: str, others: str) -> Times:
    """The same instants in the time zone of other time stamps; steps as they are.

    Args:
        other: the time stamps whose zone is taken.
        time: those to convert.
        source: what these are of, for messages.
        others: what the other time stamps are of.

    Raises:
        UserError: if one has a zone and the other has not, or one counts steps.
    """
    if not isinstance(time, pd.DatetimeIndex) or not isinstance(other, pd.DatetimeIndex):
        if isinstance(time, pd.DatetimeIndex) == isinstance(other, pd.DatetimeIndex):
            return time
        mine, theirs = ("time stamps" if isinstance(x, pd.DatetimeIndex) else "steps" for x in (time, other))
        raise UserError(f"{source} has {mine}, {others} {theirs}; both need the same")
    if (time.tz is None) != (other.tz is None):
        mine, theirs = ("no time zone" if tz is None else f"time zone {tz}" for tz in (time.tz, other.tz))
        raise UserError(f"{source} has {mine}, {others} {theirs}; time stamps need one in both or in neither")
    if time.tz is None:
        return time
    converted = time.tz_convert(other.tz)
    if len(time) > 1 and _are_midnights(time) and not _are_midnights(converted):
        raise UserError(
            f"{source} has days that begin at midnight in {time.tz}, but {others} is in {other.tz}, where that is no "
            "midnight: give its days in that time zone"
        )
    return converted


def _are_midnights(time: pd.DatetimeIndex) -> bool:
    return bool((time == time.normalize()).all())


def _whole_numbers(column: pd.Series) -> pd.Series | None:
    """The column, if it holds whole numbers alone and missing cells."""
    if pd.api.types.is_bool_dtype(column.dtype) or not pd.api.types.is_numeric_dtype(column.dtype):
        return None
    known = column.dropna()
    if not len(known) or not (pd.api.types.is_integer_dtype(known.dtype) or (known % 1 == 0).all()):
        return None
    return known if known.abs().max() < 1 << 62 else None


def integer_format(column: pd.Series) -> str | None:
    """How whole numbers are written as dates, if they are: by their size, and months by their last digits."""
    numbers = _whole_numbers(column)
    if numbers is None:
        return None
    least, greatest = int(numbers.min()), int(numbers.max())
    form = next((form for low, high, form in INTEGER_FORMATS if low <= least and greatest <= high), None)
    if form == "%Y%m" and not numbers.astype("int64").mod(100).between(1, 12).all():
        return None
    return form


def _as_text(column: pd.Series) -> pd.Series:
    """Numbers as they are written, whole ones without a point; missing ones are missing."""
    if pd.api.types.is_float_dtype(column.dtype) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    return column.astype(str).astype(object).where(column.notna(), None)


def _parsed(
    cells: pd.Series, where: Callable[[int], str], date_format: str | None, ids: pd.Series | None
) -> pd.DatetimeIndex:
    """Dates in text or objects."""
    kind = pd.api.types.infer_dtype(cells, skipna=True)
    if kind == "string":
        return parse_dates(cells, where, date_format, ids)
    if kind in ("datetime", "datetime64", "date") or _are_dates(cells):
        return _from_objects(cells, where)
    if kind in ("mixed", "mixed-integer"):
        texts = cells.map(lambda cell: str(cell) if isinstance(cell, datetime.date) and cell == cell else cell)
        strange = (~texts.map(lambda cell: isinstance(cell, str)) & cells.notna()).to_numpy()
        if not strange.any():
            return parse_dates(texts, where, date_format, ids)
        raise _no_date(cells, int(strange.argmax()), where)
    raise _no_date(cells, 0, where)


def _are_dates(cells: pd.Series) -> bool:
    return bool(cells.map(lambda cell: isinstance(cell, datetime.date | np.datetime64) or pd.isna(cell)).all())


def _from_objects(cells: pd.Series, where: Callable[[int], str]) -> pd.DatetimeIndex:
    zones = [None if pd.isna(cell) else str(getattr(cell, "tzinfo", None) or "") for cell in cells]
    known = [zone for zone in zones if zone is not None]
    if len(set(known)) > 1:
        row = next(row for row, zone in enumerate(zones) if zone not in (None, known[0]))
        raise UserError(
            f"{where(row)}: {shown(cells.iloc[row])} in column {shown(cells.name)} has another time zone than "
            "the rows before; write all dates in UTC, or all without a zone"
        )
    try:
        return pd.DatetimeIndex(pd.to_datetime(cells, errors="coerce"))
    except (ValueError, TypeError, OverflowError) as error:
        raise _no_date(cells, 0, where) from error


def _no_date(column: pd.Series, row: int, where: Callable[[int], str]) -> UserError:
    cell: Any = column.iloc[row]
    of = " but a time of day without one" if re.fullmatch(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?", str(cell)) else ""
    return UserError(
        f"{where(row)}: {shown(cell)} in column {shown(column.name)} is not a date{of}; write dates like "
        "2016-07-01 00:00:00, or give their date_format"
    )
