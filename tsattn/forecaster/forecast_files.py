"""Forecasts and figures as files, which are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from tsattn.errors import UserError
from tsattn.saved_folders import unwritten_named, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = (".png", ".pdf", ".svg")
WRITERS: dict[str, Callable[[pd.DataFrame, IO[bytes]], Any]] = {
    ".csv": lambda frame, file: frame.to_csv(file, index=False),
    ".parquet": lambda frame, file: frame.to_parquet(file, index=False),
}


def check_output(
    path: Path,
    overwrite: bool,
    endings: Collection[str] = tuple(WRITERS),
    option: str = "--output",
    inputs: Iterable[str | None] = (),
) -> None:
    """Refuse a path that cannot be written to, or is one of the inputs, before any work is done."""
    if path.suffix not in endings:
        raise UserError(f"{path} must end in {' or '.join(endings)}")
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file")
    if path.exists() and any(one and Path(one).exists() and path.samefile(one) for one in inputs):
        raise UserError(f"{path} is an input file and would be overwritten; name another file with `{option}`")
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already; name another file with {option}, or add --overwrite")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} for {path.name} does not exist: create it, or name another")
    with unwritten_named(path):  # only the system knows what may be written
        trial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        trial.touch()
        trial.unlink()


def write_frame(frame: pd.DataFrame, path: Path, overwrite: bool = False) -> None:
    """Write to ``.csv`` or ``.parquet``; see `write_whole`."""
    write_whole(path, lambda file: WRITERS[path.suffix](frame, file), overwrite=overwrite)


def write_figure(figure: Figure, path: Path, overwrite: bool = False) -> None:
    """Write in the format of the path's ending; see `write_whole`."""
    write_whole(path, lambda file: figure.savefig(file, dpi=130, format=path.suffix[1:]), overwrite=overwrite)
