"""Forecasts and figures as files, which are whole or not there."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

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
    with _all_or_nothing(path) as partial:  # what may be written is known to the system alone
        partial.touch()
        partial.unlink()


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write to `.csv` or `.parquet`, all or nothing.

    Raises:
        UserError: if it cannot be written.
    """
    with _all_or_nothing(path) as partial:
        WRITERS[path.suffix](frame, partial)
        partial.replace(path)


def write_figure(figure: Figure, path: Path) -> None:
    """Write in the format that the ending of the path names, all or nothing.

    Raises:
        UserError: if it cannot be written.
    """
    with _all_or_nothing(path) as partial:
        figure.savefig(partial, dpi=130, format=path.suffix[1:])
        partial.replace(path)


def write_content(content: bytes, path: Path) -> None:
    """Write a whole file, all or nothing.

    Raises:
        UserError: if it cannot be written.
    """
    with _all_or_nothing(path) as partial:
        partial.write_bytes(content)
        partial.replace(path)


@contextlib.contextmanager
def _all_or_nothing(path: Path) -> Iterator[Path]:
    """A path beside this one to write to, which is not left there."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
    except (OSError, ValueError, TypeError) as error:  # ids of several types fit into no Parquet column
        with contextlib.suppress(OSError):  # of a read-only disk, where it is not
            partial.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{path} cannot be written: {reason}") from error
