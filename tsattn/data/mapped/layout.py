"""Where each row of a table larger than memory goes, decided from what was counted: all grids, end to end.

Shape letters: S series, C target channels, N series that have a target, in the order of their ids.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import MISSING, id_order
from tsattn.data.csv_cells import whole_ids
from tsattn.data.frequency import Times
from tsattn.data.grid import OFF_GRID, Grid, counts
from tsattn.data.grid_layout import lay_out
from tsattn.data.mapped.counting import Counts
from tsattn.data.mapped.source import TableSource
from tsattn.data.mapped.time_column import TimeColumn
from tsattn.data.quiet import quiet
from tsattn.data.roles import Roles
from tsattn.data.table_rows import listed
from tsattn.data.time_numbers import times_of
from tsattn.errors import UserError, one_of, shown

__all__ = ["ChunkReader", "Layout"]

logger = logging.getLogger("tsattn")

_HEAD = 1 << 22  # rows of one series that its frequency is found from
_FREE_ROWS, _MAX_GROWTH = 1_000_000, 10  # filling gaps may add so many rows, or so many times the rows given


@dataclass(frozen=True)
class Layout:
    """The place of every time stamp.

    Attributes:
        roles: which column is what; channels without any value are left out.
        channels: `(C,)` the places of these channels among those that were counted.
        ids: of the N series, sorted.
        number: `(S,)` of each series that was counted its number, -1 if it is left out.
        order: `(N,)` the other way round.
        categories: of each static column, sorted.
        static: `(N, K)` numbers of categories.
        frequency: of all series.
        is_given: whether the user gave it.
        grid: that all time stamps lie on.
        origin: `(N,)` coordinate of the first time stamp.
        phase: `(N,)` phase of all of them.
        kept: `(N,)` rows up to the last time stamp, or, with future covariates, to the last target.
        ahead: `(N,)` rows after these.
        unit: of time stamps; None of steps.
        zone: their time zone.
    """

    roles: Roles
    channels: NDArray[np.int64]
    ids: tuple[Any, ...]
    number: NDArray[np.int64]
    order: NDArray[np.int64]
    categories: tuple[tuple[str, ...], ...]
    static: NDArray[np.int64]
    frequency: str
    is_given: bool
    grid: Grid
    origin: NDArray[np.int64]
    phase: NDArray[np.int64]
    kept: NDArray[np.int64]
    ahead: NDArray[np.int64]
    unit: str | None
    zone: Any

    @property
    def starts(self) -> NDArray[np.int64]:
        """`(N + 1,)` first kept row of each series, and how many there are."""
        return np.concatenate([[0], np.cumsum(self.kept)])

    @property
    def ahead_starts(self) -> NDArray[np.int64]:
        """`(N + 1,)` the same of the rows ahead."""
        return np.concatenate([[0], np.cumsum(self.ahead)])

    def times(self, series: NDArray[np.int64], steps: NDArray[np.int64]) -> Times:
        """The time stamps at some steps of the grids of some series."""
        return self.grid.join(self.origin[series] + steps, self.phase[series])


class ChunkReader:
    """Reads a table chunk by chunk, names its rows, and lays them out.

    Args:
        source: the table.
        time: its column of time.
    """

    def __init__(self, source: TableSource, time: TimeColumn) -> None:
        self.source, self.time = source, time

    def layout(self, seen: Counts) -> Layout:
        """Where the rows go.

        Args:
            seen: the counts of all rows.

        Raises:
            UserError: for series that have no value or no common frequency, and gaps that are too long.
        """
        source, a = str(self.source.path), seen.arrays
        roles, channels = self._with_values(seen)
        known = a["known"][:, channels]
        has_value = np.atleast_1d(known.any(axis=1))
        if not roles.is_wide:
            if not has_value.any():
                raise UserError(f"{source}: every target of every series is missing; at least one is needed")
            if not has_value.all():
                left = [name for name, is_full in zip(seen.ids, has_value.tolist(), strict=True) if not is_full]
                left = [left[place] for place in id_order(left)]
                logger.warning(
                    "%s: left out %d of %d series, without any value: %s",
                    source,
                    len(left),
                    len(seen.ids),
                    listed(left),
                )
        names = list(seen.ids)
        if self._is_csv and not roles.is_wide and whole_ids(names):
            names = [int(name) for name in names]
        kept = np.flatnonzero(has_value | roles.is_wide)
        order = kept[id_order([names[place] for place in kept])]
        ids = tuple(names[place] for place in order)
        empty = np.argwhere(known[order] == 0)
        if empty.size:
            number, channel = empty[0].tolist()
            of = "" if roles.is_wide else f" of series {shown(ids[number])}"
            raise UserError(
                f"{source}: every value of {shown(roles.target[channel])}{of} is missing; at least one is needed"
            )
        number = np.full(len(names), -1)
        number[order] = np.arange(len(order))
        categories, static = self._categories(seen, order)
        return self._on_grids(
            seen, order, ids, roles=roles, channels=channels, number=number, categories=categories, static=static
        )

    def explain(self, seen: Counts, series: Sequence[int], frequency: str | None, otherwise: str) -> NoReturn:
        """Refuse the time stamps of some series (those that were counted), in the words of the reader in memory.

        Raises:
            UserError: always.
        """
        roles = self.source.roles
        time, owner, rows = self._rows_of(seen, series)
        names = list(seen.ids)
        with quiet():
            lay_out(
                *(time, owner, tuple(names[one] for one in series), frequency),
                lambda row: self.source.row_name(*seen.name_row(int(rows[row]))),
                str(self.source.path),
                is_wide=roles.is_wide,
                max_filled=self.source.options.max_filled,
            )
        raise UserError(f"{self.source.path}: {otherwise}")

    @property
    def _is_csv(self) -> bool:
        return any(self.source.kind_of(file) == "csv" for file in self.source.files)

    def _with_values(self, seen: Counts) -> tuple[Roles, NDArray[np.int64]]:
        """The roles without the channels of a wide table that have no value, unless they were listed."""
        roles, source = self.source.roles, str(self.source.path)
        for name, count in zip((*roles.past, *roles.future), seen.covariates, strict=True):
            if not count:
                raise UserError(f"{source}: every value of covariate {shown(name)} is missing; at least one is needed")
        is_full = np.atleast_1d(seen.arrays["known"].any(axis=0))
        if not roles.is_wide or self.source.options.target is not None or is_full.all() or not is_full.any():
            return roles, np.arange(len(roles.target))
        empty = [shown(name) for name, is_kept in zip(roles.target, is_full.tolist(), strict=True) if not is_kept]
        what = f"column {empty[0]}" if len(empty) == 1 else f"columns {one_of(empty)}"
        logger.warning("%s: left out %s, without any value", source, what)
        channels = np.flatnonzero(is_full)
        return replace(roles, target=tuple(roles.target[place] for place in channels)), channels

    def _categories(
        self, seen: Counts, order: NDArray[np.int64]
    ) -> tuple[tuple[tuple[str, ...], ...], NDArray[np.int64]]:
        raw, lacking = seen.arrays["static"][order], seen.arrays["lacking"][order]
        partly = np.argwhere((lacking > 0) & (raw >= 0))
        if partly.size:
            number, k = min(partly.tolist(), key=lambda place: int(lacking[*place]))
            where = self.source.row_name(*seen.name_row(int(lacking[number, k]) - 1))
            raise UserError(f"{where}: the category in static column {shown(self.source.roles.static[k])} is missing")
        categories, columns = [], []
        for k, known in enumerate(map(list, seen.categories)):
            texts = [*known, MISSING]  # -1, the last, is that of a series without any
            used = sorted({texts[code] for code in np.unique(raw[:, k])})
            new = {text: place for place, text in enumerate(used)}
            columns.append(np.array([new.get(text, -1) for text in texts])[raw[:, k]])
            categories.append(tuple(used))
        return tuple(categories), np.stack(columns, axis=1) if columns else np.zeros((len(order), 0), np.int64)

    def _on_grids(self, seen: Counts, order: NDArray[np.int64], ids: tuple[Any, ...], **facts: Any) -> Layout:
        roles, options, a = self.source.roles, self.source.options, seen.arrays
        rows, first, last = (a[name][order] for name in ("rows", "first", "last"))
        end = a["last_target"][order] if roles.future else last
        longest = int(rows.argmax())
        time, owner, places = self._rows_of(seen, order[longest : longest + 1])
        with quiet():
            found = lay_out(
                *(time, owner, ids[longest : longest + 1], options.frequency),
                lambda row: self.source.row_name(*seen.name_row(int(places[row]))),
                str(self.source.path),
                is_wide=roles.is_wide,
                max_filled=options.max_filled,
            )
        frequency, is_given = found.frequency, options.frequency is not None
        edges = [self._like(time, stamps) for stamps in (first, last, end)]
        if not is_given and frequency in ("B", "D"):
            weeks = [_weeks(pd.DatetimeIndex(edge)) for edge in edges[:2]]
            frequency = "D" if seen.has_weekend or (weeks[0] == weeks[1]).all() else "B"
        grid = Grid(edges[0].append(edges[1]), frequency)
        origin, phase = grid.split(edges[0])
        coordinate, phases = grid.split(edges[1])
        wrong = np.flatnonzero((phase == OFF_GRID) | (phases != phase))
        if wrong.size:
            culprits = [order[longest], *([order[wrong[0]]] if wrong[0] != longest else [])]
            self.explain(
                *(seen, culprits, options.frequency),
                f"the time stamps of series {shown(ids[wrong[0]])} are not on the grid of frequency {frequency!r}",
            )
        whole = coordinate - origin + 1
        kept = grid.split(edges[2])[0] - origin + 1
        self._refuse_gaps(seen, order, rows, whole, frequency)
        return Layout(
            ids=ids,
            order=order,
            frequency=frequency,
            is_given=is_given,
            grid=grid,
            origin=origin,
            phase=phase,
            kept=kept,
            ahead=whole - kept,
            unit=seen.unit,
            zone=getattr(time, "tz", None),
            **facts,
        )

    def _refuse_gaps(
        self, seen: Counts, order: NDArray[np.int64], rows: NDArray[np.int64], whole: NDArray[np.int64], frequency: str
    ) -> None:
        """Refuse to fill more rows than may be, in all or in a series."""
        filled = whole - rows
        share = filled / whole
        if (share > self.source.options.max_filled).any():
            worst = int(share.argmax())
            self.explain(seen, [order[worst]], frequency, "too many time stamps are missing")
        if filled.sum() > _FREE_ROWS + _MAX_GROWTH * rows.sum():
            name = shown(list(seen.ids)[order[int(filled.argmax())]])
            raise UserError(
                f"{self.source.path}: {filled.sum()} time stamps are missing at frequency {frequency!r}, the most of "
                f"series {name}, but there are only {rows.sum()} rows; check its dates"
            )

    def _rows_of(
        self, seen: Counts, series: Sequence[int] | NDArray[np.int64]
    ) -> tuple[Times, NDArray[np.int64], NDArray[np.int64]]:
        """Time stamps of some series in the order of rows, which of them each is of, and the numbers of the rows."""
        roles = self.source.roles
        place = np.full(len(seen.ids), -1)
        place[list(series)] = np.arange(len(series))
        columns = [*([] if roles.id is None else [roles.id]), roles.time]
        stamps, owners, rows, count = [], [], [], 0
        time: Times = times_of(np.zeros(0, np.int64), None)
        for chunk in self.source.chunks(columns):
            found = np.flatnonzero(place[seen.codes(chunk)] >= 0)
            if len(found):
                time = self.time.read(chunk)
                stamps.append(counts(time)[found])
                owners.append(place[seen.codes(chunk)][found])
                rows.append(chunk.start + found)
                count += len(found)
            if count >= _HEAD:
                break
        return self._like(time, np.concatenate(stamps)), np.concatenate(owners), np.concatenate(rows)

    @staticmethod
    def _like(time: Times, stamps: NDArray[np.int64]) -> Times:
        """Other stamps, in nanoseconds, in the time zone of these; or steps."""
        return times_of(stamps, "ns" if isinstance(time, pd.DatetimeIndex) else None, getattr(time, "tz", None))


def _weeks(time: pd.DatetimeIndex) -> NDArray[np.int64]:
    """The numbers of weeks; 1970-01-01 was a Thursday."""
    weeks: NDArray[np.int64] = (time.tz_localize(None).to_numpy().astype("M8[D]").astype(np.int64) + 3) // 7
    return weeks
