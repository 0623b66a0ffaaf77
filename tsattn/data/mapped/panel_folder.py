"""A folder of arrays that is opened as a panel: ``panel.json`` and a ``.npy`` file for each array."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsattn.data.files import sha256_of
from tsattn.data.mapped.source import FileState
from tsattn.data.panel import Panel
from tsattn.data.table_options import TableOptions
from tsattn.data.time_numbers import times_of
from tsattn.errors import UserError, one_of, shown
from tsattn.saved_folders import restore_folder

__all__ = [
    "INDEX",
    "choose",
    "is_panel_folder",
    "new_array",
    "open_panel",
    "read_index",
    "space_needed",
    "weight_cells",
    "write_index",
]

INDEX = "panel.json"
FORMAT = 1  # of the folder; raised when it changes
_PLAIN = (
    *("ids", "channels", "frequency", "past_names", "future_names", "static_names", "static_categories"),
    *("is_wide", "id_name", "time_name", "complete"),
)
_MAPPED = ("values", "past_covariates", "future_covariates", "ahead")
_SMALL = ("starts", "ahead_starts", "static")
_WEIGHT = "weight"  # a column that is no part of the panel until it is named


def is_panel_folder(path: Path) -> bool:
    """Whether a path is a folder that a table was converted to; one whose replacement was killed is moved back."""
    restore_folder(path, INDEX)
    return (path / INDEX).is_file()


def open_panel(folder: Path, *, verify: bool = False) -> Panel:
    """The panel in a folder; of its rows nothing is read.

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

    fields = {name: index[name] for name in _PLAIN}
    fields["ids"] = tuple(tuple(name) if isinstance(name, list) else name for name in fields["ids"])
    for name in ("channels", "past_names", "future_names", "static_names"):
        fields[name] = tuple(fields[name])
    fields["static_categories"] = tuple(map(tuple, fields["static_categories"]))
    fields["complete"] = frozenset(fields["complete"])
    categories = index.get("covariate_categories", {})  # folders of earlier versions have none
    fields["covariate_categories"] = {name: tuple(known) for name, known in categories.items()}
    stamps = array("time")
    assert stamps is not None
    time = times_of(stamps, index["time_unit"], index["time_zone"])
    return Panel(time=time, **fields, **{name: array(name) for name in (*_MAPPED, *_SMALL)})  # type: ignore[arg-type]


def weight_cells(folder: Path, column: str | None) -> NDArray[np.float64] | None:
    """`(rows, 1)` weights in a column of the table that a folder was made of, NaN in filled gaps; None without a name.

    Raises:
        UserError: for a column that was not converted as one of weights.
    """
    if column is None:
        return None
    own = read_index(folder).get("weight_name")
    if own != column:
        has = "without one" if own is None else f"with {shown(own)}"
        raise UserError(
            f"{folder} was converted {has} as the column of weights, not {shown(column)}; convert the table anew with "
            f"--weight_column {shown(column)}"
        )
    return _opened(folder / f"{_WEIGHT}.npy", mapped=True)


def choose(panel: Panel, options: TableOptions, source: str) -> Panel:
    """The panel with the columns that are named; all of it where none are.

    Raises:
        UserError: for a column that it has not got in that role, or another frequency.
    """
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
    """What ``panel.json`` says.

    Raises:
        UserError: if it is not there, damaged or of a newer version.
    """
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
    folder: Path, facts: dict[str, Any], states: list[FileState], checksums: list[str], options: TableOptions
) -> None:
    """Write ``panel.json`` beside the arrays.

    Args:
        folder: with the arrays.
        facts: the fields of the panel that are no arrays, and unit and zone of the time stamps.
        states: of the files of the table.
        checksums: of these.
        options: how it was read.
    """
    arrays = {
        path.stem: {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(folder.glob("*.npy"))
        if path.stem in ("time", _WEIGHT, *_MAPPED, *_SMALL)
    }
    source = {"files": [asdict(state) for state in states], "sha256": checksums, "options": asdict(options)}
    partial = folder / f"{INDEX}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **facts, "arrays": arrays, "source": source}, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / INDEX)


def new_array(path: Path, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array in a file, to be written to; the one that is there, if it is of this shape.

    Raises:
        OSError: if the disk is full.
    """
    if path.exists():
        try:
            old = _opened(path, mapped=True, mode="r+")
            if old.shape == shape and old.dtype == dtype:
                _allocate(path)
                return old
        except (ValueError, OSError):
            pass
        path.unlink()
    if 0 in shape:
        empty = np.zeros(shape, dtype)
        np.save(path, empty)
        return empty
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    _allocate(path)
    return array


def _allocate(path: Path) -> None:
    """Have the disk give a file all of its room: one that is full must be known before it is written to."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise


def space_needed(folder: Path, shapes: dict[str, tuple[tuple[int, ...], str]]) -> None:
    """Refuse to write what does not fit on the disk.

    Raises:
        UserError: naming both sizes.
    """
    there = sum(path.stat().st_size for path in folder.glob("*.npy"))
    needed = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes.values()) - there
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder} needs {needed / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there; name another folder"
        )


def _opened(path: Path, *, mapped: bool, mode: Any = "r") -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode=mode if mapped and path.stat().st_size > 128 else None)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path.parent} is damaged: {path.name} holds no array; convert the table anew") from error
    return array
