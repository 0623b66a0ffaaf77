"""Error tables in Parquet files, which are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from tsattn.data.files import check_file, first_line
from tsattn.errors import UserError
from tsattn.evaluation.error_rows import ErrorSchema

__all__ = ["ErrorFile", "ErrorWriter"]

T = TypeVar("T")


class ErrorWriter:
    """Writes a table beside its place, a part at a time, and moves it there when it is whole.

    Used in a `with` statement, which leaves nothing where the table was not finished.

    Args:
        path: the file; its folder is made.

    Raises:
        UserError: here and later, if it cannot be written; what was there before is intact.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._do(lambda: path.parent.mkdir(parents=True, exist_ok=True))
        self._file = self._do(lambda: self._partial.open("wb"))
        self._writer: Any = None

    def __enter__(self) -> ErrorWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()

    def write(self, table: pa.Table) -> None:
        """Add rows, of the same columns each time."""
        if self._writer is None:
            self._writer = self._do(lambda: pq.ParquetWriter(self._file, table.schema, compression="zstd"))
        self._do(lambda: self._writer.write_table(table, row_group_size=len(table)))

    def finish(self) -> None:
        """Put the file into its place."""
        self._do(self._finish)

    def discard(self) -> None:
        """Remove what was written; does nothing where it is finished."""
        if self._writer is not None:
            with suppress(OSError, ValueError):  # or its end would be written when it is collected as garbage
                self._writer.close()
        with suppress(OSError):  # what is left to be written does not fit a full disk, either
            self._file.close()
        self._partial.unlink(missing_ok=True)

    def _finish(self) -> None:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self.path)

    def _do(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror or first_line(error)}") from error


class ErrorFile:
    """A file that an `ErrorWriter` has finished, read a part at a time.

    Args:
        path: the file.

    Attributes:
        path: the file.
        schema: what its columns are.

    Raises:
        UserError: here and later, if it is not there, is no error table, is damaged, or is of a newer version.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self.schema: ErrorSchema = self._do(lambda: ErrorSchema.of_arrow(pq.read_schema(path)))

    def __len__(self) -> int:
        """The number of rows."""
        return int(self._do(lambda: pq.read_metadata(self.path).num_rows))

    def parts(self) -> Iterator[pa.Table]:
        """The parts, as they were written."""
        with self._do(lambda: pq.ParquetFile(self.path)) as file:
            for number in range(file.num_row_groups):
                yield self._do(partial(file.read_row_group, number))

    def totals(self) -> Tensor:
        """The totals of all rows, see `total_names`."""
        # one after another, as they were added when they were written: to the same last digit
        return reduce(torch.add, (self._do(partial(self.schema.totals_of_arrow, part)) for part in self.parts()))

    def _do(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except (OSError, ValueError, KeyError, TypeError) as error:  # those of pyarrow are such, too
            raise UserError(f"{self.path} cannot be read: {first_line(error)}") from error
