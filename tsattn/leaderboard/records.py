"""Records of runs: one table of what was run and what came of it, and one of the errors of every test window."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tsattn.data.files import first_line
from tsattn.errors import UserError, shown
from tsattn.leaderboard.parquet_files import read_parquet, write_parquet
from tsattn.leaderboard.run_record import (
    LABELS,
    LATER_COLUMNS,
    RECORD_COLUMNS,
    WINDOW_COLUMNS,
    Record,
    file_metadata,
    read_metadata,
    shown_number,
)
from tsattn.leaderboard.suite_facts import SuiteFacts, merged_facts

__all__ = ["RECORDS_FILE", "WINDOWS_FILE", "Records", "merged_records", "read_facts"]

RECORDS_FILE, WINDOWS_FILE = "records.parquet", "windows.parquet"

_RELATIVE = 1e-9  # results of one key that differ by more are two results
_OF_WINDOWS = 1e-4  # how far off float32 sums over windows may be
_KEY = pa.field("key", pa.dictionary(pa.int32(), pa.string()))
_NULLABLE = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}


class Records:
    """A table of runs, and the errors of their test windows, see `Records.read`.

    Args:
        table: with the columns of ``records.parquet``.
        windows: with those of ``windows.parquet``: rows of one key contiguous, and in order of their windows.
        suites: what is known of suites besides their runs, by name; older files have nothing of it.

    Attributes:
        suites: the same.
    """

    def __init__(self, table: pa.Table, windows: pa.Table, suites: Mapping[str, SuiteFacts] | None = None) -> None:
        self._table = table
        self._windows = windows
        self.suites = dict(suites or {})

    @classmethod
    def of(cls, records: Iterable[Record], suites: Mapping[str, SuiteFacts] | None = None) -> Self:
        """Records that were made one by one; of two of the same key and name the later is taken.

        What has no key, such as the runs of a study that failed, is left out where a run of the same name in the same
        suite has one: it was decided there.
        """
        known = _without_decided({_identity(record.row): record for record in records})
        ordered = [known[identity] for identity in sorted(known, key=_order)]
        table = pa.Table.from_pylist([dict(record.row) for record in ordered], schema=RECORD_COLUMNS)
        by_key = {record.row["key"]: record.windows for record in ordered if record.row["status"] == "done"}
        parts = [_with_key(key, part) for key, part in sorted(by_key.items())]
        return cls(table, _joined(parts), suites)

    @classmethod
    def read(cls, *sources: str | Path) -> Self:
        """The records in folders (or files ``records.parquet``, with ``windows.parquet`` beside them), as one table.

        The same entry in several is one. Where it failed in one and is done in another it is done.

        Raises:
            UserError: if one is not there or holds no records, or if two have different results for one key.
        """
        if not sources:
            raise UserError(f"no records are named: valid is a folder with {RECORDS_FILE}, or that file")
        found: list[Record] = []
        results: dict[str, tuple[Record, Path]] = {}
        files = [_records_file(source) for source in sources]
        for path in files:
            for record in _read_records(path):
                if record.row["status"] == "done":
                    first, home = results.setdefault(record.row["key"], (record, path))
                    _check_same(record.row["key"], first, home, record, path)
                found.append(record)
        return cls.of(merged_records(found), merged_facts(map(read_facts, files)))

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._table)

    @property
    def frame(self) -> pd.DataFrame:
        """A row an entry, sorted; whole numbers that may be missing are of pandas' nullable types."""
        frame: pd.DataFrame = self._table.to_pandas(types_mapper=_NULLABLE.get)
        return frame

    def without_seeds(self, seeds: Collection[int]) -> Self:
        """These, without the runs of some seeds."""
        is_one = pc.is_in(self._table["seed"], value_set=pa.array(sorted(seeds), pa.int64()))
        return self._only(pc.invert(is_one))

    def without_fresh_seeds(self) -> Self:
        """These, without the runs of seeds that chose nothing in their own suite, and are there to confirm."""
        fresh = {(name, seed) for name, facts in self.suites.items() for seed in facts.fresh_seeds}
        rows = zip(self._table["suite"].to_pylist(), self._table["seed"].to_pylist(), strict=True)
        return self._only(pa.array([row not in fresh for row in rows], pa.bool_()))

    def and_fresh_seeds(self) -> tuple[Self, tuple[int, ...]]:
        """These, and the seeds that confirm what the others find: those that are done and fresh in every suite.

        Where some suite chooses by one of them, they confirm in the report of their own suite alone: these are without
        them, and there are none. Nor are there where all seeds that are done are fresh.
        """
        done = self.frame[self.frame["status"] == "done"]
        fresh, others = set[int](), set[int]()
        for suite, part in done.groupby("suite"):
            known = {int(seed) for seed in part["seed"].dropna()}
            own = known & set(self.suites[str(suite)].fresh_seeds if str(suite) in self.suites else ())
            fresh |= own
            others |= known - own
        if fresh & others:
            return self.without_fresh_seeds(), ()
        return self, tuple(sorted(fresh)) if others else ()

    def _only(self, is_kept: pa.Array) -> Self:
        return type(self)(self._table.filter(is_kept), self._windows, self.suites)

    def windows(self, key: str) -> pd.DataFrame:
        """The errors of the test windows of a key, in order.

        Raises:
            UserError: for a key that has none.
        """
        frame: pd.DataFrame = self._windows_of(key).to_pandas()
        return frame

    def each(self) -> list[Record]:
        """All records, one by one."""
        rows = self._table.to_pylist()
        return [
            Record(row, self._windows_of(row["key"]) if row["status"] == "done" else WINDOW_COLUMNS.empty_table())
            for row in rows
        ]

    def write(self, folder: str | Path) -> None:
        """Write ``records.parquet`` and ``windows.parquet``, each all or nothing.

        Raises:
            UserError: if they cannot be written.
        """
        suites = {name: facts.to_dict() for name, facts in sorted(self.suites.items())}
        metadata = file_metadata({"suites": suites} if suites else {})
        records_file, windows_file = (Path(folder) / name for name in (RECORDS_FILE, WINDOWS_FILE))
        former = _windows_of_others(records_file, windows_file, self._places)
        windows = self._windows.replace_schema_metadata(metadata)
        # in this order every row that is read has its windows, wherever it ends
        both = windows if former is None else _joined([windows, former]).replace_schema_metadata(metadata)
        write_parquet(windows_file, both)
        write_parquet(records_file, self._table.replace_schema_metadata(metadata))
        if former is not None:
            write_parquet(windows_file, windows)

    def _windows_of(self, key: str) -> pa.Table:
        if key not in self._places:
            raise UserError(f"there are no errors by window of the key {shown(repr(key))}")
        start, length = self._places[key]
        return self._windows.slice(start, length).select(WINDOW_COLUMNS.names)

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """By key, the first of its rows, and how many they are."""
        if not len(self._windows):
            return {}
        column = self._windows["key"].combine_chunks()
        codes = column.indices.to_numpy()
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        lengths = np.diff([*starts, len(codes)])
        names = column.dictionary.to_pylist()
        return {names[codes[start]]: (int(start), int(length)) for start, length in zip(starts, lengths, strict=True)}


