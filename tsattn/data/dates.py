"""Dates in text: ISO 8601, or one format for a whole column, found strictly.

A format is a candidate if the first cell could be written in it; it must then fit every cell. Nothing is read cell by
cell: columns of millions of rows are common.
"""

from __future__ import annotations

import logging
import re
import warnings
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import differs
from tsattn.data.frequency import seconds
from tsattn.data.grid import OFF_GRID, Grid, usual_frequency
from tsattn.errors import UserError, shown

__all__ = ["INTEGER_FORMATS", "parse_dates"]

logger = logging.getLogger("tsattn")

# of time zones that have the same offsets, the one that is taken
_ZONES = (
    *("Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "America/Chicago", "America/Denver"),
    *("America/Los_Angeles", "America/Halifax", "America/Sao_Paulo", "America/Santiago", "Australia/Sydney"),
    *("Australia/Adelaide", "Pacific/Auckland", "Asia/Jerusalem", "Africa/Cairo"),
)
# whole numbers that are dates: the least, the greatest, how they are written
INTEGER_FORMATS = (
    (1900_01, 2100_12, "%Y%m"),
    (1900_01_01, 2100_12_31, "%Y%m%d"),
    (1900_01_01_00_00, 2100_12_31_23_59, "%Y%m%d%H%M"),
    (1900_01_01_00_00_00, 2100_12_31_23_59_59, "%Y%m%d%H%M%S"),
)
_ISO, _QUARTERS, _WEEKS = "ISO 8601", "2020Q1", "2020-W01"
_ADVICE = "write dates like 2016-07-01 00:00:00, or give their date_format"
_DATE_ALONE = 10  # characters in a date without a time of day, at most
_MOST = 0.9  # the share of dates that a format must fit to be what was meant
_LAST_SHORT_YEAR = 2039  # later ones, of two digits, are as likely of the last century
_PERIOD = 1 << 16  # rows in which the first date must come again
_SAMPLE = 1000  # dates that a format is tried on before it is tried on all
_LONG_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november"),
    "december",
)
_MONTHS = tuple(name[:3] for name in _LONG_MONTHS)
_TIME = re.compile(
    r"(?P<between>[T ]+)(?P<hour>\d{1,2})(?P<minute>:\d\d)?(?:(?P<second>:\d\d)(?P<part>\.\d+)?)?"
    r"(?P<half> ?[AaPp][Mm])?(?P<blank> ?)(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
)


