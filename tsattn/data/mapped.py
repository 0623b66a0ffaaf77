"""Convert tables larger than memory once to a folder of arrays, and open it as a panel whose rows stay in files.

The table is read twice in parts (see `assembly.py`), so memory holds one part at a time. The folder has ``panel.json``
and a ``.npy`` file for each array. It gets its name when it is complete.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tsattn.data.assembly import Assembly
from tsattn.data.columns import category_text, series_numbers
from tsattn.data.panel import Panel
from tsattn.data.stamps import read_times, time_form, time_unit, time_zone, times_of
from tsattn.data.table_options import SUFFIXES, RowWeights, TableOptions
from tsattn.data.table_rows import Rows, Table, assigned, plain_frame, read_rows
from tsattn.data.tables import rows_of, schema_of, table_parts, whole_ids
from tsattn.errors import UserError, one_of, shown
from tsattn.saved_folders import put_folder, restore_folder, sha256, write_text

logger = logging.getLogger("tsattn")

INDEX = "panel.json"
FORMAT = 4  # version of the folder's format
_ROWS = ("values", "past_covariates", "future_covariates", "ahead")
_OF_SERIES = ("starts", "ahead_starts", "static")
_NOT_PLAIN = {*_ROWS, *_OF_SERIES, "time", "weights", "fills_ahead"}
_PLAIN = tuple(field.name for field in fields(Panel) if field.name not in _NOT_PLAIN)
_WEIGHT = "weight"  # array of the column of weights, opened only if the user names the column
_CELLS = 1 << 20  # cells in a part: 8 MiB as float64, and a few times as much while reading
_SMALL = (pa.float32(), pa.float16(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16())
_MARK = "conversion"  # file that marks an unfinished folder
_ALIKE = RowWeights()


def is_panel_folder(path: Path) -> bool:
    """Whether a path is a converted table. A folder whose replacement was killed is moved back first."""
    restore_folder(path, INDEX)
    return (path / INDEX).is_file()


def converted_folder(table: Any) -> Path | None:
    """Return the path of a converted table; None for any other table."""
    path = Path(table).expanduser() if isinstance(table, str | Path) else None
    return path if path is not None and is_panel_folder(path) else None


def opened_panel(
    path: Path, options: TableOptions, weights: RowWeights = _ALIKE, folder: Path | None = None, *, verify: bool = False
) -> Panel:
    """Open the named columns of a converted table, or convert the table `path` first if `folder` is out of date."""
    if folder is None:
        panel, folder = _chosen(open_panel(path, verify=verify), options, str(path)), path
    else:
        source = TableSource(path, options)
        _make_current(source, folder)
        try:
            panel = open_panel(folder, verify=verify)
        except UserError as error:
            logger.info("%s", error)
            _make_current(source, folder, is_damaged=True)
            panel = open_panel(folder, verify=verify)
    column = options.weight_column
    if column is None:
        return weights.on(panel, None, str(path)) if weights else panel
    own, asked = _index(folder)["weight_name"], shown(column)
    if own != column:
        has = f"without the weight column {asked}"
        has = has if own is None else f"with the weight column {shown(own)}, not {asked}"
        raise UserError(f"{folder} was converted {has}; convert the table again with --weight_column {asked}")
    return weights.on(panel, _opened(folder / f"{_WEIGHT}.npy"), str(path))


def _make_current(source: TableSource, folder: Path, *, is_damaged: bool = False) -> None:
    if is_damaged or not _is_current(source, folder):
        with _only_one(folder):
            # another process may have converted it during the wait for the lock
            if is_damaged or not _is_current(source, folder):
                logger.info("converting %s to %s", source.path, folder)
                _replace(source, folder, overwrite=True)


def _is_current(source: TableSource, folder: Path) -> bool:
    restore_folder(folder, INDEX)
    try:
        saved = _index(folder)["source"]
    except UserError:  # also if there is no folder
        return False
    if saved["options"] != json.loads(json.dumps(asdict(source.options))):
        logger.info("%s: the options have changed since %s was converted", source.path, folder)
        return False
    then, now = [tuple(state) for state in saved["files"]], source.states()
    if then == now or ([one[:2] for one in then] == [one[:2] for one in now] and source.sums() == saved["sha256"]):
        return True
    logger.info("%s has changed since it was converted to %s", source.path, folder)
    return False


def convert(path: Path, folder: Path, options: TableOptions, *, overwrite: bool = False) -> None:
    """Convert a table to a folder; UserError if it is invalid or changes, the disk is full, or the folder exists."""
    if not folder.name:
        raise UserError(f"{folder} is not a folder to write to; name a new folder, such as arrays")
    source = TableSource(path, options)
    with _only_one(folder):
        if folder.exists() and not overwrite:
            raise UserError(f"{folder} exists already; name another folder, or add --overwrite")
        _replace(source, folder, overwrite)


def _replace(source: TableSource, folder: Path, overwrite: bool) -> None:
    refusal = f"{folder} is not replaced, because it is no converted table (it has no {INDEX}); name another folder"
    if folder.exists() and not is_panel_folder(folder):
        raise UserError(refusal)
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists():
        if not (partial / _MARK).is_file() and any(partial.iterdir()):
            raise UserError(f"{partial} is in the way, and no conversion made it; move it, or name another folder")
        logger.info("%s was left by an interrupted conversion; starting again", partial)
        shutil.rmtree(partial)
    partial.mkdir()
    try:
        (partial / _MARK).touch()
        _write(source, partial)
        put_folder(partial, folder, record=INDEX, refusal=refusal, overwrite=overwrite)
        (folder / _MARK).unlink()  # now the folder is complete
    except (UserError, OSError):
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f"{folder.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("waiting for another process that writes %s", folder)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()
            Path(lock.lock_file).unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{folder} cannot be written: {reason}; name another folder") from error


def _write(source: TableSource, folder: Path) -> None:
    states, roles = source.states(), source.roles
    columns = {"values": roles.target, "past_covariates": roles.past, "future_covariates": roles.future}
    columns |= {"ahead": roles.future, _WEIGHT: () if roles.weight is None else (roles.weight,)}
    made: dict[str, NDArray[Any]] = {}

    def room(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        is_single = name in columns and source.is_single(columns[name])
        kind = "int64" if name not in columns else "float32" if is_single else "float64"
        made[name] = _new_array(folder / f"{name}.npy", shape, kind)
        return made[name]

    options = source.options
    panel, _ = Assembly(
        *(source.parts, roles, str(source.path), source.row_name),
        frequency=options.frequency,
        max_filled=options.max_filled,
        every_target=options.target is None,
        times=source.times,
        room=room,
        final_ids=source.final_ids,
    ).panel()
    sums = source.sums()
    if source.states() != states:
        raise UserError(f"{source.path} was changed while it was read; start again when it is complete")
    (folder / "source.npy").unlink()
    for name in _OF_SERIES:
        if getattr(panel, name) is not None:
            np.save(folder / f"{name}.npy", getattr(panel, name))
    for array in made.values():
        if isinstance(array, np.memmap):
            array.flush()
    files = sorted(folder.glob("*.npy"))
    facts = {name: getattr(panel, name) for name in _PLAIN}
    facts |= {"time_unit": time_unit(panel.time), "time_zone": time_zone(panel.time), "weight_name": roles.weight}
    facts["source"] = {"files": states, "sha256": sums, "options": asdict(options)}
    facts["arrays"] = {file.stem: {"size": file.stat().st_size, "sha256": sha256(file)} for file in files}
    write_text(folder / INDEX, json.dumps({"format": FORMAT, **facts}, sort_keys=True))


def _new_array(path: Path, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    needed, free = math.prod(shape) * np.dtype(kind).itemsize, shutil.disk_usage(path.parent).free
    if needed > free:
        sizes = f"{needed / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there"
        raise UserError(f"{path.parent} needs {sizes}; name another folder")
    if 0 in shape:
        np.save(path, np.zeros(shape, kind))
        return np.zeros(shape, kind)
    array = np.lib.format.open_memmap(path, "w+", kind, shape)
    if hasattr(os, "posix_fallocate"):  # a full disk must raise here, as writing to a mapped array would crash
        with path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
    return array


def open_panel(folder: Path, *, verify: bool = False) -> Panel:
    """Open the panel in a folder that `convert` made, if complete; `verify` compares checksums of all arrays."""
    index = _index(folder)
    for name, part in index["arrays"].items():
        path = folder / f"{name}.npy"
        if not path.is_file() or path.stat().st_size != part["size"]:
            raise UserError(f"{folder} is damaged: {path.name} is cut short or missing; convert the table again")
        if verify and sha256(path) != part["sha256"]:
            raise UserError(f"{folder} is damaged: the checksum of {path.name} is wrong; convert the table again")
    arrays: Any = {one: _opened(folder / f"{one}.npy", mapped=one not in _OF_SERIES) for one in index["arrays"]}
    arrays["time"] = times_of(arrays["time"], index["time_unit"], index["time_zone"])
    arrays.pop(_WEIGHT, None)
    return Panel(**{name: _immutable(index[name]) for name in _PLAIN}, **arrays)


def _immutable(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _immutable(part) for name, part in plain.items()}
    return tuple(map(_immutable, plain)) if isinstance(plain, list) else plain


def _opened(path: Path, *, mapped: bool = True) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped and path.stat().st_size > 128 else None)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path.parent} is damaged: {path.name} holds no array; convert the table again") from error
    return array


def _index(folder: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        number = index["format"]
    except FileNotFoundError as error:
        raise UserError(f"{folder} has no {INDEX}; convert a table with `datasets convert`") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / INDEX} is damaged; convert the table again") from error
    if number != FORMAT:
        raise UserError(f"{folder} has format {number}; this version reads {FORMAT}: convert the table again")
    return index


def _chosen(panel: Panel, options: TableOptions, source: str) -> Panel:
    advice = "convert the table again to change this"
    for what, name, own in (("id", options.id_column, panel.id_name), ("time", options.time_column, panel.time_name)):
        if name not in (None, own):
            raise UserError(f"{source} was converted with the {what} column {shown(own)}, not {shown(name)}; {advice}")
    if options.frequency not in (None, panel.frequency):
        raise UserError(f"{source} has frequency {panel.frequency!r}, not {options.frequency!r}; {advice}")
    wanted: dict[str, tuple[str, Any, tuple[str, ...]]] = {
        "channels": ("target", options.target, panel.channels),
        "past": ("past covariate", options.past_covariates, panel.past_names),
        "future": ("future covariate", options.future_covariates, panel.future_names),
        "static": ("static column", options.static, panel.static_names),
    }
    for role, names, own_names in wanted.values():
        if lacking := [name for name in names or () if name not in own_names]:
            says = f"without the {role} {shown(lacking[0])}; it has {one_of(map(shown, own_names)) or 'none'}"
            raise UserError(f"{source} was converted {says}; {advice}")
    return panel.select(**{part: names or None for part, (_, names, _) in wanted.items()})


class TableSource:
    """A CSV, Parquet or Arrow file, or a folder of files, read in parts in the order of file names."""

    def __init__(self, path: Path, options: TableOptions) -> None:
        self.path, self.options = path, options
        if not path.exists():
            raise UserError(f"{path} does not exist")
        kinds = one_of(SUFFIXES)
        if not path.is_dir() and options.kind_of(path) is None:
            raise UserError(f"{path} cannot be converted; valid are {kinds} files and folders of them")
        self.files = sorted(path.iterdir()) if path.is_dir() else [path]
        self.files = [file for file in self.files if options.kind_of(file) is not None and file.is_file()]
        if not self.files:
            raise UserError(f"the folder {path} has no {kinds} file")
        self._starts = [0]  # number of the first row of each file that was opened, over all files
        self._has_csv = any(options.kind_of(file) == "csv" for file in self.files)
        parts = ((file.name, part) for file in self.files for part in table_parts(file, None, 1000, options))
        self._first, head = next((one for one in parts if len(one[1])), ("", pd.DataFrame()))
        if not self._first:
            raise UserError(f"{path} has no rows")
        _, self.roles = assigned(head, str(path), options)
        self._form: tuple[str | None] | None = None

    def states(self) -> list[tuple[str, int, int]]:
        """List name, size and last change, in nanoseconds since 1970-01-01, of each file."""
        try:
            return [(file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in self.files]
        except OSError as error:
            raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error

    def sums(self) -> list[str]:
        """Compute the SHA-256 of each file, which reads the whole file."""
        return [sha256(file) for file in self.files]

    def is_single(self, columns: Sequence[str]) -> bool:
        """Whether float32 holds every value of these columns exactly."""
        schemas = [schema_of(file, self.options) or pa.schema([]) for file in self.files]
        return all(name in schema.names and schema.field(name).type in _SMALL for schema in schemas for name in columns)

    def parts(self) -> Iterator[Rows]:
        """Read all rows, part by part."""
        for frame, where, start in self._frames([name for _, name in self.roles.named]):
            table = Table(frame, self.roles, str(self.path), self.options, self.options.frequency, where)
            yield read_rows(table, time=self._read_times(frame, where), start=start)

    def times(self) -> Iterator[Rows]:
        """Read only series and time of all rows, part by part."""
        roles = self.roles
        for frame, where, start in self._frames([*([] if roles.id is None else [roles.id]), roles.time]):
            series, names = series_numbers(None if roles.id is None else frame[roles.id], len(frame), where)
            none = np.empty((len(frame), 0))
            yield Rows(names, series, self._read_times(frame, where), none, none, none, none, none, where, start=start)

    def row_name(self, row: int) -> str:
        """Name a row for messages; `row` counts over all files."""
        file = bisect_right(self._starts, row) - 1
        return rows_of(self.files[file], self.options)(row - self._starts[file])

    def final_ids(self, ids: list[Any]) -> list[Any]:
        """Convert ids of CSV files, which are read as text, to integers if all are plain whole numbers."""
        return [*map(int, ids)] if self._has_csv and self.roles.id is not None and whole_ids(ids) else ids

    def _read_times(self, frame: pd.DataFrame, where: Callable[[int], str]) -> Any:
        if self._form is None:
            columns = ((part[self.roles.time], name_row) for part, name_row, _ in self._frames([self.roles.time]))
            self._form = (time_form(columns, self.options.date_format, self.options.frequency),)
        return read_times(frame[self.roles.time], where, self._form[0])

    def _frames(self, names: list[str]) -> Iterator[tuple[pd.DataFrame, Callable[[int], str], int]]:
        start, size = 0, max(1, _CELLS // len(names))
        for number, path in enumerate(self.files):
            in_file, name_row = 0, rows_of(path, self.options)
            self._starts[number:] = [start]
            for cells in table_parts(path, names, size, self.options):
                frame, _ = plain_frame(cells, str(path), self.options.id_column, self.roles.time)
                if self._has_csv and self.roles.id in frame and self.options.kind_of(path) != "csv":
                    texts = frame[self.roles.id].map(category_text, na_action="ignore")  # as in CSV files beside it
                    frame = frame.assign(**{str(self.roles.id): texts})
                for name in names:
                    if name not in frame.columns:
                        raise UserError(f"{path} has no column {shown(name)}, which {self._first} has")

                def where(row: int, first: int = in_file, name_row: Callable[[int], str] = name_row) -> str:
                    return name_row(first + row)

                if len(frame):
                    yield frame[names], where, start
                start, in_file = start + len(frame), in_file + len(frame)
