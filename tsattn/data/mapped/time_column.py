"""The column of time of a table larger than memory: how it is written is found from all of it, before it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from tsattn.data.dates import parse_dates
from tsattn.data.frequency import Times, is_steps
from tsattn.data.mapped.source import RowChunk, TableSource
from tsattn.data.quiet import quiet
from tsattn.data.stamps import integer_format, stamps_or_steps, time_stamps
from tsattn.errors import UserError, shown

__all__ = ["TimeColumn"]

_MOST_TEXTS = 2_000_000  # different dates that are held in memory


class TimeColumn:
    """Reads time stamps, or steps, a chunk of rows at a time, as they would be read from the whole column at once.

    Args:
        source: the table. Its column of time is read once if it is written in text or whole numbers.

    Raises:
        UserError: naming the first row that is no date.
    """

    def __init__(self, source: TableSource) -> None:
        self._name, self._options = source.roles.time, source.options
        self._zone: Any = None
        self._is_first = True
        self._texts: pd.Index[Any] | None = None
        self._stamps = pd.DatetimeIndex([])
        form = source.options.text.date_format
        frequency = source.options.frequency
        self._counts_steps = frequency is not None and is_steps(frequency) and form is None
        self._form = form
        if form is not None or self._counts_steps:
            return
        (head,) = (chunk.frame[self._name] for chunk in [next(source.chunks([self._name]))])
        if pd.api.types.is_numeric_dtype(head.dtype) and not pd.api.types.is_bool_dtype(head.dtype):
            self._find_integers(source)
        elif pd.api.types.infer_dtype(head, skipna=True) == "string":
            self._find_texts(source)

    def read(self, chunk: RowChunk) -> Times:
        """The time stamps, or steps, of some rows.

        Raises:
            UserError: naming a row without any, or of another time zone.
        """
        column, where = chunk.frame[self._name], chunk.where
        if self._texts is not None and not pd.api.types.is_datetime64_any_dtype(column.dtype):
            codes = self._texts.get_indexer(pd.Index(column))
            if (codes < 0).any():
                return parse_dates(column, where)  # raises, or the file has changed, which is seen later
            time: Times = self._stamps.take(codes)
        elif self._counts_steps:
            with quiet():
                time = stamps_or_steps(column, where, date_format=None, ids=None, frequency="1")
        else:
            time = time_stamps(column, where, date_format=self._form)
        if isinstance(time, pd.DatetimeIndex):
            zone = None if time.tz is None else str(time.tz)
            if not self._is_first and zone != self._zone:
                names = ["no time zone" if name is None else f"time zone {name}" for name in (zone, self._zone)]
                raise UserError(
                    f"{where(0)}: the time stamps have {names[0]}, those before {names[1]}; all need the same"
                )
            self._zone, self._is_first = zone, False
        return time

    def _find_integers(self, source: TableSource) -> None:
        """Whether whole numbers are dates, and in which format, or steps: their extent says it, and their months."""
        witnesses: list[int] = []
        for chunk in source.chunks([self._name]):
            column = chunk.frame[self._name]
            if not pd.api.types.is_numeric_dtype(column.dtype):
                return
            known = column.dropna()
            if (known % 1 != 0).any():
                return
            numbers = known.astype("int64")
            odd = numbers[~numbers.mod(100).between(1, 12)]
            witnesses = [*{*witnesses, *odd[:1].tolist(), *([numbers.min(), numbers.max()] if len(numbers) else [])}]
            witnesses = [*{min(witnesses), max(witnesses), *[n for n in witnesses if not 1 <= n % 100 <= 12][:1]}]
        extent = pd.Series(witnesses, name=self._name)
        self._form = integer_format(extent)
        if self._form is None and self._options.frequency is None:
            read = stamps_or_steps(extent, lambda row: str(source.path), date_format=None, ids=None, frequency=None)
            self._counts_steps = not isinstance(read, pd.DatetimeIndex)

    def _find_texts(self, source: TableSource) -> None:
        """Read each different text once; of very many, those that are ISO 8601 are read as they come."""
        places: dict[str, tuple[int, int]] = {}
        for chunk in source.chunks([self._name]):
            column = chunk.frame[self._name]
            if pd.api.types.is_datetime64_any_dtype(column.dtype):
                continue  # of another file, which has types
            first = chunk.end - len(column)
            codes, texts = pd.factorize(column, use_na_sentinel=False)
            rows = np.full(len(texts), len(column))
            np.minimum.at(rows, codes, np.arange(len(column)))
            for text, row in zip(texts, rows.tolist(), strict=True):
                if pd.isna(text):
                    parse_dates(column, chunk.where)  # raises: there is none
                places.setdefault(text, (chunk.file, first + row))
            if len(places) > _MOST_TEXTS:
                break
        stamps = self._parsed(source, places)
        if len(places) <= _MOST_TEXTS:
            self._texts, self._stamps = pd.Index(list(places), dtype=object), stamps
            return
        iso = pd.to_datetime(
            pd.Index(list(places)[:1000]), format="ISO8601", errors="coerce", utc=stamps.tz is not None
        )
        if not np.array_equal(pd.DatetimeIndex(iso).asi8, stamps[:1000].as_unit(pd.DatetimeIndex(iso).unit).asi8):
            raise UserError(
                f"{source.path} has more than {_MOST_TEXTS} different dates in column {shown(self._name)}, which are "
                "not written like 2016-07-01 00:00:00; give their date_format"
            )

    def _parsed(self, source: TableSource, places: dict[str, tuple[int, int]]) -> pd.DatetimeIndex:
        order = list(places)

        def where(row: int) -> str:
            file, number = places[order[row]]
            return source.row_name(file, number)

        return _within_years(parse_dates(pd.Series(order, name=self._name, dtype=object), where), where)


def _within_years(stamps: pd.DatetimeIndex, where: Callable[[int], str]) -> pd.DatetimeIndex:
    return time_stamps(pd.Series(stamps), where)
