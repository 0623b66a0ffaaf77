"""A folder of arrays that is opened as a panel: ``panel.json`` and a ``.npy`` file for each array."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.data.files import sha256_of
from tsattn.data.panel import Panel
from tsattn.data.stamps import time_numbers, time_unit, time_zone, times_of
from tsattn.data.table_options import TableOptions
from tsattn.errors import UserError, one_of, shown
from tsattn.saved_folders import restore_folder, write_text

__all__ = ["INDEX", "choose", "is_panel_folder", "new_array", "open_panel", "read_index", "weight_cells", "write_index"]

INDEX = "panel.json"
FORMAT = 2  # of the folder; raised when it changes
_PLAIN = (
    *("ids", "channels", "frequency", "past_names", "future_names", "static_names", "static_categories"),
    *("covariate_categories", "is_wide", "id_name", "time_name", "complete"),
)
_MAPPED = ("values", "past_covariates", "future_covariates", "ahead")
_SMALL = ("starts", "ahead_starts", "static")
_WEIGHT = "weight"  # a column that is no part of the panel until it is named


def is_panel_folder(path: Path) -> bool:
    """Whether a path is a folder that a table was converted to; one whose replacement was killed is moved back."""
    restore_folder(path, INDEX)
    return (path / INDEX).is_file()


def open_panel(folder: Path, *, verify: bool = False) -> Panel:
    """Open the panel in a folder; of its rows nothing is read.

    Args:
        folder: what `convert` made.
        verify: whether to compare the checksums of all arrays, which reads them; their sizes are always compared.

    Raises:
        UserError: for a folder that is none, is damaged or of a newer version.
    """
    index = read_index(folder)
    for name, part in index["arrays"].items():
        path = folder / f"{name}.npy"
        if not path.is_file() or path.stat().st_size != part["size"]:
            size = f"has {path.stat().st_size} bytes, not {part['size']}" if path.is_file() else "is not there"
            raise UserError(f"{folder} is damaged: {path.name} {size}; convert the table anew")
        if verify and sha256_of(path) != part["sha256"]:
            raise UserError(f"{folder} is damaged: the checksum of {path.name} is wrong; convert the table anew")

    def array(name: str) -> NDArray[Any] | None:
        return None if name not in index["arrays"] else _opened(folder / f"{name}.npy", mapped=name not in _SMALL)

    fields: dict[str, Any] = {name: _immutable(index[name]) for name in _PLAIN}
    time = times_of(_opened(folder / "time.npy", mapped=True), index["time_unit"], index["time_zone"])
    arrays: dict[str, Any] = {name: array(name) for name in (*_MAPPED, *_SMALL)}
    return Panel(time=time, **{**fields, "complete": frozenset(fields["complete"])}, **arrays)


def _immutable(plain: Any) -> Any:
    """Lists, which JSON has, as tuples."""
    if isinstance(plain, dict):
        return {name: _immutable(part) for name, part in plain.items()}
    return tuple(map(_immutable, plain)) if isinstance(plain, list) else plain


def weight_cells(folder: Path, column: str | None) -> NDArray[np.float64] | None:
    """`(rows, 1)` weights in a column of the converted table, NaN in filled gaps; None without a name."""
    if column is None:
        return None
    own = read_index(folder)["weight_name"]
    if own != column:
        has = "without one" if own is None else f"with {shown(own)}"
        raise UserError(
            f"{folder} was converted {has} as the column of weights, not {shown(column)}; convert the table anew with "
            f"--weight_column {shown(column)}"
        )
    return _opened(folder / f"{_WEIGHT}.npy", mapped=True)


def choose(panel: Panel, options: TableOptions, source: str) -> Panel:
    """Take the columns that are named; all where none are."""
    advice = "convert the table anew to change it"
    for what, name, own in (("id", options.id_column, panel.id_name), ("time", options.time_column, panel.time_name)):
        if name is not None and name != own:
            raise UserError(f"{source} was converted with the {what} column {shown(own)}, not {shown(name)}; {advice}")
    if options.frequency not in (None, panel.frequency):
        raise UserError(f"{source} has frequency {panel.frequency!r}, not {options.frequency!r}; {advice}")
    wanted = (
        ("target", options.target, panel.channels),
        ("past covariate", options.past_covariates, panel.past_names),
        ("future covariate", options.future_covariates, panel.future_names),
        ("static column", options.static, panel.static_names),
    )
    for role, names, own_names in wanted:
        for name in names or ():
            if name not in own_names:
                has = one_of(map(shown, own_names)) or "none"
                raise UserError(f"{source} was converted without the {role} {shown(name)}, with {has}; {advice}")
    return panel.select(
        channels=options.target or None,
        past=options.past_covariates or None,
        future=options.future_covariates or None,
        static=options.static or None,
    )


def read_index(folder: Path) -> dict[str, Any]:
    """Read ``panel.json``."""
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        number = index["format"]
    except FileNotFoundError as error:
        raise UserError(f"{folder} has no {INDEX}; convert a table with `datasets convert`") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / INDEX} is damaged; convert the table anew") from error
    if number != FORMAT:
        raise UserError(f"{folder} has format {number}; this version reads {FORMAT}: convert the table anew")
    return index


def write_index(
    folder: Path, panel: Panel, cells: NDArray[Any] | None, weight: str | None, source: dict[str, Any]
) -> None:
    """Finish the folder of a panel: its small arrays, and last of all ``panel.json``.

    Args:
        folder: with the arrays of rows.
        panel: of these.
        cells: the column of weights; None without one.
        weight: its name.
        source: of which table it is, and how that was read.
    """
    for name in _SMALL:
        if getattr(panel, name) is not None:
            np.save(folder / f"{name}.npy", getattr(panel, name))
    for part in (time_numbers(panel.time).base, cells, *(getattr(panel, name) for name in _MAPPED)):
        while part is not None and not isinstance(part, np.memmap):
            part = getattr(part, "base", None)
        if part is not None:
            part.flush()
    arrays = {
        path.stem: {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(folder.glob("*.npy"))
        if path.stem in ("time", _WEIGHT, *_MAPPED, *_SMALL)
    }
    facts = {name: getattr(panel, name) for name in _PLAIN}
    facts |= {"complete": sorted(panel.complete), "weight_name": weight, "source": source}
    facts |= {"time_unit": time_unit(panel.time), "time_zone": time_zone(panel.time)}
    write_text(folder / INDEX, json.dumps({"format": FORMAT, **facts, "arrays": arrays}, sort_keys=True))


def new_array(path: Path, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    """Make an array of zeros in a file, to be written to."""
    needed, free = int(np.prod(shape)) * np.dtype(kind).itemsize, shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(
            f"{path.parent} needs {needed / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there; name another "
            "folder"
        )
    if 0 in shape:
        np.save(path, np.zeros(shape, kind))
        return np.zeros(shape, kind)
    array = np.lib.format.open_memmap(path, "w+", kind, shape)
    if hasattr(os, "posix_fallocate"):  # a disk that is full must be known before it is written to
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
    return array


def _opened(path: Path, *, mapped: bool) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped and path.stat().st_size > 128 else None)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path.parent} is damaged: {path.name} holds no array; convert the table anew") from error
    return array
