"""The first pass over a table larger than memory: every cell is checked, and what each series has is counted.

Shape letters: S series, C target channels, P past-only covariates, F known-future covariates, K static columns.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.category_columns import covariate_columns, recoded
from tsattn.data.columns import category_text, number_columns, series_numbers
from tsattn.data.frequency import Times
from tsattn.data.grid import counts
from tsattn.data.mapped.source import RowChunk
from tsattn.data.roles import Roles
from tsattn.data.time_numbers import time_unit
from tsattn.data.weights import check_cells
from tsattn.errors import UserError, shown

__all__ = ["Counts"]

_NEVER = np.iinfo(np.int64).min
_MOST_TEXTS = 1 << 16  # categories of a covariate that are remembered
_UNITS = ("s", "ms", "us", "ns")


class Counts:
    """What is known of each series once all rows before a place were seen; series come in the order of their rows.

    Args:
        roles: which column is what.

    Attributes:
        ids: of each series.
        arrays: by name, one entry for each series: ``rows``; ``first`` and ``last`` time stamp (in nanoseconds, or
            steps); ``last_target``, the last one with a target; ``known`` `(S, C)`, how many values; ``static``
            `(S, K)`, numbers of categories in `categories`, or -1; ``lacking`` `(S, K)`, the first row that should
            have one and has none, counted from 1, or 0; ``late``, whether a row came before an earlier one.
        covariates: `(P + F,)` how many values of covariates.
        covariate_texts: by name, the categories of those that are such; None of those that are numbers.
        categories: of each static column the categories, in the order of their rows.
        file_starts: the number of the first row of each file that was begun.
        rows: all rows.
        place: number of the file and rows of it that were seen.
        unit: of the time stamps, the finest; None of steps.
        has_weekend: whether any time stamp is on a Saturday or Sunday.
    """

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self.ids: dict[Any, int] = {}
        C, K = len(roles.target), len(roles.static)
        self._store: dict[str, NDArray[Any]] = {
            "rows": np.zeros(0, np.int64),
            "first": np.zeros(0, np.int64),
            "last": np.zeros(0, np.int64),
            "last_target": np.zeros(0, np.int64),
            "known": np.zeros((0, C), np.int64),
            "static": np.zeros((0, K), np.int64),
            "lacking": np.zeros((0, K), np.int64),
            "late": np.zeros(0, np.bool_),
        }
        self.covariates = np.zeros(len(roles.past) + len(roles.future), np.int64)
        self.covariate_texts: dict[str, set[str] | None] = {}
        self.categories: list[dict[str, int]] = [{} for _ in range(K)]
        self.file_starts: list[int] = [0]
        self.rows = 0
        self.place = 0, 0
        self.unit: str | None = None
        self.has_weekend = False

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Views of what is counted, to be added to in place."""
        return {name: part[: len(self.ids)] for name, part in self._store.items()}

    def add(self, chunk: RowChunk, time: Times) -> None:
        """Count the rows of a chunk.

        Raises:
            UserError: for a cell that cannot be used, naming its file and row.
        """
        roles, frame = self._roles, chunk.frame
        while len(self.file_starts) <= chunk.file:
            self.file_starts.append(chunk.start)
        codes = self.codes(chunk, is_new=True)
        values = number_columns(frame, roles.target, chunk.where, "target")
        self._add_covariates(chunk)
        weights = number_columns(frame, () if roles.weight is None else (roles.weight,), chunk.where, "weight")
        check_cells(weights, values, str(roles.weight), chunk.where)
        has_target = ~np.isnan(values)
        may_lack = np.atleast_1d(~has_target.any(axis=1))
        stamps = counts(time)
        if isinstance(time, pd.DatetimeIndex):
            self.unit = max(self.unit or "s", time_unit(time) or "s", key=_UNITS.index)
            self.has_weekend = self.has_weekend or not _are_weekdays(time)
        order = np.argsort(codes, kind="stable")
        begin = np.flatnonzero(np.diff(codes[order], prepend=-1))
        number, stamps = codes[order][begin], stamps[order]
        # a row is late if one of its series before it, in this chunk or an earlier one, has a later time stamp
        late = np.zeros(len(stamps), dtype=bool)
        late[1:] = (np.diff(stamps) < 0) & (np.diff(codes[order]) == 0)
        a = self.arrays
        late[begin] = stamps[begin] < a["last"][number]
        a["late"][number] |= np.logical_or.reduceat(late, begin)
        a["rows"][number] += np.diff(begin, append=len(stamps))
        a["first"][number] = np.minimum(a["first"][number], np.minimum.reduceat(stamps, begin))
        a["last"][number] = np.maximum(a["last"][number], np.maximum.reduceat(stamps, begin))
        with_target = np.where(may_lack[order], _NEVER, stamps)
        a["last_target"][number] = np.maximum(a["last_target"][number], np.maximum.reduceat(with_target, begin))
        a["known"][number] += np.add.reduceat(has_target[order], begin, dtype=np.int64)
        for k, name in enumerate(roles.static):
            self._add_categories(k, name, chunk, codes, may_lack)
        self.rows += len(frame)
        self.place = chunk.file, chunk.end

    def codes(self, chunk: RowChunk, *, is_new: bool = False) -> NDArray[np.int64]:
        """`(rows,)` the number of the series of each row; those not seen before are added, if they may be."""
        column = self._roles.id
        ids = None if column is None else chunk.frame[column]
        numbers, names = series_numbers(ids, len(chunk.frame), chunk.where)
        places = np.empty(len(names), np.int64)
        before = len(self.ids)
        for number, name in enumerate(names):
            if not is_new and name not in self.ids:
                raise UserError(f"{chunk.where(0)}: the file was changed while it was read; start again")
            places[number] = self.ids.setdefault(name, len(self.ids))
        if len(self.ids) > before:
            self._make_room(before)
        return places[numbers]

    @property
    def covariate_categories(self) -> dict[str, tuple[str, ...]]:
        """By name, the categories of the covariates that are such, sorted."""
        return {name: tuple(sorted(texts)) for name, texts in self.covariate_texts.items() if texts is not None}

    def covariates_of(self, chunk: RowChunk) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Past covariates `(rows, P)` and future ones `(rows, F)` of a chunk, in the categories of all rows."""
        known = self.covariate_categories
        past, future = (
            recoded(*covariate_columns(chunk.frame, names, chunk.where, role, known), names, known)
            for names, role in _with_roles(self._roles)
        )
        return past, future

    def name_row(self, row: int) -> tuple[int, int]:
        """The file of a row, and its number there; the row is counted over all files."""
        file = int(np.searchsorted(self.file_starts, row, side="right")) - 1
        return file, row - self.file_starts[file]

    def save(self, folder: Path) -> None:
        """Write all of it, to go on from there."""
        plain = {
            "ids": list(self.ids),
            "categories": [list(known) for known in self.categories],
            "covariate_texts": {
                name: None if texts is None else sorted(texts) for name, texts in self.covariate_texts.items()
            },
            "file_starts": self.file_starts,
            "rows": self.rows,
            "place": self.place,
            "unit": self.unit,
            "has_weekend": self.has_weekend,
        }
        partial = folder / "counts.npz.partial"
        with partial.open("wb") as file:
            parts: dict[str, Any] = {"plain": np.array(json.dumps(plain)), "covariates": self.covariates, **self.arrays}
            np.savez(file, **parts)
        partial.replace(folder / "counts.npz")

    def load(self, folder: Path) -> bool:
        """Go on from what was saved; False if there is nothing."""
        try:
            with np.load(folder / "counts.npz") as saved:
                plain = json.loads(str(saved["plain"]))
                self._store = {name: saved[name] for name in self._store}
                self.covariates = saved["covariates"]
        except (OSError, ValueError, KeyError, EOFError):
            return False
        self.ids = {tuple(name) if isinstance(name, list) else name: i for i, name in enumerate(plain["ids"])}
        self.categories = [{text: i for i, text in enumerate(known)} for known in plain["categories"]]
        self.covariate_texts = {
            name: None if texts is None else {*texts} for name, texts in plain["covariate_texts"].items()
        }
        self.file_starts, self.rows = plain["file_starts"], plain["rows"]
        self.place, self.unit = tuple(plain["place"]), plain["unit"]
        self.has_weekend = plain["has_weekend"]
        return True

    def _make_room(self, before: int) -> None:
        size = len(self._store["rows"])
        if len(self.ids) > size:
            for name, part in self._store.items():
                room = np.zeros((max(len(self.ids), 2 * size, 64), *part.shape[1:]), part.dtype)
                room[:size] = part
                self._store[name] = room
        new = slice(before, len(self.ids))
        self._store["first"][new] = np.iinfo(np.int64).max
        for name in ("last", "last_target"):
            self._store[name][new] = _NEVER
        self._store["static"][new] = -1

    def _add_covariates(self, chunk: RowChunk) -> None:
        counted = []
        for names, role in _with_roles(self._roles):
            numbers, found = covariate_columns(chunk.frame, names, chunk.where, role, None)
            is_given = ~np.isnan(numbers)
            counted.append(is_given.sum(axis=0))
            for k, name in enumerate(names):
                if not counted[-1][k]:
                    continue
                texts = self.covariate_texts.setdefault(name, {*found[name]} if name in found else None)
                if (texts is None) != (name not in found):
                    kinds = ("numbers", "text without a number")
                    here, before = kinds if texts is not None else kinds[::-1]
                    raise UserError(
                        f"{chunk.where(int(is_given[:, k].argmax()))}: covariate {shown(name)} has {here} from here on "
                        f"and {before} before; one of both is needed"
                    )
                if texts is not None:
                    texts |= {*found[name]}
                    if len(texts) > _MOST_TEXTS:
                        raise UserError(
                            f"{chunk.where(0)}: covariate {shown(name)} has more than {_MOST_TEXTS} categories up to "
                            "here; give fewer, or numbers"
                        )
        self.covariates += np.concatenate(counted)

    def _add_categories(
        self, k: int, name: str, chunk: RowChunk, codes: NDArray[np.int64], may_lack: NDArray[np.bool_]
    ) -> None:
        try:
            raw, uniques = pd.factorize(chunk.frame[name])
        except TypeError as error:
            raise UserError(f"static column {shown(name)} holds no categories; valid are texts and numbers") from error
        lacking, first = np.flatnonzero((raw < 0) & ~may_lack)[::-1], self.arrays["lacking"][:, k]
        none_yet = lacking[first[codes[lacking]] == 0]
        first[codes[none_yet]] = chunk.start + none_yet + 1  # of several rows the first is written last
        known = self.categories[k]
        texts = [category_text(value) for value in uniques.tolist()]
        numbers = np.array([*(known.setdefault(text, len(known)) for text in texts), -1], np.int64)[raw]
        static = self.arrays["static"][:, k]
        given = np.flatnonzero(raw >= 0)[::-1]  # of several rows the first is written last
        fresh = given[static[codes[given]] < 0]
        static[codes[fresh]] = numbers[fresh]
        changes = (numbers != static[codes]) & (raw >= 0)
        if changes.any():
            row = int(changes.argmax())
            series = list(self.ids)[codes[row]]
            raise UserError(
                f"{chunk.where(row)}: static column {shown(name)} changes within series {shown(series)}, to "
                f"{shown(list(known)[numbers[row]])}; it must be constant (or be a covariate)"
            )


def _with_roles(roles: Roles) -> tuple[tuple[tuple[str, ...], str], ...]:
    return (roles.past, "past covariate"), (roles.future, "future covariate")


def _are_weekdays(time: pd.DatetimeIndex) -> bool:
    return bool(np.is_busday(np.asarray(time.tz_localize(None)).astype("M8[D]")).all())
