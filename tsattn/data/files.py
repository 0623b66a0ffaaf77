"""Files of every kind: whether one is there, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from tsattn.errors import UserError

__all__ = ["check_file", "first_line"]


def check_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if path.is_dir() or not path.exists():
        raise UserError(f"{path} is {'a folder, not a file' if path.is_dir() else 'not there: no such file'}")


def first_line(error: Exception) -> str:
    """What an error of another library says, as it can stand in a message of one line."""
    text = str(error).strip().splitlines()
    return (text[0][:200] if text and text[0].isprintable() else "") or type(error).__name__
