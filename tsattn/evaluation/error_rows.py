"""The rows of an error table: what they hold, in memory and as Arrow tables.

Shape letters: N rows, K sums of a window, see `tsattn.evaluation.window_errors`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.evaluation.totals import totals_of_rows
from tsattn.evaluation.window_errors import sum_names

__all__ = ["METADATA", "ErrorRows", "ErrorSchema"]

METADATA = b"tsattn.errors"
FORMAT = 1
_KEY_BYTES = 4 + 8 + 4


@dataclass(frozen=True)
class ErrorRows:
    """Rows of an error table, by number.

    Attributes:
        series: `(N,)` int32 number of the series of each row.
        origin: `(N,)` int64 last time stamp before the horizon, in seconds since 1970-01-01, or a step.
        channel: `(N,)` int32 number of the channel.
        values: `(N, K + 1)` float64 sums, and the seasonal error.
    """

    series: NDArray[np.int32]
    origin: NDArray[np.int64]
    channel: NDArray[np.int32]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        """N."""
        return len(self.series)


@dataclass(frozen=True)
class ErrorSchema:
    """What the columns of an error table are.

    Attributes:
        channels: the names of the C channels.
        levels: the Q quantile levels, none for point forecasts.
        counts_steps: whether origins are steps, not time stamps.
    """

    channels: tuple[str, ...]
    levels: tuple[float, ...]
    counts_steps: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns after the keys: the K sums and the seasonal error."""
        return (*sum_names(self.levels), "seasonal_error")

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory."""
        return _KEY_BYTES + 8 * len(self.names)

    @property
    def arrow(self) -> pa.Schema:
        """All columns but that of ids, whose type is that of the ids, and what a file says of them."""
        keys = [("origin", pa.int64() if self.counts_steps else pa.timestamp("ms")), ("channel", pa.string())]
        described = {"channels": self.channels, "levels": self.levels, "counts_steps": self.counts_steps}
        text = json.dumps({"format": FORMAT, **described})
        return pa.schema([*keys, *((name, pa.float64()) for name in self.names)], metadata={METADATA: text})

    def to_arrow(self, rows: ErrorRows, ids: Sequence[Any]) -> pa.Table:
        """Rows with ids, time stamps and names in place of numbers."""
        schema = self.arrow
        origin = rows.origin if self.counts_steps else rows.origin * 1000
        keys = [pa.array(origin).cast(schema.types[0]), pa.array(self.channels, pa.string()).take(rows.channel)]
        table = pa.Table.from_arrays([*keys, *map(pa.array, rows.values.T)], schema=schema)
        return table.add_column(0, "unique_id", _as_arrow(ids).take(pa.array(rows.series)))

    def totals(self, rows: ErrorRows) -> Tensor:
        """The totals of rows, see `totals_of_rows`."""
        channel, values = torch.from_numpy(rows.channel).long(), torch.from_numpy(rows.values)
        return totals_of_rows(len(self.channels), channel, values[:, :-1], values[:, -1])

    def totals_of_arrow(self, table: pa.Table, group: NDArray[np.int64] | None = None, num_groups: int = 1) -> Tensor:
        """The same of rows with names.

        Args:
            table: N rows.
            group: `(N,)` the number of the group of each row.
            num_groups: G; the totals are then `(G * C, M)`, group by group.
        """
        channel = pc.index_in(table["channel"], value_set=pa.array(self.channels, pa.string()))
        if channel.null_count:
            raise ValueError("it has rows of a channel that it does not name")
        values = torch.from_numpy(np.stack([table[name].to_numpy() for name in self.names], axis=1))
        C = len(self.channels)
        numbers = torch.from_numpy(channel.to_numpy().astype(np.int64) + (0 if group is None else C * group))
        return totals_of_rows(num_groups * C, numbers, values[:, :-1], values[:, -1])

    @classmethod
    def of_arrow(cls, schema: pa.Schema) -> ErrorSchema:
        """The inverse of `arrow`.

        Raises:
            ValueError: if these are not the columns of an error table, or those of a newer version.
        """
        described = json.loads((schema.metadata or {}).get(METADATA, b"{}"))
        if "format" not in described:
            raise ValueError("it is no error table")
        if described["format"] > FORMAT:
            raise ValueError("it was written by a newer version of tsattn")
        found = cls(tuple(described["channels"]), tuple(described["levels"]), described["counts_steps"])
        if schema.names != ["unique_id", *found.arrow.names]:
            raise ValueError("its columns are not those of an error table")
        return found


def _as_arrow(ids: Sequence[Any]) -> pa.Array:
    """Ids of one type, as they are; others as text."""
    try:
        return pa.array(list(ids))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array(list(map(str, ids)))
