"""The second pass over a table larger than memory: every row is written to its place, in any order.

Beside the arrays of the panel lies one of the source: for each place the number of the row that it came from, counted
from 1. It tells a time stamp that is there twice from a row that is written once more, after a process was killed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.columns import number_columns
from tsattn.data.grid import counts
from tsattn.data.mapped.counting import Counts
from tsattn.data.mapped.layout import ChunkReader, Layout
from tsattn.data.mapped.panel_folder import new_array, space_needed
from tsattn.data.mapped.source import RowChunk

__all__ = ["Places"]


class Places:
    """The arrays of a panel that is being written.

    Args:
        folder: where they lie.
        layout: of the rows.
        single: of each array by name, whether single precision holds it.

    Attributes:
        arrays: ``values``, ``time`` and ``source``, and ``past_covariates``, ``future_covariates``, ``ahead`` and
            ``weight`` if there are any; those of rows but `ahead` and `source` have the kept rows, `source` also those
            ahead.

    Raises:
        OSError: if the disk is full.
        UserError: if it would be.
    """

    def __init__(self, folder: Path, layout: Layout, single: dict[str, bool]) -> None:
        self.layout = layout
        self._starts, self._ahead_starts = layout.starts, layout.ahead_starts
        rows, ahead = int(self._starts[-1]), int(self._ahead_starts[-1])
        roles = layout.roles

        def kind(name: str) -> str:
            return "float32" if single[name] else "float64"

        shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "values": ((rows, len(roles.target)), kind("values")),
            "time": ((rows,), "int64"),
        }
        if roles.past:
            shapes["past_covariates"] = (rows, len(roles.past)), kind("past_covariates")
        if roles.future:
            shapes["future_covariates"] = (rows, len(roles.future)), kind("future_covariates")
            shapes["ahead"] = (ahead, len(roles.future)), kind("future_covariates")
        if roles.weight is not None:
            shapes["weight"] = (rows, 1), kind("weight")
        shapes["source"] = (rows + ahead,), "int64"
        space_needed(folder, shapes)
        self.arrays = {name: new_array(folder / f"{name}.npy", *shape) for name, shape in shapes.items()}
        self.drops_past = False

    def write(self, reader: ChunkReader, seen: Counts, chunk: RowChunk) -> None:
        """Write the rows of a chunk to their places.

        Raises:
            UserError: for a time stamp that is there twice or is not on the grid of its series, naming file and row.
        """
        layout, roles = self.layout, reader.source.roles
        time = reader.time.read(chunk)
        number = layout.number[seen.codes(chunk)]
        coordinates, phases = layout.grid.split(time if not isinstance(time, pd.DatetimeIndex) else time.as_unit("ns"))
        own = np.flatnonzero(number >= 0)
        number, steps = number[own], coordinates[own] - layout.origin[number[own]]
        off = phases[own] != layout.phase[number]
        off |= (steps < 0) | (steps >= (layout.kept + layout.ahead)[number])
        if off.any():
            self._refuse(reader, seen, int(number[off.argmax()]), chunk.where(int(own[off.argmax()])))
        is_ahead = steps >= layout.kept[number]
        place = np.where(
            is_ahead,
            self._ahead_starts[number] + steps - layout.kept[number],
            self._starts[number] + steps,
        )
        self._mark(reader, seen, chunk.start + own, np.where(is_ahead, self._starts[-1] + place, place), number)
        kept, here = own[~is_ahead], place[~is_ahead]
        stamps = counts(time)[kept] // _per_unit(layout.unit)
        self.arrays["time"][here] = stamps
        values = number_columns(chunk.frame, roles.target, chunk.where, "target")
        self.arrays["values"][here] = values[kept][:, layout.channels]
        if roles.weight is not None:
            self.arrays["weight"][here] = number_columns(chunk.frame, (roles.weight,), chunk.where, "weight")[kept]
        past, known = seen.covariates_of(chunk)
        if roles.past:
            self.arrays["past_covariates"][here] = past[kept]
            self.drops_past = self.drops_past or not np.isnan(past[own[is_ahead]]).all()
        if roles.future:
            self.arrays["future_covariates"][here] = known[kept]
            self.arrays["ahead"][place[is_ahead]] = known[own[is_ahead]]

    def flush(self) -> None:
        """Wait until the disk has everything that was written."""
        for array in self.arrays.values():
            if isinstance(array, np.memmap):
                array.flush()

    def fill(self, first: int, end: int) -> None:
        """Give the places that no row was written to their time stamps, and missing values.

        Args:
            first: the place to begin at, of those in `source`.
            end: the place after the last.
        """
        places = first + np.flatnonzero(self.arrays["source"][first:end] == 0)
        rows = self._starts[-1]
        kept, ahead = places[places < rows], places[places >= rows] - rows
        if len(ahead):
            self.arrays["ahead"][ahead] = np.nan
        if not len(kept):
            return
        owner, steps = self.owners(kept)
        stamps = self.layout.times(owner, steps)
        self.arrays["time"][kept] = counts(stamps) // _per_unit(self.layout.unit)
        for name in ("values", "past_covariates", "future_covariates", "weight"):
            if name in self.arrays:
                self.arrays[name][kept] = np.nan

    def owners(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The series of some places in `source`, and the steps on its grid."""
        rows = self._starts[-1]
        is_ahead = places >= rows
        owner = np.where(
            is_ahead,
            np.searchsorted(self._ahead_starts, places - rows, side="right") - 1,
            np.searchsorted(self._starts, places, side="right") - 1,
        )
        steps = np.where(
            is_ahead, places - rows - self._ahead_starts[owner] + self.layout.kept[owner], places - self._starts[owner]
        )
        return owner, steps

    def _mark(
        self,
        reader: ChunkReader,
        seen: Counts,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        number: NDArray[np.int64],
    ) -> None:
        """Note the source of places, which none may have already."""
        source = self.arrays["source"]
        before = source[places]
        twice = (before != 0) & (before != rows + 1)
        source[places] = rows + 1
        twice |= source[places] != rows + 1  # two of these rows have one place
        if twice.any():
            at = int(twice.argmax())
            self._refuse(reader, seen, int(number[at]), reader.source.row_name(*seen.name_row(int(rows[at]))))

    def _refuse(self, reader: ChunkReader, seen: Counts, number: int, where: str) -> None:
        layout = self.layout
        series = [int(layout.order[number])]
        frequency = layout.frequency if layout.is_given else None
        longest = int(layout.order[int((layout.kept + layout.ahead).argmax())])
        if not layout.is_given and longest not in series:
            series.append(longest)
        reader.explain(seen, series, frequency, f"{where}: the time stamp is there twice, or not on its grid")


def _per_unit(unit: str | None) -> int:
    """Nanoseconds in a unit of time; 1 of steps."""
    return {None: 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}[unit]
