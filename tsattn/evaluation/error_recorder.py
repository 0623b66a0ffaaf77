"""How an error table is made, batch by batch: in memory, or too large for that, in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsattn.errors import UserError
from tsattn.evaluation.error_files import ErrorFile, ErrorWriter
from tsattn.evaluation.error_rows import ErrorRows, ErrorSchema
from tsattn.evaluation.error_table import ErrorTable
from tsattn.evaluation.totals import total_names
from tsattn.evaluation.window_errors import WindowErrors
from tsattn.task import check_quantiles

__all__ = ["MEMORY_LIMIT", "ErrorRecorder"]

MEMORY_LIMIT = 50_000_000  # bytes of rows
_PART = 1 << 16  # rows that are taken together, as the row groups of a file


@dataclass(frozen=True)
class _Recorded:
    """A batch, on the device that it was measured on: windows `(B,)`, and `(B, C, K + 1)`."""

    series: Tensor
    origin: Tensor
    values: Tensor


class ErrorRecorder:
    """Takes the errors of batches and makes a table of them.

    Used in a `with` statement, which leaves no file where the table was not finished.

    Args:
        ids: the ids of the S series, which the windows number.
        channels: the names of the C channels.
        levels: the Q quantile levels, the median among them; none for point forecasts.
        path: the Parquet file that holds the rows at the end; above `limit` they are written there as they come, and
            are not kept in memory. None: above it their totals alone are kept.
        limit: bytes of rows that are kept in memory.
        counts_steps: whether the time of the windows counts steps.

    Raises:
        UserError: for invalid levels.
    """

    def __init__(
        self,
        ids: Sequence[Any],
        channels: Sequence[str],
        levels: Sequence[float] = (),
        *,
        path: str | Path | None = None,
        limit: int = MEMORY_LIMIT,
        counts_steps: bool = False,
    ) -> None:
        self._schema = ErrorSchema(tuple(channels), check_quantiles(levels), counts_steps)
        self._totals = torch.zeros(len(channels), len(total_names(self._schema.levels)), dtype=torch.double)
        self._ids = ids
        self._path = None if path is None else Path(path)
        self._limit = limit
        self._recorded: list[_Recorded] = []  # of the next part
        self._waiting = 0  # rows in these
        self._parts: list[ErrorRows] = []
        self._num_rows = 0
        self._keeps_rows = True
        self._writer: ErrorWriter | None = None
        self._steps: Tensor | None = None

    def __enter__(self) -> ErrorRecorder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.discard()

    def record(self, errors: WindowErrors, series: Tensor, origin: Tensor, seasonal_errors: Tensor) -> None:
        """Add a batch; it stays on its device until there are enough of them to be fetched together.

        Args:
            errors: of the B windows.
            series: `(B,)` int64 number of the series of each.
            origin: `(B,)` int64 last time stamp before each horizon, in seconds since 1970-01-01, or a step.
            seasonal_errors: `(B, C)` what MASE divides by, in original units, NaN where it is unknown.
        """
        values = torch.cat([errors.sums, seasonal_errors.to(errors.sums)[..., None]], -1)
        self._recorded.append(_Recorded(series, origin, values))
        self._waiting += len(errors) * len(self._schema.channels)
        if self._waiting >= _PART:
            self._take_part()

    def record_steps(self, totals: Tensor) -> None:
        """Add the totals by step of a batch, `(T, C, M)`, see `step_totals`."""
        self._steps = totals if self._steps is None else self._steps + totals

    def finish(self) -> ErrorTable:
        """The table of all that was recorded.

        Raises:
            UserError: if that is no window, or no observed target; if the file cannot be written.
        """
        if self._waiting:
            self._take_part()
        if not self._num_rows:
            raise UserError("there are no windows to measure")
        if not self._totals[:, total_names(self._schema.levels).index("count")].any():
            raise UserError("there is no observed value to score")
        if self._path is not None and self._writer is None:
            self._start_file(self._path)
        rows: list[ErrorRows] | ErrorFile | None = self._parts if self._keeps_rows else None
        if self._writer is not None:
            self._writer.finish()
            rows = ErrorFile(self._writer.path)
        steps = None if self._steps is None else self._steps.cpu()
        return ErrorTable(self._schema, self._totals, self._num_rows, self._ids, rows, steps)

    def _take_part(self) -> None:
        """Fetch what waits, and put it where it belongs."""
        rows = self._fetched()
        self._num_rows += len(rows)
        self._totals = self._totals + self._schema.totals(rows)
        if self._writer is not None:
            self._writer.write(self._schema.to_arrow(rows, self._ids))
        elif self._keeps_rows:
            self._parts.append(rows)
            if self._num_rows * self._schema.row_bytes > self._limit:
                self._keeps_rows = False
                if self._path is not None:
                    self._start_file(self._path)
                self._parts = []

    def _start_file(self, path: Path) -> None:
        """Write what was kept so far."""
        self._writer = ErrorWriter(path)
        for rows in self._parts:
            self._writer.write(self._schema.to_arrow(rows, self._ids))

    def _fetched(self) -> ErrorRows:
        """A row for each window and channel, on the host."""
        waiting, self._recorded, self._waiting = self._recorded, [], 0
        series = torch.cat([batch.series for batch in waiting]).cpu().numpy()
        origin = torch.cat([batch.origin for batch in waiting]).cpu().numpy()
        values = torch.cat([batch.values for batch in waiting]).cpu().double().flatten(0, 1).numpy()
        C = len(self._schema.channels)
        channel = np.tile(np.arange(C, dtype=np.int32), len(series))
        return ErrorRows(series.astype(np.int32).repeat(C), origin.astype(np.int64).repeat(C), channel, values)
