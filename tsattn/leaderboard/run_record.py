"""A record: what came of one run, with the errors of its test windows, and the columns that tables of them have."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from tsattn.errors import UserError
from tsattn.leaderboard.parquet_files import read_parquet, write_parquet

__all__ = [
    "LABELS",
    "LATER_COLUMNS",
    "RECORD_COLUMNS",
    "WINDOW_COLUMNS",
    "Record",
    "called_twice",
    "file_metadata",
    "read_metadata",
    "shown_number",
]

LABELS = ("dataset", "horizon", "predictor", "attention", "seed")
"""By what an entry is called; its `Experiment.key` says what it is."""

_FORMAT = 1
_METADATA = b"tsattn.records"

RECORD_COLUMNS = pa.schema(
    [
        ("suite", pa.string()),
        ("dataset", pa.string()),
        ("horizon", pa.int32()),
        ("predictor", pa.string()),
        ("attention", pa.string()),
        ("seed", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("key", pa.string()),
        ("mse", pa.float64()),
        ("mae", pa.float64()),
        ("mase", pa.float64()),
        ("wql", pa.float64()),
        ("validation_mse", pa.float64()),
        ("validation_mae", pa.float64()),
        ("windows", pa.int64()),
        ("context_length", pa.int32()),
        ("season_length", pa.int32()),
        ("parameters", pa.int64()),
        ("flops", pa.float64()),
        ("seconds", pa.float64()),
        ("own_seconds", pa.float64()),
        ("peak_memory", pa.int64()),
        ("weight", pa.float64()),
        ("trained_windows", pa.string()),
        ("pretraining", pa.string()),
        ("experiment", pa.string()),
        ("git", pa.string()),
        ("versions", pa.string()),
        ("cpu", pa.string()),
        ("device", pa.string()),
        ("threads", pa.int32()),
        ("command", pa.string()),
        ("finished", pa.timestamp("us", tz="UTC")),
    ]
)
LATER_COLUMNS = ("mase", "wql", "own_seconds", "pretraining")  # columns that older files lack
WINDOW_COLUMNS = pa.schema(
    [
        ("window", pa.int32()),
        ("origin", pa.int64()),
        ("squared", pa.float32()),
        ("absolute", pa.float32()),
        ("count", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Record:
    """What came of one entry.

    Attributes:
        row: a value for each column of ``records.parquet``; None, or no value, where there is none.
        windows: the errors of its test windows: ``window``, ``origin``, ``squared``, ``absolute`` and ``count``; no row
            unless it is done. Errors are rounded to 16 binary digits, by less than 8e-6 of each, and take a third less
            room so.
    """

    row: Mapping[str, Any]
    windows: pa.Table

    @classmethod
    def of(cls, row: Mapping[str, Any], windows: pa.Table | None = None) -> Self:
        """A record of values by column, and of windows in order, if there are some.

        Raises:
            ValueError: for a value of no column, or of another type than that of its column.
        """
        unknown = sorted(row.keys() - set(RECORD_COLUMNS.names))
        if unknown:
            raise ValueError(f"a record has no column {unknown[0]}")
        if windows is None:
            table = WINDOW_COLUMNS.empty_table()
        else:
            table = _rounded(windows.select(WINDOW_COLUMNS.names).cast(WINDOW_COLUMNS))
        return cls({name: _finite(row.get(name)) for name in RECORD_COLUMNS.names}, table)

    def write(self, path: Path) -> None:
        """Write it into a file of its own, all or nothing."""
        finished = self.row["finished"]
        row = {**self.row, "finished": None if finished is None else finished.isoformat()}
        write_parquet(path, self.windows.replace_schema_metadata(file_metadata({"row": row})))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in a file that `write` has written.

        Raises:
            UserError: if it is none, or of a newer version.
        """
        table = read_parquet(path)
        row = read_metadata(table.schema, path)["row"]
        if row["finished"] is not None:
            row["finished"] = datetime.fromisoformat(row["finished"])
        return cls(row, table.replace_schema_metadata(None))


def shown_number(value: float | None) -> str:
    """Of a result: nine digits, or ``none``."""
    return "none" if value is None else f"{value:.9g}"


def called_twice(row: Mapping[str, Any]) -> UserError:
    """Of two different experiments by whose name none is meant.

    Args:
        row: of one of them, which has `LABELS`.
    """
    arm = ", ".join(filter(None, (row["predictor"], row["attention"])))
    seed = "" if pd.isna(row["seed"]) else f", seed {row['seed']}"
    name = f"{row['dataset']}, horizon {row['horizon']}, {arm}{seed}"
    return UserError(f"two different experiments are called {name}: report their records apart, or drop one")


def file_metadata(content: Mapping[str, Any]) -> dict[bytes, str]:
    """What a file of records says of itself, for its table's schema.

    Args:
        content: besides the version of the format.
    """
    return {_METADATA: json.dumps({"format": _FORMAT, **content})}


def read_metadata(schema: pa.Schema, path: Path) -> dict[str, Any]:
    """What a file says of itself, see `file_metadata`.

    Args:
        schema: of its table.
        path: of it, for messages.

    Raises:
        UserError: if it holds no records, or was written by a newer version.
    """
    text = (schema.metadata or {}).get(_METADATA)
    if text is None:
        raise UserError(f"{path} holds no records")
    described: dict[str, Any] = json.loads(text)
    if described["format"] > _FORMAT:
        raise UserError(f"{path} was written by a newer version of tsattn")
    return described


def _rounded(windows: pa.Table) -> pa.Table:
    """The last 8 of the 24 binary digits of each error are 0."""
    for place, field in enumerate(windows.schema):
        if field.type == pa.float32():
            values = windows[field.name].to_numpy()
            bits = values.view(np.uint32)
            nearest = (bits + np.uint32(0x7F) + ((bits >> np.uint32(8)) & np.uint32(1))) & np.uint32(0xFFFFFF00)
            rounded = np.where(np.isfinite(values), nearest.view(np.float32), values)
            windows = windows.set_column(place, field, pa.array(rounded))
    return windows


def _finite(value: Any) -> Any:
    """None for what is no number: JSON has no word for that."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
