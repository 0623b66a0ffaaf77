"""Files that are whole or not there, whenever the process that writes them is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tsattn.data.files import first_line
from tsattn.errors import UserError

__all__ = ["write_text", "write_whole"]


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file beside its place and move it there when it is whole; its folder is made.

    Args:
        path: the file.
        write: writes its content.

    Raises:
        UserError: if it cannot be written; what was there before is intact.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or first_line(error)}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all; see `write_whole`.

    Raises:
        UserError: if it cannot be written; what was there before is intact.
    """
    write_whole(path, lambda file: file.write(text.encode()))
