"""The one table of errors that all scores are reductions of, with a row for each series, origin and channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.errors import UserError, one_of, shown
from tsattn.evaluation.error_files import ErrorFile, ErrorWriter
from tsattn.evaluation.error_rows import ErrorRows, ErrorSchema
from tsattn.evaluation.reductions import is_count
from tsattn.evaluation.totals import group_scores, scores_of

__all__ = ["ErrorTable"]

_KEYS = {"series": "unique_id", "origin": "origin"}  # the columns of rows that they may be summed by


class ErrorTable:
    """Errors of all windows, see `tsattn.evaluation.measure`.

    A row holds ``unique_id`` (the id of the series), ``origin`` (the last time stamp before the horizon, or a step),
    ``channel``, the sums over the horizon that `sum_names` lists, and ``seasonal_error``, what MASE divides by, NaN
    where it is unknown. An origin is exact to the second and by the clock of the data, as windows know it.

    Args:
        schema: what its columns are.
        totals: `(C, M)` sums of all rows, see `total_names`.
        num_rows: how many there are.
        ids: the ids that the numbers in `rows` stand for.
        rows: the rows in memory, the file that holds them, or None where they were not kept.
        steps: `(T, C, M)` totals by step of the horizon; None where they were not kept.

    Attributes:
        channels: the names of the C channels.
        levels: the Q quantile levels, none for point forecasts.
        path: the file that holds the rows; None if they are in memory or were not kept.
    """

    def __init__(
        self,
        schema: ErrorSchema,
        totals: Tensor,
        num_rows: int,
        ids: Sequence[Any] = (),
        rows: list[ErrorRows] | ErrorFile | None = None,
        steps: Tensor | None = None,
    ) -> None:
        self.channels = schema.channels
        self.levels = schema.levels
        self.path = rows.path if isinstance(rows, ErrorFile) else None
        self._schema = schema
        self._totals = totals
        self._num_rows = num_rows
        self._ids = ids
        self._rows = rows
        self._steps = steps

    @classmethod
    def read(cls, path: str | Path) -> ErrorTable:
        """The table in a file that `to_parquet` has written; its rows stay there until they are asked for.

        Raises:
            UserError: if it is not there, is no error table, is damaged, or is of a newer version.
        """
        file = ErrorFile(Path(path))
        return cls(file.schema, file.totals(), len(file), rows=file)

    def __len__(self) -> int:
        """The number of rows."""
        return self._num_rows

    @property
    def has_rows(self) -> bool:
        """Whether the rows can be asked for, not their totals alone."""
        return self._rows is not None

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take in memory."""
        return self._num_rows * self._schema.row_bytes

    def scores(self) -> dict[str, float]:
        """All scores by name, see `tsattn.evaluation.reductions`."""
        return scores_of(self._totals, self.levels)

    def totals_by(self, key: str) -> tuple[pd.Index[Any], Tensor]:
        """The sums of the rows of each group; over all groups they add up to those of the table.

        Args:
            key: ``series``, ``origin``, ``channel``, or ``step`` of the horizon, 1 to T, at each of which every window
                counts.

        Returns:
            the G groups, series in the order of the rows, origins in that of time; and `(G, C, M)` totals, see
            `total_names`, with C = 1 by channel.

        Raises:
            UserError: for another key, and if the rows, or the totals by step, were not kept.
        """
        if key == "channel":
            return pd.Index(self.channels, name=key), self._totals[:, None]
        if key == "step":
            if self._steps is None:
                raise UserError("this table has no totals by step: measure with by_step")
            return pd.RangeIndex(1, len(self._steps) + 1, name=key), self._steps
        if key not in _KEYS:
            raise UserError(f"errors are summed by one of {one_of((*_KEYS, 'channel', 'step'))}, not {shown(key)}")
        numbers: dict[Any, int] = {}
        C, M = self._totals.shape
        totals = self._totals.new_zeros(0, C, M)
        for part in self._parts():
            codes, names = pd.factorize(_hashable(part[_KEYS[key]]))
            places = [numbers.setdefault(name, len(numbers)) for name in names.tolist()]
            added = self._schema.totals_of_arrow(part, codes, len(places)).view(-1, C, M)
            totals = torch.cat([totals, totals.new_zeros(len(numbers) - len(totals), C, M)])
            totals.index_add_(0, torch.tensor(places), added)
        names = pd.Index([*numbers], name=_KEYS[key], tupleize_cols=False)
        order = np.argsort(names, kind="stable") if key == "origin" else np.arange(len(names))
        return names[order], totals[torch.from_numpy(order)]

    def scores_by(self, key: str) -> pd.DataFrame:
        """The scores of each group of `totals_by`: a row a group, the columns of `scores`."""
        names, totals = self.totals_by(key)
        scores = pd.DataFrame(group_scores(totals, self.levels), index=names)
        return scores.astype({name: "int64" for name in scores if is_count(str(name))})

    def step_scores(self, score: str, channels: Sequence[int] | None = None) -> NDArray[np.float64]:
        """One of the scores at each step of the horizon, `(T,)`, of some of the channels, which are given by number."""
        _, totals = self.totals_by("step")
        some = totals if channels is None else totals[:, list(channels)]
        return group_scores(some, self.levels)[score]

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All rows.

        Args:
            columns: by name, those to give; all by default.

        Raises:
            UserError: if they were not kept.
        """
        parts = (part if columns is None else part.select(columns) for part in self._parts())
        frame: pd.DataFrame = pa.concat_tables(parts).to_pandas()
        return frame

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows into a file, all or nothing.

        Raises:
            UserError: if they were not kept, or the file cannot be written.
        """
        if self.path is not None and self.path.resolve() == Path(path).resolve():
            return
        parts = self._parts()
        with ErrorWriter(Path(path)) as writer:
            for part in parts:
                writer.write(part)
            writer.finish()

    def _parts(self) -> Iterator[pa.Table]:
        if self._rows is None:
            raise UserError(
                f"the {self._num_rows} rows of this table were not kept, as they take {self.nbytes / 1e6:.0f} MB: "
                "measure with a path, and they are written into a Parquet file"
            )
        if isinstance(self._rows, ErrorFile):
            return self._rows.parts()
        return (self._schema.to_arrow(rows, self._ids) for rows in self._rows)


def _hashable(column: pa.ChunkedArray) -> pd.Series[Any]:
    """A column of keys; ids of several parts, which Arrow has as lists, as tuples."""
    if pa.types.is_nested(column.type):
        return pd.Series([tuple(value) for value in column.to_pylist()], dtype=object)
    keys: pd.Series[Any] = column.to_pandas()
    return keys
