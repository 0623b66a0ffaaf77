"""Files of every kind: whether one is there and the same, and how to say what is wrong with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tsattn.errors import UserError

__all__ = ["check_columns", "check_file", "first_line", "sha256_of"]

_MAX_COLUMNS = 100_000


def check_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if path.is_dir() or not path.exists():
        raise UserError(f"{path} is {'a folder, not a file' if path.is_dir() else 'not there: no such file'}")


def check_columns(path: Path, count: int) -> None:
    """Refuse a table of so many columns that it can only be a mistake."""
    if count > _MAX_COLUMNS:
        raise UserError(
            f"{path} has {count} columns or more; at most {_MAX_COLUMNS} are read (write many series as rows of "
            "unique_id, ds, y)"
        )


def first_line(error: Exception) -> str:
    """What an error of another library says, as it can stand in a message of one line."""
    text = str(error).strip().splitlines()
    return (text[0][:200] if text and text[0].isprintable() else "") or type(error).__name__


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