def merged_records(records: Iterable[Record]) -> list[Record]:
    """Records of several tables: the same entry in several is one, and done if it is done in any of them."""
    known: dict[tuple[Any, ...], Record] = {}
    for record in records:
        former = known.get(_identity(record.row))
        if former is None or (former.row["status"] != "done" and record.row["status"] == "done"):
            known[_identity(record.row)] = record
    return [*_without_decided(known).values()]


def _without_decided(known: Mapping[tuple[Any, ...], Record]) -> dict[tuple[Any, ...], Record]:
    """Records by identity, without those that have no key where others of the same suite and name have one."""
    decided = {identity[:-1] for identity in known if identity[-1]}
    arms = {names[:-1] for names in decided}  # what does not apply has no seed

    def is_decided(names: tuple[Any, ...]) -> bool:
        return names in decided or (names[-1] is None and names[:-1] in arms)

    return {identity: record for identity, record in known.items() if identity[-1] or not is_decided(identity[:-1])}


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["suite"], *(row[name] for name in LABELS), row["key"])


def _order(identity: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is not None, value) for value in identity)


def _with_key(key: str, windows: pa.Table) -> pa.Table:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(windows), np.int32)), pa.array([key]))
    return windows.add_column(0, _KEY, column)


def _joined(parts: list[pa.Table]) -> pa.Table:
    schema = pa.schema([_KEY, *WINDOW_COLUMNS])
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks() if parts else schema.empty_table()


