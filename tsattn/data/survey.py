"""What is known of each series of a table once all of its rows were seen, part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from typing_extensions import TypeIs

from tsattn.data.category_columns import Categories
from tsattn.data.frequency import Times
from tsattn.data.roles import Roles
from tsattn.data.stamps import time_numbers, time_unit, time_zone
from tsattn.data.table_rows import Rows
from tsattn.errors import UserError, shown

__all__ = ["PER_UNIT", "Survey"]

Array = NDArray[Any]

PER_UNIT = {None: 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds in a unit of time; 1 of steps."""

_MOST_TEXTS = 1 << 16  # categories of a covariate that are remembered
_NEVER, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Survey:
    """Counts what each series has; series come in the order of their rows."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.ids: dict[Any, int] = {}  # of each series its number
        C, K = len(roles.target), len(roles.static)
        # of each series: first and last in nanoseconds, or steps; late, if a row came before an earlier one; known,
        # how many values; static, numbers of categories, or -1; lacking, the first row without one, from 1, or 0
        self._new: dict[str, Any] = {"rows": 0, "first": _LATEST, "last": _NEVER, "last_target": _NEVER, "late": 0}
        self._new |= {"known": [0] * C, "static": [-1] * K, "lacking": [0] * K}
        self.series: dict[str, Array] = {name: np.empty((0, *np.shape(new)), int) for name, new in self._new.items()}
        self.covariates = np.zeros(len(roles.past) + len(roles.future), np.int64)  # how many values
        self.texts: dict[str, dict[str, int] | None] = {name: {} for name in roles.static}  # None of numbers
        self.time: Times | None = None  # none at all, in the zone and finest unit of all rows
        self.rows = 0
        self.regular: tuple[Array, Array] | None = None  # steps and first rows of the series, if no row is out of order

    def add(self, rows: Rows) -> None:
        """Count some rows."""
        self._add_time(rows)
        codes = self._codes(rows)
        self._add_covariates(rows)
        if rows.is_own:
            for k, name in enumerate(self.roles.static):
                self._add_static(k, name, rows, codes)
        stamps, values, per = time_numbers(rows.time), rows.values, PER_UNIT[time_unit(rows.time)]
        is_sorted = bool((codes[1:] >= codes[:-1]).all())
        if not is_sorted:
            order = np.argsort(codes, kind="stable")
            codes, stamps, values = codes[order], stamps[order], values[order]
        begin = np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])
        number, sizes, steps = codes[begin], np.diff(begin, append=len(codes)), stamps[1:] - stamps[:-1]
        back = steps < 0
        back[begin[1:] - 1] = False
        a, is_back = self.series, bool(back.any())
        self.regular = (steps, begin) if self.rows == 0 and is_sorted and not is_back else None
        a["late"][number] |= stamps[begin] * per < a["last"][number]
        a["late"][codes[1:][back]] = 1
        first, last = stamps[begin], stamps[begin + sizes - 1]
        if is_back:
            first, last = np.minimum.reduceat(stamps, begin), np.maximum.reduceat(stamps, begin)
        with_target, missing = last * per, np.isnan(values)
        a["known"][number] += sizes[:, None]
        if missing.any():
            a["known"][number] -= np.add.reduceat(missing, begin, dtype=np.int64)
            with_target = np.maximum.reduceat(np.where(missing.all(axis=1), _NEVER, stamps * per), begin)
        a["rows"][number] += sizes
        a["first"][number] = np.minimum(a["first"][number], first * per)
        a["last"][number] = np.maximum(a["last"][number], last * per)
        a["last_target"][number] = np.maximum(a["last_target"][number], with_target)
        self.rows += len(codes)

    def codes(self, rows: Rows) -> Array:
        """`(R,)` the number of the series of each row."""
        places = np.array([self.ids.get(name, -1) for name in rows.names], np.int64)
        if (places < 0).any():
            raise UserError(f"{rows.where(0)}: the file was changed while it was read; start again")
        return rows.series if np.array_equal(places, np.arange(len(places))) else places[rows.series]

    def _codes(self, rows: Rows) -> Array:
        before = len(self.ids)
        for name in rows.names:
            self.ids.setdefault(name, len(self.ids))
        if count := len(self.ids) - before:
            for name, new in self._new.items():
                room = np.full((count, *np.shape(new)), new, int)
                self.series[name] = np.concatenate([self.series[name], room])
        return self.codes(rows)

    def _add_time(self, rows: Rows) -> None:
        time = rows.time[:0]
        if self.time is None:
            self.time = time
        if time_zone(time) != time_zone(self.time) and _is_offset(time) and _is_offset(self.time):
            time, self.time = time.tz_convert("UTC"), self.time.tz_convert("UTC")
        if time_zone(time) != time_zone(self.time) or (time_unit(time) is None) != (time_unit(self.time) is None):
            zones = map(time_zone, (time, self.time))
            mine, others = ("no time zone" if zone is None else f"time zone {zone}" for zone in zones)
            raise UserError(f"{rows.where(0)}: the time stamps have {mine}, those before {others}; all need the same")
        if rows.is_own and PER_UNIT[time_unit(time)] < PER_UNIT[time_unit(self.time)]:
            self.time = time

    def _add_covariates(self, rows: Rows) -> None:
        is_given = ~np.isnan(np.concatenate([rows.past, rows.known], axis=1))
        self.covariates += is_given.sum(axis=0)
        for k, name in enumerate((*self.roles.past, *self.roles.future)):
            if not is_given[:, k].any():
                continue
            texts = self.texts.setdefault(name, {} if name in rows.categories else None)
            if (texts is None) != (name not in rows.categories):
                here, before = ("numbers", "text without a number")[:: 1 if texts is not None else -1]
                raise UserError(
                    f"{rows.where(int(is_given[:, k].argmax()))}: covariate {shown(name)} has {here} from here on "
                    f"and {before} before; one of both is needed"
                )
            if texts is not None:
                texts |= dict.fromkeys(rows.categories[name], 0)
                if len(texts) > _MOST_TEXTS:
                    raise UserError(
                        f"{rows.where(0)}: covariate {shown(name)} has more than {_MOST_TEXTS} categories up to "
                        "here; give fewer, or numbers"
                    )

    def _add_static(self, k: int, name: str, rows: Rows, codes: Array) -> None:
        known = self.texts[name]
        assert known is not None
        numbers = np.array([*(known.setdefault(text, len(known)) for text in rows.categories[name]), -1], np.int64)
        own = numbers[np.nan_to_num(rows.static[:, k], nan=0).astype(np.int64) - 1]  # of missing ones the last, -1
        static, first = self.series["static"][:, k], self.series["lacking"][:, k]
        lacking = np.flatnonzero((own < 0) & ~np.isnan(rows.values).all(axis=1))[::-1]
        lacking = lacking[first[codes[lacking]] == 0]
        first[codes[lacking]] = rows.start + lacking + 1  # of several rows the first is written last
        given = np.flatnonzero(own >= 0)[::-1]
        given = given[static[codes[given]] < 0]
        static[codes[given]] = own[given]
        changes = (own != static[codes]) & (own >= 0)
        if changes.any():
            row = int(changes.argmax())
            raise UserError(
                f"{rows.where(row)}: static column {shown(name)} changes within series "
                f"{shown(list(self.ids)[codes[row]])}, to {shown(list(known)[own[row]])}; it must be constant (or be a "
                "covariate)"
            )

    @property
    def categories(self) -> Categories:
        """The categories of the covariates that are such, sorted."""
        covariates = {name: known for name, known in self.texts.items() if name not in self.roles.static}
        return {name: tuple(sorted(known)) for name, known in covariates.items() if known is not None}


def _is_offset(time: Times) -> TypeIs[pd.DatetimeIndex]:
    """Whether time stamps have the same offset from UTC all year."""
    return isinstance(time, pd.DatetimeIndex) and time.tz is not None and time.tz.utcoffset(None) is not None
