"""Records of runs: one row per run, with its scores, its provenance, and its test errors over time.

A record is one Parquet file of one row, named by the key of its experiment and written whole or not at all. The table
of a suite, ``records.parquet``, is the concatenation of these files. Its metadata hold the suite as YAML, so a report
needs no other file.

Test errors are summed by *stretch*: `stretch_of` consecutive origins, an eighth of a horizon. Blocks of the bootstrap
are at least a horizon long, so nothing is lost, and a table is a tenth as large.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsattn.errors import UserError, first_line
from tsattn.saved_folders import atomic_write, unwritten_named

FILE = "records.parquet"
LABELS = ("dataset", "horizon", "predictor", "attention", "seed")
"""Columns that name a run within a suite; its ``key`` identifies the experiment."""

_ERRORS = {"origin": pa.int64(), "squared": pa.float32(), "absolute": pa.float32(), "count": pa.int32()}
SCHEMA = pa.schema(
    [
        ("suite", pa.string()),
        ("dataset", pa.string()),
        ("horizon", pa.int32()),
        ("predictor", pa.string()),
        ("attention", pa.string()),  # empty for a predictor without one
        ("seed", pa.int64()),  # null where nothing is drawn
        ("key", pa.string()),
        ("status", pa.string()),  # done or failed
        ("reason", pa.string()),
        ("mse", pa.float64()),
        ("mae", pa.float64()),
        ("mase", pa.float64()),
        ("wql", pa.float64()),
        ("validation_mse", pa.float64()),
        ("validation_mae", pa.float64()),
        ("windows", pa.int64()),
        ("context_length", pa.int32()),
        ("parameters", pa.int64()),
        ("flops", pa.float64()),
        ("seconds", pa.float64()),  # of the fit, including the fits of its members
        ("peak_memory", pa.int64()),
        ("trained_windows", pa.string()),
        ("pretraining", pa.string()),
        ("experiment", pa.string()),
        ("digest", pa.float64()),  # see tsattn.leaderboard.digest
        ("git", pa.string()),
        ("versions", pa.string()),
        ("cpu", pa.string()),
        ("device", pa.string()),
        ("threads", pa.int32()),
        ("command", pa.string()),
        ("finished", pa.timestamp("us", tz="UTC")),
        *((name, pa.list_(kind)) for name, kind in _ERRORS.items()),
    ]
)
_SUITES = b"tsattn.suites"
_NULLABLE = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
_SAME = 1e-9  # relative; results of one key that differ by more contradict each other
_SUM = 1e-4  # relative difference that rounding to float32 may cause between errors and score


class Records:
    """The records of one suite or several.

    Args:
        table: rows of `SCHEMA`.
        suites: the YAML of each suite, by name.
    """

    def __init__(self, table: pa.Table, suites: Mapping[str, str] | None = None) -> None:
        self.table = table
        self.suites = dict(suites or {})

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], suites: Mapping[str, str] | None = None) -> Self:
        """Build records from rows, sorted by their labels; missing columns are null."""
        ordered = sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in ("suite", *LABELS)])
        if unknown := {name for row in ordered for name in row} - set(SCHEMA.names):
            raise ValueError(f"a record has no column {min(unknown)}")
        finite = [
            {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in row.items()}
            for row in ordered
        ]
        return cls(pa.Table.from_pylist(finite, schema=SCHEMA), suites)

    @classmethod
    def read(cls, *sources: str | Path) -> Self:
        """The records in files, or in folders with a ``records.parquet``.

        Raises:
            UserError: if a source holds no records or was changed, or two sources have different results for one key.
        """
        parts = [_read(Path(source)) for source in sources]
        if not parts:
            raise UserError(f"name at least one folder with a {FILE}")
        suites = {name: text for part in parts for name, text in part.suites.items()}
        table = pa.concat_tables([part.table for part in parts])
        found = cls(table, suites)
        for key, runs in found.frame[found.frame["status"] == "done"].groupby("key"):
            values = runs["mse"].to_numpy(np.float64)
            if not np.allclose(values, values[0], rtol=_SAME, atol=0):
                raise UserError(f"two results of one experiment differ (MSE {values.min()}, {values.max()}); key {key}")
        return found

    def __len__(self) -> int:
        """The number of runs, including failed runs."""
        return len(self.table)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per run, without its errors over time; integers have pandas' nullable types."""
        scalars = [name for name in SCHEMA.names if name not in _ERRORS]
        frame: pd.DataFrame = self.table.select(scalars).to_pandas(types_mapper=_NULLABLE.get)
        return frame

    @cached_property
    def done(self) -> pd.DataFrame:
        """The finished rows of `frame`; a run that several suites share is a single row."""
        done = self.frame[self.frame["status"] == "done"]
        return done.drop_duplicates([*LABELS, "key"])

    def errors(self, key: str, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Test errors of a run by stretch: sums `(n,)`, the number of targets `(n,)` and the first origins `(n,)`.

        Args:
            key: of a run that is done.
            metric: ``mse`` or ``mae``.
        """
        row = self.table.slice(self._places[key], 1)
        names = ({"mse": "squared", "mae": "absolute"}[metric], "count", "origin")
        sums, counts, origins = (row[name][0].values.to_numpy(zero_copy_only=False) for name in names)
        return sums.astype(np.float64), counts.astype(np.float64), origins.astype(np.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        is_done = (self.frame["status"] == "done").to_numpy()
        return {key: place for place, key in enumerate(self.frame["key"]) if is_done[place]}

    def write(self, folder: str | Path, name: str = FILE) -> None:
        """Write ``records.parquet``, or a file of another name, into a folder, whole or not at all; hold a lock for it.

        Raises:
            UserError: if it cannot be written.
        """
        options: dict[str, Any] = {
            "compression": "zstd",
            "compression_level": 9,
            "use_dictionary": [field.name for field in SCHEMA if pa.types.is_string(field.type)],
            "use_byte_stream_split": ["squared.list.element", "absolute.list.element"],
            "column_encoding": dict.fromkeys(("origin.list.element", "count.list.element"), "DELTA_BINARY_PACKED"),
        }
        table = self.table.replace_schema_metadata({_SUITES: json.dumps(self.suites)})
        path = Path(folder) / name
        with unwritten_named(path), atomic_write(path, alone=True) as file:  # what a killed process left is replaced
            pq.write_table(table, file, **options)


def stretch_of(horizon: int) -> int:
    """How many consecutive origins a stretch holds: an eighth of the horizon, at least one."""
    return max(1, horizon // 8)


def by_stretch(windows: pd.DataFrame, horizon: int) -> dict[str, list[Any]]:
    """Sum windows (int64 ``origin``, ``squared``, ``absolute``, ``count``) into the error columns of a record.

    Raises:
        UserError: if an error is not finite in float32.
    """
    origins, places = np.unique(windows["origin"].to_numpy(np.int64), return_inverse=True)
    length = stretch_of(horizon)
    sums = {name: np.bincount(places // length, windows[name]) for name in ("squared", "absolute", "count")}
    with np.errstate(over="ignore"):
        rounded = {name: _rounded(sums[name]) for name in ("squared", "absolute")}
    if not all(np.isfinite(values).all() for values in rounded.values()):
        largest = windows["absolute"].max(skipna=False)
        raise UserError(
            f"test errors are too large, or not numbers: the absolute errors of a window sum to {largest:.3g}"
        )
    return {
        "origin": origins[::length].tolist(),
        **{name: values.tolist() for name, values in rounded.items()},
        "count": sums["count"].astype(int).tolist(),
    }


def write_record(path: Path, row: Mapping[str, Any]) -> None:
    """Write one record to a file, whole or not at all."""
    Records.of([row]).write(path.parent, path.name)


def read_record(path: Path) -> dict[str, Any]:
    """Read the row of a file that holds one record."""
    (row,) = _read(path).table.to_pylist()
    return dict(row)


def _read(source: Path) -> Records:
    path = source / FILE if source.is_dir() else source
    if not path.is_file():
        raise UserError(f"{source} holds no records; name a folder with a {FILE}")
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error
    missing = [name for name in SCHEMA.names if name not in table.schema.names]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}, so it holds no records")
    suites = json.loads((table.schema.metadata or {}).get(_SUITES, b"{}"))
    found = Records(table.select(SCHEMA.names).cast(SCHEMA), suites)
    for key, mse, mae in found.done[["key", "mse", "mae"]].itertuples(index=False):
        for metric, score in (("mse", mse), ("mae", mae)):
            sums, counts, _ = found.errors(key, metric)
            # comparisons would not match the scores
            if counts.sum() and not math.isclose(sums.sum() / counts.sum(), score, rel_tol=_SUM):
                raise UserError(f"{path} was changed: the errors of the key {key} are not those of its {metric}")
    return found


def _rounded(values: NDArray[Any]) -> NDArray[np.float32]:
    """Round to float32 with the last 8 bits 0: an error below 8e-6 of each value, and better compression."""
    bits = values.astype(np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7F) + ((bits >> np.uint32(8)) & np.uint32(1))) & np.uint32(0xFFFFFF00)
    return np.where(np.isfinite(values), nearest.view(np.float32), values).astype(np.float32)
