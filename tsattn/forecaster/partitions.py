"""The partitions of a folder of Parquet files: which there are, what they hold, and whether they are still the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsattn.data.columns import id_columns, with_joined_ids
from tsattn.data.files import first_line
from tsattn.data.roles import find_roles
from tsattn.data.table_options import Columns
from tsattn.data.tables import whole_ids
from tsattn.errors import UserError, shown

__all__ = ["Partition", "check_whole_series", "find_partitions", "id_column", "partition_table", "series_hashes"]

_ENDINGS = (".parquet", ".pq")
_MISSING = "__HIVE_DEFAULT_PARTITION__"  # stands for a missing value in the name of a folder


@dataclass(frozen=True)
class Partition:
    """A part of a table: a file, or the files of a folder that is named after values (``region=south``), together.

    Attributes:
        name: the path of the file or folder inside the whole.
        files: its files inside the whole.
        keys: the columns that folders are named after.
        state: sizes and times of the files, by which a change is seen.
        whole_keys: those of `keys` that hold whole numbers; the others hold text, such as the id ``007``.
    """

    name: str
    files: tuple[str, ...]
    keys: tuple[str, ...]
    state: str
    whole_keys: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """The path of its forecasts inside their folder: that of the file, or a file in the folder of this name."""
        return f"{self.name}/forecast.parquet" if self.is_folder else str(Path(self.name).with_suffix(".parquet"))

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.files != (self.name,)


def find_partitions(root: Path) -> list[Partition]:
    """All partitions of a folder, by name; hidden files, and those that begin with ``_``, are none, as elsewhere.

    Raises:
        UserError: for what is no such folder.
    """
    if not root.is_dir():
        raise UserError(
            f"{root} {'is a file' if root.exists() else 'is not there'}; valid is a folder of Parquet files"
        )
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*")):
        own = path.relative_to(root)
        is_hidden = any(part.startswith((".", "_")) for part in own.parts)
        if path.suffix.lower() in _ENDINGS and path.is_file() and not is_hidden:
            folder = own.parent
            found.setdefault((folder if _keys(folder) else own).as_posix(), []).append(own.as_posix())
    if not found:
        raise UserError(f"the folder {root} has no Parquet file ({', '.join(_ENDINGS)})")
    whole = _whole_keys(found.values())
    partitions = [_partition(root, name, files, whole) for name, files in found.items()]
    outputs: dict[str, str] = {}
    for one in partitions:
        if one.output in outputs:
            raise UserError(f"{outputs[one.output]} and {one.name} would have the same forecasts, {one.output}")
        outputs[one.output] = one.name
    return partitions


def partition_table(root: Path, partition: Partition, columns: list[str] | None = None) -> pa.Table:
    """The rows of a partition, the values that its folders are named after among them.

    Args:
        root: the folder of the whole, as this machine reaches it.
        partition: which.
        columns: those to read; all by default.

    Raises:
        UserError: for files that are damaged, not reachable, or no longer what they were.
    """
    _check_state(root, partition)
    with _readable(root, partition):
        table: pa.Table = _dataset(root, partition).to_table(columns=columns)
    _check_state(root, partition)  # or rows of before and after a change would be mixed
    return table


def id_column(root: Path, partition: Partition, columns: Columns) -> str | None:
    """The column of series ids; None of a wide table.

    Args:
        root: the folder of the whole.
        partition: one of its partitions.
        columns: which column is what, where it was named.

    Raises:
        UserError: for a table without time stamps or targets.
    """
    with _readable(root, partition):
        empty = pd.DataFrame(columns=_dataset(root, partition).schema.names)
    source = str(root / partition.name)
    return find_roles(with_joined_ids(empty, columns.id_column, source), source, columns).id


def series_hashes(root: Path, partition: Partition, column: str) -> NDArray[np.uint64]:
    """`(S,)` a number for each series of a partition: eight bytes, whatever its id.

    Raises:
        UserError: as `partition_table`.
    """
    return pd.util.hash_array(_ids(root, partition, column), categorize=False)


def check_whole_series(root: Path, hashes: Iterable[tuple[Partition, NDArray[np.uint64]]], column: str) -> None:
    """Refuse series whose rows lie in several partitions: each would be forecast from a part of its past.

    Raises:
        UserError: naming the first of them and two of its partitions.
    """
    parts = sorted(hashes, key=lambda one: one[0].name)
    if not parts:
        return
    every = np.concatenate([numbers for _, numbers in parts])
    owners = np.repeat(np.arange(len(parts)), [len(numbers) for _, numbers in parts])
    order = np.argsort(every, kind="stable")
    repeated = np.flatnonzero(every[order][1:] == every[order][:-1])
    for place in repeated:
        one, other = (parts[owners[order[number]]][0] for number in (place, place + 1))
        common = np.intersect1d(_ids(root, one, column), _ids(root, other, column))
        if len(common):  # two ids may have one number
            raise UserError(
                f"series {shown(common[0])} lies in two partitions of {root}, {one.name} and {other.name}: all rows "
                "of a series must lie in one"
            )


def _ids(root: Path, partition: Partition, column: str) -> NDArray[Any]:
    """The ids of a partition, each once, as text."""
    with _readable(root, partition):
        names = id_columns(column, _dataset(root, partition).schema.names)
    table = partition_table(root, partition, [*names] or [column])
    if len(names) > 1:
        table = pa.table(with_joined_ids(table.to_pandas(), column, str(root / partition.name)))
    unique = pc.unique(table[column]).drop_null()
    if pa.types.is_dictionary(unique.type):
        unique = unique.cast(unique.type.value_type)
    ids: NDArray[Any] = np.array([str(one) for one in unique.to_pylist()], dtype=object)
    return ids


def _dataset(root: Path, partition: Partition) -> Any:
    files = [str(root / name) for name in partition.files]
    # what the files hold of these columns themselves is of the type that it has there
    keys = [name for name in dict.fromkeys(partition.keys) if name not in pq.read_schema(files[0]).names]
    kinds = [(name, pa.int64() if name in partition.whole_keys else pa.string()) for name in keys]
    hive = ds.partitioning(pa.schema(kinds), flavor="hive")
    return ds.dataset(files, format="parquet", partitioning=hive, partition_base_dir=str(root))


@contextmanager
def _readable(root: Path, partition: Partition) -> Iterator[None]:
    """What pyarrow raises of a damaged file, as one sentence."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{root / partition.name} cannot be read, or is damaged: {first_line(error)}") from error