def parse_dates(
    cells: pd.Series, where: Callable[[int], str], date_format: str | None = None, ids: pd.Series | None = None
) -> pd.DatetimeIndex:
    """The time stamps that texts stand for.

    Offsets from UTC that change are read as UTC; as a time zone that has them, where the clock but not UTC shows
    regular hours, as days do.

    Args:
        cells: texts, missing where there is none.
        where: names a row (from 0) in messages.
        date_format: how all of them are written; None: ISO 8601 or one format, which is found.
        ids: the series of each row; of two formats that fit every cell, the one that gives the longest series regular
            steps is taken.

    Raises:
        UserError: naming the first row that does not fit, or two formats that fit all rows.
    """
    codes, uniques = _factorized(cells)
    if (codes < 0).any():
        raise _no_date(cells, int((codes < 0).argmax()), where)
    texts = pd.Index(uniques, dtype=object).str.strip()
    if str(texts[0]).endswith((" UTC", " GMT")):
        texts = texts.str.replace(" (?:UTC|GMT)$", "Z", regex=True)
    if date_format is not None:
        stamps = _read(texts, date_format)
        if stamps.isna().any():
            raise _no_date(cells, _row_of(codes, stamps.isna()), where, date_format)
        return _taken(stamps, texts, cells, codes, where)
    found, fitting = [*_candidates(str(texts[0]))], dict[str, pd.DatetimeIndex]()
    if not found:
        raise _no_date(cells, 0, where)
    sample = texts[:: -(-len(texts) // _SAMPLE)]
    for form in found:
        if not _read(sample, form).isna().any():
            stamps = _read(texts, form)
            if not stamps.isna().any():
                fitting[form] = stamps
    if not fitting:
        raise _unfitting(cells, texts, codes, found, where)
    failing = [form for form in found if form not in fitting]
    form = _chosen(fitting, cells, codes, where, ids)
    if failing and not _is_regular(fitting[form]):
        # one cell that is wrong must not turn all others into other dates
        meant = [other for other in failing if np.mean(_read(sample, other).notna()) > _MOST]
        if meant:
            raise _unfitting(cells, texts, codes, meant, where)
    if "%y" in form:
        late = fitting[form].year > _LAST_SHORT_YEAR
        if late.any():
            row = _row_of(codes, late)
            raise UserError(
                f"{where(row)}: the year of {shown(cells.iloc[row])} may be of this century or of the last; "
                "write years with four digits"
            )
        logger.warning(
            "the dates in column %s are read as %s: %s is %s",
            shown(cells.name),
            form,
            texts[0],
            f"{fitting[form][0]:%Y-%m-%d}",
        )
    return _taken(fitting[form], texts, cells, codes, where)


def _factorized(cells: pd.Series) -> tuple[NDArray[np.intp], pd.Index[Any]]:
    """As pandas does it; dates that come again and again, as those of series end to end, are looked at once."""
    if isinstance(cells.dtype, pd.StringDtype) and len(cells) > _PERIOD:
        texts = cells.array
        again = np.flatnonzero(~differs(texts[1:_PERIOD], texts[0]))
        period = int(again[0]) + 1 if again.size else 0
        for end in (2 * period, len(cells)):  # which is many times the work
            if not period or differs(texts[period:end], texts[: end - period]).any():
                return pd.factorize(cells)
        codes, uniques = pd.factorize(cells.iloc[:period])
        return np.resize(codes, len(cells)), uniques
    return pd.factorize(cells)


def _candidates(text: str) -> Iterator[str]:
    """The formats that one date may be written in."""
    if re.fullmatch(r"\d{4}-?[Qq][1-4]", text):
        yield _QUARTERS
    elif re.fullmatch(r"\d{4}-W\d\d", text):
        yield _WEEKS
    elif re.match(r"\d{4}-W\d\d-\d", text):
        yield from _with_time(text, ("%G-W%V-%u",), re.compile(r"\d{4}-W\d\d-\d"))
    elif re.match(r"\d{4}(?:$|[-/.]\d)|\d{8}(?!\d)", text):
        yield _ISO
    elif re.fullmatch(r"\d{12}", text):
        yield "%Y%m%d%H%M"
    elif re.fullmatch(r"\d{14}", text):
        yield "%Y%m%d%H%M%S"
    elif match := re.match(r"\d{1,2}([-/. ])\d{1,2}\1(\d{4}|\d\d)(?!\d)", text):
        between = match[1]
        orders = (("d", "m", "Y"), ("m", "d", "Y")) if len(match[2]) == 4 else (*map(tuple, ("dmy", "mdy", "ymd")),)
        forms = tuple(between.join(f"%{part}" for part in order) for order in orders)
        yield from _with_time(text, forms, re.compile(re.escape(match[0])))
    elif match := re.match(r"\d{1,2}([-/.])\d{4}(?!\d)", text):
        yield from _with_time(text, (f"%m{match[1]}%Y",), re.compile(re.escape(match[0])))
    else:
        yield from _with_names(text)


def _with_names(text: str) -> Iterator[str]:
    """Formats with the name of a month, and perhaps of a day of the week."""
    date = re.match(r"(?:(?P<day>[A-Za-z]{3,9})[ ,]+)?(?:[\d,./ -]*)(?P<month>[A-Za-z]{3,9})(?:[,./ -]*\d+){1,2}", text)
    if date is None:
        date = re.match(r"(?P<day>(?!))?(?P<month>[A-Za-z]{3,9})(?:[,./ -]*\d+){1,2}", text)
    if date is None or date["month"].lower() not in (*_MONTHS, *_LONG_MONTHS):
        return
    form, month = date[0], date["month"]
    # of "1 Jan 2020 10:00" the hour is no part of the date
    if re.fullmatch(r".*\d{4} +\d{1,2}", form) and text[len(form) : len(form) + 1] == ":":
        form = re.sub(r" +\d{1,2}$", "", form)
    rest = form.replace(month, "\0", 1)
    if date["day"]:
        rest = rest.replace(date["day"], "%a" if len(date["day"]) == 3 else "%A", 1)
    rest = re.sub(r"\d{4}", "%Y", rest, count=1)
    numbers = re.findall(r"\d+", rest)
    if "%Y" in rest:
        rest = re.sub(r"\d{1,2}", "%d", rest, count=1)
    elif len(numbers) == 2:  # 31-Jan-20
        rest = re.sub(r"\d{1,2}(\D+)\d\d", r"%d\g<1>%y", rest, count=1)
    else:  # Jan-20
        rest = re.sub(r"\d\d", "%y", rest, count=1)
    if re.search(r"\d", rest):
        return
    names = [name for name, known in (("%b", _MONTHS), ("%B", _LONG_MONTHS)) if month.lower() in known]
    yield from _with_time(text, tuple(rest.replace("\0", name) for name in names), re.compile(re.escape(form)))


def _with_time(text: str, dates: tuple[str, ...], date: re.Pattern[str]) -> Iterator[str]:
    """Formats of dates with that of the time of day after them; none if the rest is no time."""
    match = date.match(text)
    rest = text[match.end() :] if match else text
    time = ""
    if rest:
        found = _TIME.fullmatch(rest)
        if found is None:
            return
        half = found["half"] or ""
        time = found["between"] + ("%I" if half else "%H")
        time += ":%M" if found["minute"] else ""
        time += ":%S" if found["second"] else ""
        time += ".%f" if found["part"] else ""
        time += half[:-2] + "%p" if half else ""
        time += found["blank"] + "%z" if found["zone"] else ""
    yield from (form + time for form in dates)


def _read(texts: pd.Index[Any], form: str) -> pd.DatetimeIndex:
    """The texts by a format, NaT for what does not fit it; with a zone, those of UTC."""
    if form == _QUARTERS:
        parts = pd.Series(texts).str.extract(r"^(\d{4})-?[Qq]([1-4])$")
        months = (pd.to_numeric(parts[1]) * 3 - 2).astype("Int64").astype(str)
        return pd.DatetimeIndex(pd.to_datetime(parts[0] + "-" + months, format="%Y-%m", errors="coerce"))
    if form == _WEEKS:
        return pd.DatetimeIndex(pd.to_datetime(texts + "-1", format="%G-W%V-%u", errors="coerce"))
    pandas_form = "ISO8601" if form == _ISO else form
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas 2, on zones in some cells
        try:
            read = pd.to_datetime(texts, format=pandas_form, errors="coerce", utc=_has_zone(str(texts[0]), form))
            if pd.api.types.is_datetime64_any_dtype(read.dtype):
                return pd.DatetimeIndex(read)
        except ValueError:  # pandas 3, on the same
            pass
        return pd.DatetimeIndex(pd.to_datetime(texts, format=pandas_form, errors="coerce", utc=True))


def _has_zone(text: str, form: str) -> bool:
    return "%z" in form or (form == _ISO and re.search(r"\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$", text) is not None)


def _chosen(
    fitting: dict[str, pd.DatetimeIndex],
    cells: pd.Series,
    codes: NDArray[np.intp],
    where: Callable[[int], str],
    ids: pd.Series | None,
) -> str:
    """The format that all cells are written in, of those that fit."""
    for form in [*fitting][::-1]:  # of formats that give the same dates, the first
        if any(fitting[form].equals(stamps) for other, stamps in fitting.items() if other != form):
            del fitting[form]
    if len(fitting) == 1:
        return next(iter(fitting))
    rows = slice(None) if ids is None else (ids == ids.value_counts().index[0]).to_numpy()
    regular = [form for form, stamps in fitting.items() if _is_regular(stamps.take(np.unique(codes[rows])))]
    if len(regular) == 1:
        return regular[0]
    one, other = (regular or [*fitting])[:2]
    row = int((fitting[one] != fitting[other])[codes].argmax())
    dates = (f"{form} ({fitting[form][codes[row]]:%Y-%m-%d})" for form in (one, other))
    raise UserError(
        f"{where(row)}: {shown(cells.iloc[row])} in column {shown(cells.name)} can be read as {' or as '.join(dates)}, "
        "and all other rows in both ways; give the right one as date_format"
    )


def _is_regular(stamps: pd.DatetimeIndex) -> bool:
    """Whether stamps have a frequency and no gap."""
    index = stamps.sort_values()
    if len(index) < 3 or not index.is_unique or index[0].year < 1678 or index[-1].year > 2261:
        return False
    coordinates, phases = Grid(index, usual_frequency(index)).split(index)
    is_on_one_grid = phases[0] != OFF_GRID and bool((phases == phases[0]).all())
    return is_on_one_grid and bool((np.diff(coordinates) == 1).all())


def _taken(
    stamps: pd.DatetimeIndex,
    texts: pd.Index[Any],
    cells: pd.Series,
    codes: NDArray[np.intp],
    where: Callable[[int], str],
) -> pd.DatetimeIndex:
    """The stamps of all rows, in the zone that their offsets are of."""
    if stamps.tz is not None:
        offsets = _offsets(texts)
        if (offsets == "").any():  # UTC was put in for none
            raise _other_zone(cells, _row_of(codes, offsets != offsets[0]), where)
        kinds = np.unique(offsets)
        if len(kinds) == 1:
            stamps = stamps.tz_convert(_fixed(kinds[0]))
        else:
            local = _in_local_zone(stamps, offsets)
            if local is None:
                raise _other_zone(cells, _row_of(codes, offsets != offsets[0]), where)
            stamps = local
    return pd.DatetimeIndex(stamps.take(codes))


def _offsets(texts: pd.Index[Any]) -> NDArray[Any]:
    """What each text says of its zone: ``+0100``, or nothing."""
    codes, ends = pd.factorize(texts.str[-6:])
    plain = []
    for end in ends:
        match = re.search(r"(Z|[+-]\d\d(?::?\d\d)?)$", end)
        kind = match[1].replace(":", "").replace("Z", "+0000") if match else ""
        plain.append(kind + "00" if len(kind) == 3 else kind)
    offsets = np.array(plain, dtype=object)[codes]
    offsets[np.asarray(texts.str.len() <= _DATE_ALONE)] = ""  # whose day is no offset
    return offsets


def _fixed(offset: str) -> Any:
    return "UTC" if offset in ("+0000", "-0000") else pd.Timestamp(f"2020-01-01T00:00{offset}").tz


def _in_local_zone(stamps: pd.DatetimeIndex, offsets: NDArray[Any]) -> pd.DatetimeIndex | None:
    """Stamps of several offsets: as UTC if their clock is no calendar's, else in a zone that has these offsets.

    None if there is no such zone.
    """
    order = np.argsort(stamps.asi8, kind="stable")
    time, written = stamps[order], offsets[order]
    minutes = {kind: int(kind[0] + "1") * (60 * int(kind[1:3]) + int(kind[3:])) for kind in np.unique(written)}
    shift = pd.to_timedelta(np.array([minutes[kind] for kind in written]), unit="min")
    wall = time.tz_localize(None) + shift
    if len((wall - wall.normalize()).unique()) > 1:
        return stamps
    changes = np.flatnonzero(written[1:] != written[:-1])
    some = np.unique(np.concatenate([[0, len(time) - 1], changes, changes + 1]))
    others = sorted(name for name in zoneinfo.available_timezones() - {*_ZONES} if "/" in name)
    for name in (*_ZONES, *others):
        try:
            local = time[some].tz_convert(name)
        except (ValueError, KeyError, OSError):  # a zone that pandas does not know
            continue
        if _same(local, wall[some]) and _same(time.tz_convert(name), wall):
            return stamps.tz_convert(name)
    return None


def _same(local: pd.DatetimeIndex, wall: pd.DatetimeIndex) -> bool:
    return np.array_equal(seconds(local), seconds(wall))


def _row_of(codes: NDArray[np.intp], is_wrong: Any) -> int:
    """The first row whose text is wrong."""
    return int(np.asarray(is_wrong)[codes].argmax())


def _unfitting(
    cells: pd.Series, texts: pd.Index[Any], codes: NDArray[np.intp], found: list[str], where: Callable[[int], str]
) -> UserError:
    """Why no candidate fits all cells: the first row that does not fit the one that fits the most."""
    readings = {form: _read(texts, form).isna() for form in found}
    form = min(readings, key=lambda name: np.count_nonzero(readings[name]))
    row = _row_of(codes, readings[form])
    return _no_date(cells, row, where, None if form == _ISO or row == 0 else form)


def _no_date(cells: pd.Series, row: int, where: Callable[[int], str], form: str | None = None) -> UserError:
    cell = cells.iloc[row]
    of = "" if form is None else f" of the format {form} that the others have" if row else f" of the format {form}"
    if isinstance(cell, str) and re.fullmatch(r"\s*\d{1,2}:\d\d(:\d\d(\.\d+)?)?\s*", cell):
        of = " but a time of day without one"
    return UserError(f"{where(row)}: {shown(cell)} in column {shown(cells.name)} is not a date{of}; {_ADVICE}")


def _other_zone(cells: pd.Series, row: int, where: Callable[[int], str]) -> UserError:
    return UserError(
        f"{where(row)}: {shown(cells.iloc[row])} in column {shown(cells.name)} has another time zone than the rows "
        "before; write all dates in UTC, or all without a zone"
    )
