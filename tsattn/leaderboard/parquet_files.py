"""Tables of records as files: read with a sentence where that fails, written compactly and whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tsattn.data.files import first_line
from tsattn.errors import UserError
from tsattn.saved_folders import write_whole

__all__ = ["read_parquet", "write_parquet"]


def read_parquet(path: Path, dictionaries: list[str] | None = None) -> pa.Table:
    """The table in a file.

    Args:
        path: of it.
        dictionaries: columns of few values, read as such.

    Raises:
        UserError: if it cannot be read.
    """
    try:
        return pq.read_table(path, read_dictionary=dictionaries, partitioning=None)
    except (OSError, ValueError) as error:  # those of pyarrow are such, too
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table compactly: whole numbers that go up by steps, and floats a byte of all after the other."""
    floats = [field.name for field in table.schema if field.type == pa.float32()]
    delta = [field.name for field in table.schema if field.type in (pa.int32(), pa.int64())]
    texts = [name for name in table.schema.names if name not in (*floats, *delta)]
    write_whole(
        path,
        lambda file: pq.write_table(
            table,
            file,
            compression="zstd",
            compression_level=3,
            use_dictionary=texts,
            use_byte_stream_split=floats or False,
            column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
            store_schema=True,
        ),
    )
