"""Options for reading a table; `FrameDataModule`, `Forecaster` and `diagnose` take them as arguments."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import JOINS
from tsattn.data.frequency import normalise_frequency
from tsattn.data.panel import Panel
from tsattn.data.row_ranges import made_rows, owners
from tsattn.data.splits import in_zone, iso_date
from tsattn.errors import UserError, is_whole_number, one_of, shown, whole_number

SUFFIXES = {
    **{".csv": "csv", ".csv.gz": "csv", ".parquet": "parquet", ".pq": "parquet"},
    **{".arrow": "arrow", ".feather": "arrow"},
}
"""The kind of a file, by its suffix."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options for reading a table: roles of its columns, format of its text, and gaps.

    Attributes:
        id_column: column of series ids of a long table; by default ``unique_id`` or ``item_id``. A list of columns is
            joined: ``[store, item]`` makes a column ``store/item`` with ids such as ``A/7``.
        time_column: column of time stamps; by default ``ds``, ``timestamp``, ``date``, or an index.
        target: the column or columns to forecast. In a long table the default is ``y`` or ``target``. In a wide table
            it is ``y`` or ``target`` if the table has it, else every column without another role.
        past_covariates: columns known for the past only. They hold numbers, bools, or categories: pandas Categoricals,
            or text in which no cell is a number.
        future_covariates: columns known for the future, too, of the same kinds.
        static: columns of categories that are constant within a series.
        frequency: pandas frequency of the stamps (text, offset or timedelta), or a whole number for steps. None infers
            it, even with gaps.
        max_filled: the largest share of the rows of a series that may be filled.
        weight_column: column of weights: how much the targets of a row count in a training; None without weights.
        separator: the character between the cells of a CSV file; ``\\t``, written out, also means a tab.
        decimal: the decimal mark of numbers in a CSV file.
        encoding: encoding of a CSV file, by Python's name.
        date_format: format of dates, such as ``%d/%m/%y``, also in a frame. None: ISO 8601, or the format of a short
            list that fits every cell.
        format: ``csv`` or ``parquet``, for files without a telling suffix; None: by the suffix.
        comment: the character that begins comment lines of a CSV file; empty for none.
        skip_rows: number of lines before the header of a CSV file.
    """

    id_column: str | None = None
    time_column: str | None = None
    target: str | Sequence[str] | None = None
    past_covariates: Sequence[str] = ()
    future_covariates: Sequence[str] = ()
    static: Sequence[str] = ()
    frequency: str | None = None
    max_filled: float = 0.5
    weight_column: str | None = None
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    date_format: str | None = None
    format: str | None = None
    comment: str = ""
    skip_rows: int = 0

    def __post_init__(self) -> None:
        ids = _names(self.id_column, "id_column")
        if self.id_column is not None and not ids:
            raise UserError(f"id_column must name a column, not {shown(repr(self.id_column))}")
        if len(ids) > 1 and any(JOINS in name for name in ids):
            raise UserError(f"id_column must name columns without {JOINS!r}, not {shown(repr(list(ids)))}")
        changed: dict[str, Any] = {"id_column": JOINS.join(ids) or None}
        for name in ("time_column", "weight_column"):
            changed[name] = next(iter(_names(getattr(self, name), name, one=True)), None)
        for name in ("target", "past_covariates", "future_covariates", "static"):
            given = getattr(self, name)
            changed[name] = None if given is None and name == "target" else _names(given, name)
        changed["frequency"] = None if self.frequency is None else normalise_frequency(self.frequency)
        share = self.max_filled
        if not isinstance(share, Real) or isinstance(share, bool) or not 0 <= share <= 1:
            need = "max_filled must be from 0 to 1, a share of the rows of a series"
            raise UserError(f"{need}, not {shown(repr(share))}")
        changed["separator"] = "\t" if self.separator == "\\t" else self.separator
        changed["skip_rows"] = whole_number("skip_rows", self.skip_rows, least=0)
        vars(self).update(changed)
        self._check_text()

    def _check_text(self) -> None:
        for name in ("separator", "decimal", *(["comment"] if self.comment else [])):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0' or value.isalnum():
                raise UserError(f"{name} must be one character, such as ',' or '.' or ';', not {shown(repr(value))}")
            if name != "separator" and value == self.separator:
                raise UserError(f"separator and {name} are both {value!r}; give different characters")
        try:
            codecs.lookup(self.encoding)
            "".encode(self.encoding)  # refuses codecs of bytes, such as base64
        except (LookupError, TypeError) as error:
            says = "is not an encoding; valid are the encodings of Python, such as utf-8, utf-16, latin-1, cp1252"
            raise UserError(f"{shown(repr(self.encoding))} {says}") from error
        if self.format not in (None, "csv", "parquet"):
            raise UserError(f"format must be csv or parquet, not {shown(repr(self.format))}")
        if self.date_format is None:
            return
        example = "write it with the directives of strftime, such as %d/%m/%Y or %Y%m%d %H:%M"
        what = f"date_format {shown(repr(self.date_format))}"
        if not isinstance(self.date_format, str) or not re.search("%[YyGc]|%[xD]", self.date_format):
            raise UserError(f"{what} names no year; {example}")
        try:
            pd.to_datetime(pd.Series(["-"], dtype=object), format=self.date_format, errors="coerce")
        except ValueError as error:
            raise UserError(f"{what} is not understood; {example}") from error

    def kind_of(self, path: Path) -> str | None:
        """The kind of a file: ``csv``, ``parquet`` or ``arrow``; None if its name does not show it."""
        suffix = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
        return self.format or SUFFIXES.get(suffix)

    @property
    def codec(self) -> str:
        """The encoding to open files with; it skips a byte order mark before UTF-8."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding


