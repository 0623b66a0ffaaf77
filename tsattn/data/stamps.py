"""Convert a column of a table to time stamps of one time zone, or to steps; and time to numbers and back.

Text is ISO 8601, in one format of a short list that fits every cell, or in the given `date_format`.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
import warnings
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from tsattn.data.frequency import Times, is_steps
from tsattn.errors import UserError, shown
from tsattn.task import UNKNOWN_ZONE, Task

logger = logging.getLogger("tsattn")

Where = Callable[[int], str]

_GIVE_IT = '`--data.date_format` (Python: `data={"date_format": ...}`)'
_ISO, _STEPS = "ISO8601", "steps"
_ISO_START = re.compile(r"\d{4}(?:$|[-/.]\d)|\d{8}(?!\d)")
_DATE_ALONE = 10  # most characters of a date without a time of day
_DATES = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%m/%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%b %Y", "%d %B %Y", "%B %d, %Y", "%B %Y"),
)
# whole numbers that are dates: the smallest, the largest, their format
_NUMBERS = (
    (1900_01, 2100_12, "%Y%m"),
    (1900_01_01, 2100_12_31, "%Y%m%d"),
    (1900_01_01_00_00, 2100_12_31_23_59, "%Y%m%d%H%M"),
    (1900_01_01_00_00_00, 2100_12_31_23_59_59, "%Y%m%d%H%M%S"),
)
_LENGTHS = {"%Y%m%d%H%M": 12, "%Y%m%d%H%M%S": 14}  # number of digits, as pandas would guess
_FORMATS = (*(date + time for date in _DATES for time in ("", " %H:%M", " %H:%M:%S")), *_LENGTHS)
_PERIOD = 1 << 16  # rows in which to look for a repetition of the first date


def time_stamps(column: pd.Series, where: Where, *, date_format: str | None = None) -> pd.DatetimeIndex:
    """Read time stamps, dates, periods, text or whole numbers such as 20160701, all in one zone and none missing."""
    return pd.DatetimeIndex(read_times(column, where, time_form([(column, where)], date_format, "D")))


def time_form(columns: Iterable[tuple[pd.Series, Where]], date_format: str | None, frequency: str | None) -> str | None:
    """Find the format of time in all parts of a column, unless `date_format` is given; read only what is needed."""
    if date_format is not None:
        return date_format
    parts = iter(columns)
    first = next(parts)
    if pd.api.types.is_numeric_dtype(first[0].dtype):
        counts = frequency is not None and is_steps(frequency)
        return _STEPS if counts else _number_form(chain([first], parts), frequency)
    if not _is_text(first[0]):
        return None
    texts = first[0].iloc[:1].dropna().tolist() or first[0].dropna().iloc[:1].tolist()
    if not texts or _ISO_START.match(str(texts[0]).strip()):
        return _ISO
    return _text_form((part, where) for part, where in chain([first], parts) if _is_text(part))


def _is_text(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.StringDtype) or pd.api.types.infer_dtype(column, skipna=True) == "string"


def _text_form(parts: Iterable[tuple[pd.Series, Where]]) -> str:
    fitting, doubts = list[str](), dict[str, UserError]()
    for part, where in parts:
        codes, texts = _unique_texts(part, where)
        fitting = fitting or [form for form in _FORMATS if not _parsed(texts[:1], form).hasnans]
        readings = {form: _parsed(texts, form) for form in fitting}
        kept = [form for form, stamps in readings.items() if not stamps.hasnans]
        if not kept:
            best = min(readings, key=lambda name: np.count_nonzero(readings[name].isna()), default=None)
            row = 0 if best is None else int(readings[best].isna()[codes].argmax())
            raise _no_date(part, row, where, best if row else None)
        for other in kept[1:]:
            differing = np.flatnonzero(np.asarray(readings[kept[0]] != readings[other]))
            if differing.size and other not in doubts:
                row = int((codes == differing[0]).argmax())
                ways = (f"{form} ({readings[form][differing[0]]:%Y-%m-%d})" for form in (kept[0], other))
                says = f"can be read as {' or as '.join(ways)}, as all other rows can"
                doubts[other] = _wrong(part, row, where, f"{says}; give the right {_GIVE_IT}")
        fitting = kept
    for other in fitting[1:]:
        if other in doubts:
            raise doubts[other]
    return fitting[0]


def _number_form(parts: Iterable[tuple[pd.Series, Where]], frequency: str | None) -> str | None:
    least, greatest, are_months, name = 1 << 62, -(1 << 62), True, ""
    for column, _ in parts:
        numbers = _whole_numbers(column)
        if numbers is None:
            return None
        least, greatest = min(least, int(numbers.min())), max(greatest, int(numbers.max()))
        are_months = are_months and bool(numbers.astype("int64").mod(100).between(1, 12).all())
        name = shown(column.name)
    form = next((form for low, high, form in _NUMBERS if low <= least and greatest <= high), None)
    if form is not None and (form != "%Y%m" or are_months):
        return form
    if frequency is not None:
        return None
    logger.warning("column %s has whole numbers that are not dates; they are read as steps", name)
    return _STEPS


def _whole_numbers(column: pd.Series) -> pd.Series | None:
    if pd.api.types.is_bool_dtype(column.dtype) or not pd.api.types.is_numeric_dtype(column.dtype):
        return None
    known = column.dropna()
    are_whole = len(known) and (pd.api.types.is_integer_dtype(known.dtype) or (known % 1 == 0).all())
    return known if are_whole and known.abs().max() < 1 << 62 else None


def read_times(column: pd.Series, where: Where, form: str | None, zone: Any = None) -> Times:
    """Read part of a column of time stamps of one zone (or with offsets of `zone`), or of steps; none missing."""
    kind, name = column.dtype, shown(column.name)
    stamps: Any
    if isinstance(kind, pd.PeriodDtype):
        stamps = pd.DatetimeIndex(column.dt.to_timestamp())
    elif pd.api.types.is_datetime64_any_dtype(kind):
        stamps = pd.DatetimeIndex(column)
    elif (numbers := _whole_numbers(column)) is not None and form is not None:
        if form == _STEPS:
            if len(numbers) < len(column):
                raise UserError(f"{where(int(column.isna().argmax()))}: the step in column {name} is missing")
            return pd.Index(numbers.astype("int64"))
        texts = column.astype("Int64") if pd.api.types.is_float_dtype(kind) else column
        stamps = _from_text(texts.astype(str).astype(object).where(column.notna(), None), where, form, zone)
    elif pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_timedelta64_dtype(kind):
        raise _no_date(column, 0, where)
    elif isinstance(kind, pd.StringDtype):
        stamps = _from_text(column, where, form, zone)
    else:
        stamps = _from_objects(column.astype(object), where, form, zone)
    if stamps.hasnans:
        raise _no_date(column, int(stamps.isna().argmax()), where)
    earliest, latest = (pd.Timestamp(day, tz=stamps.tz) for day in ("1678", "2261-12-31"))
    if stamps.min() < earliest or stamps.max() > latest:
        row = int(((stamps < earliest) | (stamps > latest)).argmax())
        raise UserError(f"{where(row)}: {stamps[row]} is not within the years 1678 to 2261")
    if len(stamps) < len(column):  # the texts were periodic
        return times_of(np.resize(stamps.asi8, len(column)), stamps.unit, stamps.tz)
    return pd.DatetimeIndex(stamps)


def _from_objects(cells: pd.Series, where: Where, form: str | None, zone: Any) -> pd.DatetimeIndex:
    known = cells.notna().to_numpy()
    is_text = np.array([isinstance(cell, str) for cell in cells], dtype=bool)
    strange = [not isinstance(cell, str | datetime.date | np.datetime64) for cell in cells]
    if (wrong := known & np.array(strange, dtype=bool)).any():
        raise _no_date(cells, int(wrong.argmax()), where)
    if is_text.any():
        return _from_text(cells.astype(str).astype(object).where(known, None), where, form, zone)
    zones = np.array([str(getattr(cell, "tzinfo", None) or "") for cell in cells], dtype=object)
    if known.any() and (others := known & (zones != zones[known][0])).any():
        raise _other_zone(cells, int(others.argmax()), where, "in UTC, or all without a zone")
    try:
        return pd.DatetimeIndex(pd.to_datetime(cells, errors="coerce"))
    except (ValueError, TypeError, OverflowError) as error:
        raise _no_date(cells, 0, where) from error


def _from_text(cells: pd.Series, where: Where, form: str | None, zone: Any) -> pd.DatetimeIndex:
    form = form or time_form([(cells, where)], None, None) or _ISO
    codes, texts = _unique_texts(cells, where)
    stamps = _parsed(texts, form)
    if stamps.hasnans:
        raise _no_date(cells, int(stamps.isna()[codes].argmax()), where, None if form == _ISO else form)
    if stamps.tz is None:
        return pd.DatetimeIndex(stamps.take(codes))
    offsets = _offsets(texts)
    if len({*offsets}) > 1:
        other = int((offsets != offsets[0])[codes].argmax())
        if "" in offsets:
            raise _other_zone(cells, other, where, "in UTC, or all without a zone")
        if zone is not None:
            return pd.DatetimeIndex(stamps.tz_convert(zone).take(codes))
        minutes = {kind: int(kind[0] + "1") * (60 * int(kind[1:3]) + int(kind[3:])) for kind in {*offsets}}
        wall = stamps.tz_localize(None) + pd.to_timedelta([minutes[kind] for kind in offsets], unit="min")
        if len((wall - wall.normalize()).unique()) == 1:  # days, unlike hours, differ in UTC
            raise _other_zone(cells, other, where, "without a zone")
        return pd.DatetimeIndex(stamps.take(codes))
    if not offsets[0]:
        raise _wrong(cells, 0, where, "ends in no offset such as +02:00; write time zones so, or leave them out")
    own = "UTC" if offsets[0] in ("+0000", "-0000") else pd.Timestamp(f"2020-01-01T00:00{offsets[0]}").tz
    return pd.DatetimeIndex(stamps.tz_convert(own).take(codes))


def _unique_texts(cells: pd.Series, where: Where) -> tuple[NDArray[np.intp], pd.Index[Any]]:
    """The unique texts, stripped, and the number of the text of each cell; only the first period if cells repeat."""
    if isinstance(cells.dtype, pd.StringDtype) and len(cells) > _PERIOD:
        texts: Any = pa.array(cells)
        period = texts.index(texts[0], 1, _PERIOD).as_py()
        if period > 0 and texts.slice(period).equals(texts.slice(0, len(texts) - period)):
            cells = cells.iloc[:period]
    codes, uniques = pd.factorize(cells)
    if (codes < 0).any():
        raise _no_date(cells, int((codes < 0).argmax()), where)
    return codes, pd.Index(pd.Series(uniques).str.strip(), dtype=object)


def _parsed(texts: pd.Index[Any], form: str) -> pd.DatetimeIndex:
    """Parse texts by a format; NaT if a text does not fit. Texts with offsets become UTC."""
    if form in _LENGTHS:
        texts = texts.where(np.asarray(texts.str.len() == _LENGTHS[form]), None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas 2 warns of zones in some cells
        try:
            read = pd.to_datetime(texts, format=form, errors="coerce")
            if pd.api.types.is_datetime64_dtype(read.dtype):
                return pd.DatetimeIndex(read)
        except ValueError:  # pandas 3 refuses zones in some cells
            pass
        return pd.DatetimeIndex(pd.to_datetime(texts, format=form, errors="coerce", utc=True))


def _offsets(texts: pd.Index[Any]) -> NDArray[Any]:
    """The offset at the end of each text, such as ``+0100``, or ``""``."""
    codes, ends = pd.factorize(texts.str[-6:])
    found = [re.search(r"(Z|[+-]\d\d(?::?\d\d)?)$", end) for end in ends]
    kinds = [match[1].replace(":", "").replace("Z", "+0000") if match else "" for match in found]
    offsets = np.array([kind + "00" if len(kind) == 3 else kind for kind in kinds], dtype=object)[codes]
    offsets[np.asarray(texts.str.len() <= _DATE_ALONE)] = ""  # the day of a date is not an offset
    return offsets


def _wrong(cells: pd.Series, row: int, where: Where, says: str) -> UserError:
    return UserError(f"{where(row)}: {shown(cells.iloc[row])} in column {shown(cells.name)} {says}")


def _no_date(cells: pd.Series, row: int, where: Where, form: str | None = None) -> UserError:
    of = "" if form is None else f" of the format {form}{' of the other rows' if row else ''}"
    says = f"is not a date{of}; write dates like 2016-07-01 00:00:00, or give {_GIVE_IT}"
    return _wrong(cells, row, where, says)


def _other_zone(cells: pd.Series, row: int, where: Where, mended: str) -> UserError:
    return _wrong(cells, row, where, f"has another time zone than the rows before; write all dates {mended}")


def in_zone_of(other: Times, time: Times, source: str, others: str) -> Times:
    """Convert the time stamps of `source` to the zone of the time stamps `other` of `others`; keep steps."""
    if not isinstance(time, pd.DatetimeIndex) or not isinstance(other, pd.DatetimeIndex):
        mine, theirs = ("time stamps" if isinstance(x, pd.DatetimeIndex) else "steps" for x in (time, other))
        if mine != theirs:
            raise UserError(f"{source} has {mine}, but {others} has {theirs}; both need the same")
        return time
    if (time.tz is None) != (other.tz is None):
        mine, theirs = ("no time zone" if tz is None else f"time zone {tz}" for tz in (time.tz, other.tz))
        raise UserError(f"{source} has {mine}, but {others} has {theirs}; give both a time zone, or neither")
    if time.tz is None:
        return time
    converted = time.tz_convert(other.tz)
    days = [bool((one == one.normalize()).all()) for one in (time, converted)]
    if len(time) > 1 and days == [True, False]:
        says = f"days that begin at midnight in {time.tz}, but {others} is in {other.tz}, where this is not midnight"
        raise UserError(f"{source} has {says}: give its days in {other.tz}")
    return converted


def time_numbers(time: Times) -> NDArray[np.int64]:
    """`(rows,)`: time stamps since 1970-01-01 UTC in their unit, or steps; a view that must not be changed."""
    return time.asi8 if isinstance(time, pd.DatetimeIndex) else time.to_numpy(np.int64)


def time_unit(time: Times) -> str | None:
    """The unit of time stamps, such as ``us``; None for steps."""
    return time.unit if isinstance(time, pd.DatetimeIndex) else None


def time_zone(time: Times) -> str | None:
    """The name of the time zone of time stamps; None without a zone, and for steps."""
    zone = time.tz if isinstance(time, pd.DatetimeIndex) else None
    return None if zone is None else str(zone)


def kept_zone(time: Times) -> str | None:
    """The zone that a task stores: ``unknown`` if the zone cannot be found by its name, as for some of dateutil."""
    zone = time_zone(time)
    if zone is None or not isinstance(time, pd.DatetimeIndex):
        return None
    with contextlib.suppress(LookupError, ValueError, TypeError):
        if time[:1].tz_convert(zone).tz_localize(None).equals(time[:1].tz_localize(None)):
            return zone
    return UNKNOWN_ZONE


def times_of(numbers: NDArray[np.int64], unit: str | None, zone: Any = None) -> Times:
    """Convert numbers `(rows,)` of `time_numbers` back to time stamps (a view), or to steps if `unit` is None."""
    if unit is None:
        return pd.Index(numbers, copy=False)
    if zone is None:
        return pd.DatetimeIndex(numbers.view(f"M8[{unit}]"), copy=False)
    return pd.DatetimeIndex(numbers, dtype=pd.DatetimeTZDtype(unit, zone), copy=False)  # type: ignore[call-overload]


def no_times_of(task: Task) -> Times | None:
    """An empty index with the time zone of a task, or of steps; None if the zone is unknown."""
    if task.time_zone == UNKNOWN_ZONE:
        return None
    return times_of(np.empty(0, np.int64), None if task.counts_steps else "ns", task.time_zone)
