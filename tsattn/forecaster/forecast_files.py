"""Forecasts and figures as files, which are whole or not there."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tsattn.errors import UserError

__all__ = ["FIGURES", "WRITERS", "check_output", "write_content", "write_figure", "write_frame"]

FIGURES = (".png", ".pdf", ".svg")

WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


def check_output(
    path: Path,
    overwrite: bool,
    endings: Collection[str] = tuple(WRITERS),
    option: str = "--output",
    inputs: Iterable[str | None] = (),
) -> None:
    """Refuse a path that cannot be written to, before any work is done.

    Args:
        path: of the file.
        overwrite: whether one that is there may be replaced.
        endings: that it may have.
        option: that names it.
        inputs: files that are read, which are never replaced.

    Raises:
        UserError: saying why not.
    """
    if path.suffix not in endings:
        raise UserError(f"{path} must end in {' or '.join(endings)}")
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file")
    if path.exists() and any(one and Path(one).exists() and path.samefile(one) for one in inputs):
        raise UserError(f"{path} is read as input and would be lost; name another file with `{option}`")
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already; name another file with {option}, or add --overwrite")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} of {path.name} is not there")
    with _unwritten(path):  # what may be written is known to the system alone
        partial = _partial(path)
        partial.touch()
        partial.unlink()


def write_frame(frame: pd.DataFrame, path: Path, overwrite: bool = False) -> None:
    """Write to `.csv` or `.parquet`, all or nothing.

    Raises:
        UserError: if it cannot be written, or is there now and may not be replaced.
    """
    _write(path, overwrite, lambda partial: WRITERS[path.suffix](frame, partial))


def write_figure(figure: Figure, path: Path, overwrite: bool = False) -> None:
    """Write in the format that the ending of the path names, all or nothing.

    Raises:
        UserError: if it cannot be written, or is there now and may not be replaced.
    """
    _write(path, overwrite, lambda partial: figure.savefig(partial, dpi=130, format=path.suffix[1:]))


def write_content(content: bytes, path: Path, overwrite: bool = False) -> None:
    """Write a whole file, all or nothing.

    Raises:
        UserError: if it cannot be written, or is there now and may not be replaced.
    """
    _write(path, overwrite, lambda partial: partial.write_bytes(content))


def _write(path: Path, overwrite: bool, write: Callable[[Path], Any]) -> None:
    with _unwritten(path):
        partial = _partial(path)
        try:
            write(partial)
            if path.exists() and not overwrite:
                raise UserError(f"{path} was made by another process meanwhile; name another file, or add --overwrite")
            partial.replace(path)
        finally:
            with contextlib.suppress(OSError):  # of a read-only disk, where it is not
                partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    """A name beside a file that nobody else uses."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")


@contextlib.contextmanager
def _unwritten(path: Path) -> Iterator[None]:
    """Name the file that cannot be written."""
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, TypeError) as error:  # ids of several types fit into no Parquet column
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{path} cannot be written: {reason}") from error