def _partition(root: Path, name: str, files: list[str], whole: frozenset[str]) -> Partition:
    keys = _keys(Path(files[0]).parent)
    return Partition(name, tuple(files), keys, _state(root, files), tuple(key for key in keys if key in whole))


def _keys(folder: Path) -> tuple[str, ...]:
    return tuple(key for key, _ in _values(folder))


def _values(folder: Path) -> list[tuple[str, str]]:
    """The columns that a folder is named after, and their values."""
    parts = (part.partition("=") for part in folder.parts if "=" in part)
    return [(key, value) for key, _, value in parts]


def _whole_keys(files: Iterable[Sequence[str]]) -> frozenset[str]:
    """The columns whose values are plain whole numbers in the names of all folders, as ids in a CSV file must be."""
    values: dict[str, set[str]] = {}
    for names in files:
        for key, value in _values(Path(names[0]).parent):
            values.setdefault(key, set()).add(value)
    return frozenset(key for key, texts in values.items() if whole_ids(texts - {_MISSING}))


def _check_state(root: Path, partition: Partition) -> None:
    if _state(root, partition.files) != partition.state:
        raise UserError(f"{root / partition.name} has changed meanwhile, or is another one on this machine")


def _state(root: Path, files: Iterable[str]) -> str:
    """Sizes and times of files; of one that is not there, that."""
    found: list[tuple[str, int | None, int | None]] = []
    for name in files:
        try:
            stat = (root / name).stat()
        except OSError:
            found.append((name, None, None))
        else:
            found.append((name, stat.st_size, stat.st_mtime_ns))
    return json.dumps(found)