COLUMNS = ("id_column", "time_column", "target", "past_covariates", "future_covariates", "static")


@dataclass(frozen=True)
class RowWeights:
    """Weights of targets by series and by time interval; they are multiplied by a column of weights of the table."""

    series: Mapping[Any, float] = field(default_factory=dict)  # by id, or by column of a wide table
    rows: tuple[tuple[Any, Any, float], ...] = ()  # first and last time stamp, or step, both included, and weight

    @classmethod
    def of(cls, series_weights: Any = None, row_weights: Any = None) -> Self:
        """Read these arguments of `FrameDataModule`; UserError for an invalid mapping, list or weight."""
        series = {} if series_weights is None else series_weights
        if not isinstance(series, Mapping):
            raise UserError(f"series_weights must be weights by id, such as {{a: 0.5}}, not {shown(repr(series))}")
        rows = [] if row_weights is None else row_weights
        for one in (rows, *(rows if isinstance(rows, Sequence) else ())):
            if not isinstance(one, Sequence) or isinstance(one, str) or (one is not rows and len(one) != 3):
                form = "lists of first time stamp, last time stamp and weight, such as [2020-03-01, 2020-05-31, 0]"
                raise UserError(f"row_weights must be {form}, not {shown(repr(one))}")
        of_series = {name: _weight(value, f"of series {shown(name)}") for name, value in series.items()}
        return cls(of_series, tuple((start, end, _weight(w, f"from {start} to {end}")) for start, end, w in rows))

    def __bool__(self) -> bool:
        return bool(self.series or self.rows)

    def plain(self) -> dict[str, Any]:
        """The arguments in plain form, for YAML."""
        rows = [[*(int(one) if is_whole_number(one) else str(one) for one in row[:2]), row[2]] for row in self.rows]
        series = {str(name): value for name, value in self.series.items()}
        return {"series_weights": series or None, "row_weights": rows or None}

    def on(self, panel: Panel, cells: NDArray[np.float64] | None, source: str) -> Panel:
        """Weight the targets of a panel, also by a column `cells` of weights, which is NaN in filled rows."""
        names = panel.channels if panel.is_wide else panel.ids
        places = {str(name): place for place, name in enumerate(names)} | {one: i for i, one in enumerate(names)}
        of_series = np.ones((len(panel), len(panel.channels)))
        for name, weight in self.series.items():
            place = places.get(name, places.get(str(name)))
            if place is None:
                valid = one_of(map(shown, names[:12]))
                raise UserError(f"series_weights names {shown(name)}, which is not in {source}; valid are {valid}")
            of_series[(slice(None), place) if panel.is_wide else place] *= weight
        ends = [(_moment(start, panel.time), _moment(end, panel.time), _is_day(end)) for start, end, _ in self.rows]
        is_there = np.zeros(len(ends), dtype=bool)

        def weights_of(rows: slice) -> NDArray[np.float64]:
            weights = np.ones((rows.stop - rows.start, len(panel.channels)))
            if cells is not None:
                weights *= np.nan_to_num(cells[rows])
            weights *= of_series[owners(panel.starts, rows)]
            time: Any = panel.time[rows]
            for number, (first, last, is_day) in enumerate(ends):
                if is_day and isinstance(time, pd.DatetimeIndex):  # compare days, as the next midnight may not exist
                    is_before = time.tz_localize(None).normalize() <= last.tz_localize(None)
                else:
                    is_before = time <= last
                inside = np.asarray((time >= first) & is_before)
                is_there[number] |= inside.any()
                weights[inside] *= self.rows[number][2]
            return weights

        weights = made_rows(panel.values, weights_of)
        if not is_there.all():
            start, end, _ = self.rows[int(is_there.argmin())]
            raise UserError(f"row_weights: {source} has no row from {start} to {end}")
        return replace(panel, weights=weights)


def _names(given: Any, what: str, *, one: bool = False) -> tuple[str, ...]:
    is_name = isinstance(given, str | Integral) and not isinstance(given, bool)
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes | dict) and not one
    names = () if given is None else [given] if is_name else [*given] if is_list else [None]
    if any(name is None or isinstance(name, bool) or not isinstance(name, Hashable) for name in names):
        of = "" if one else " or a list of names"
        raise UserError(f"{what} must be the name of a column{of}, not {shown(repr(given))}")
    return tuple(map(str, names))


def _weight(value: Any, what: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise UserError(f"the weight {what} must be a number of at least 0, not {shown(repr(value))}")
    return float(value)


def _is_day(given: Any) -> bool:
    """Whether a date has no time of day, so that it means the whole day."""
    is_date = isinstance(given, date) or re.fullmatch(r"\s*\d{4}-?\d{2}-?\d{2}\s*", str(given)) is not None
    return is_date and not isinstance(given, datetime)


def _moment(given: Any, time: Any) -> Any:
    if isinstance(time, pd.DatetimeIndex):
        return in_zone(iso_date(given), time.tz, "row_weights")
    if not is_whole_number(given):
        raise UserError(f"the data count steps, so row_weights must give steps, not {shown(repr(given))}")
    return int(given)