def _records_file(source: str | Path) -> Path:
    path = Path(source)
    file = path / RECORDS_FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"there are no records in {path}: valid is a folder with {RECORDS_FILE}, or that file")
    return file


def _read_records(path: Path) -> list[Record]:
    table, beside = read_parquet(path), path.with_name(WINDOWS_FILE)
    read_metadata(table.schema, path)
    for name in (name for name in LATER_COLUMNS if name not in table.schema.names):
        table = table.append_column(name, pa.nulls(len(table), RECORD_COLUMNS.field(name).type))
    missing = [name for name in RECORD_COLUMNS.names if name not in table.schema.names]
    if missing:
        raise UserError(f"{path} has no column {missing[0]}, so it holds no records")
    table = table.select(RECORD_COLUMNS.names).cast(RECORD_COLUMNS)
    is_done = pc.equal(table["status"], "done")
    if not pc.any(is_done).as_py():
        return Records(table, _joined([])).each()
    if not beside.is_file():
        raise UserError(f"the errors by window are missing: {beside} lies beside every {RECORDS_FILE}")
    found = Records(table, read_parquet(beside, dictionaries=["key"])).each()
    for record in found:
        _check_windows(record, beside)
    return found


def _windows_of_others(records: Path, windows: Path, own: Collection[str]) -> pa.Table | None:
    """The windows of those rows of a table in files that are not one's own; None where there are none to be read."""
    try:
        rows = read_parquet(records).select(["key", "status"]).to_pylist() if records.is_file() else []
        keys = {row["key"] for row in rows if row["status"] == "done"} - set(own)
        if not keys:
            return None
        table = read_parquet(windows, dictionaries=["key"]).select(["key", *WINDOW_COLUMNS.names])
    except (UserError, KeyError):  # no table of records, which is written over
        return None
    return table.filter(pc.is_in(table["key"].cast(pa.string()), pa.array(sorted(keys))))


def _check_windows(record: Record, file: Path) -> None:
    """Refuse errors by window that are not those of the row: comparisons would silently be of something else."""
    if record.row["status"] != "done":
        return
    rows, wanted = len(record.windows), record.row["windows"]
    if rows != wanted:
        raise UserError(
            f"{file} has {rows:,} windows one after another of the key {shown(repr(record.row['key']))}, whose record "
            f"counts {wanted:,}: rows are missing, or not in the order in which they were written"
        )
    count = pc.sum(record.windows["count"]).as_py()
    for name, column in (("mse", "squared"), ("mae", "absolute")):
        total, score = pc.sum(record.windows[column].cast(pa.float64())).as_py(), record.row[name]
        if count and score is not None and not math.isclose(total / count, score, rel_tol=_OF_WINDOWS):
            raise UserError(
                f"the errors of the key {shown(repr(record.row['key']))} in {file} come to {name} "
                f"{shown_number(total / count)}, and its record says {shown_number(score)}: one of both was changed"
            )


def read_facts(source: str | Path) -> dict[str, SuiteFacts]:
    """What records say of suites besides their runs, by name.

    Args:
        source: a folder, or the file.

    Raises:
        UserError: if there are none.
    """
    path = _records_file(source)
    try:
        schema = pq.read_schema(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error
    suites = read_metadata(schema, path).get("suites", {})
    return {name: SuiteFacts.of(content) for name, content in suites.items()}


def _check_same(key: str, one: Record, home: Path, other: Record, place: Path) -> None:
    for name in ("mse", "mae"):
        values = one.row[name], other.row[name]
        is_same = values[0] == values[1] if None in values else math.isclose(*values, rel_tol=_RELATIVE)
        if not is_same:
            first, second = map(shown_number, values)
            raise UserError(
                f"two results of one experiment differ: {name} {first} in {home}, {second} in {place}, key {key}; keep "
                "one of them"
            )
