"""From a table larger than memory to a folder that is opened as a panel, by the steps of the reader in memory.

The table is read part by part, twice, and memory holds a part and what is known of each series (see `assembly.py`). The
folder appears whole or not at all: a conversion that was killed begins anew.
"""

from __future__ import annotations

import json
import logging
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tsattn.data.assembly import Assembly
from tsattn.data.columns import series_numbers
from tsattn.data.csv_cells import whole_ids
from tsattn.data.files import check_file, sha256_of
from tsattn.data.mapped.panel_folder import (
    INDEX,
    choose,
    is_panel_folder,
    new_array,
    open_panel,
    read_index,
    weight_cells,
    write_index,
)
from tsattn.data.panel import Panel
from tsattn.data.roles import assigned, plain_frame
from tsattn.data.stamps import read_times, time_form
from tsattn.data.table_options import TableOptions
from tsattn.data.table_rows import Rows, Table, read_rows
from tsattn.data.tables import TABLE_KINDS, rows_of, schema_of, table_kind, table_parts
from tsattn.data.weights import RowWeights
from tsattn.errors import UserError, shown
from tsattn.saved_folders import put_folder

__all__ = ["TableSource", "convert", "converted_folder", "opened_panel"]

logger = logging.getLogger("tsattn")

_CELLS = 1 << 20  # cells in a part: 8 MiB as float64, a few times that at work
_SMALL = (pa.float32(), pa.float16(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16())
_MARK = "conversion"  # the file by which an unfinished folder is known
_ALIKE = RowWeights()


def converted_folder(table: Any) -> Path | None:
    """The folder that a table was converted to, if it is the path of one."""
    path = Path(table).expanduser() if isinstance(table, str | Path) else None
    return path if path is not None and is_panel_folder(path) else None


def opened_panel(
    path: Path,
    options: TableOptions,
    weights: RowWeights = _ALIKE,
    folder: Path | None = None,
    *,
    verify: bool = False,
) -> Panel:
    """Open the panel of a table, which is converted unless it was and is still the same.

    Args:
        path: a folder that a table was converted to; or a table, if there is a `folder`.
        options: how it is read; of a converted one, the columns that are wanted, all where none are named (of weights
            only one that is named).
        weights: how much series and stretches of time count in a training.
        folder: where a table is converted to.
        verify: see `open_panel`.

    Raises:
        UserError: for what cannot be opened or converted.
    """
    if folder is None:
        panel = choose(open_panel(path, verify=verify), options, str(path))
    else:
        panel = _current_panel(path, folder, options, verify)
    if options.weight_column is None and not weights:
        return panel
    return weights.on(panel, weight_cells(path if folder is None else folder, options.weight_column), str(path))


def _current_panel(path: Path, folder: Path, options: TableOptions, verify: bool) -> Panel:
    """The panel of a table that is converted unless it was, or is again where the folder is damaged."""
    if not _is_current(path, folder, options):
        source = TableSource(path, options)
        with _only_one(folder):
            if not _is_current(path, folder, options):  # another process may have done it while this one waited
                logger.info("converting %s to %s", path, folder)
                _replace(source, folder, overwrite=True)
    try:
        return open_panel(folder, verify=verify)
    except UserError as error:
        logger.info("%s", error)
    logger.info("converting %s to %s", path, folder)
    convert(path, folder, options, overwrite=True)
    return open_panel(folder)


def convert(path: Path, folder: Path, options: TableOptions, *, overwrite: bool = False) -> None:
    """Write a table as a folder of arrays, which `open_panel` opens.

    Rows may come in any order; gaps in time are filled as missing, as `panel_from_frame` does it. While it is written
    the folder is called ``NAME.partial``.

    Args:
        path: a CSV, Parquet or Arrow file, or a folder of such files.
        folder: what to write, 8 bytes a value (4 where the table has single precision) and 8 a row.
        options: how the table is read.
        overwrite: whether to replace a folder that was converted before.

    Raises:
        UserError: for a table that cannot be used, naming file and row; a folder that is there; a disk that is full; a
            table that changes while it is read.
    """
    if not folder.name:
        raise UserError(f"{folder} is no new folder for the arrays; name one, such as arrays")
    source = TableSource(path, options)
    with _only_one(folder):
        if folder.exists() and not overwrite:
            raise UserError(f"{folder} exists already; name another folder, or add --overwrite")
        _replace(source, folder, overwrite)


def _is_current(path: Path, folder: Path, options: TableOptions) -> bool:
    """Whether a folder holds a table as it is now, read in this way; the content of newer files is compared."""
    if not is_panel_folder(folder):
        return False
    try:
        saved = read_index(folder)["source"]
    except UserError:
        return False
    source = TableSource(path, options)
    if saved["options"] != json.loads(json.dumps(asdict(options))):
        logger.info("%s is read in another way than %s was", path, folder)
        return False
    then, now = [tuple(state) for state in saved["files"]], source.states()
    if then == now or ([one[:2] for one in then] == [one[:2] for one in now] and source.checksums() == saved["sha256"]):
        return True
    logger.info("%s has changed since it was converted to %s", path, folder)
    return False


def _replace(source: TableSource, folder: Path, overwrite: bool) -> None:
    """Write a folder beside the one that is there, and put it in its place."""
    refusal = f"{folder} is no folder that a table was converted to (it has no {INDEX}); it is not replaced"
    if folder.exists() and not is_panel_folder(folder):
        raise UserError(refusal)
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists():
        if not (partial / _MARK).is_file() and any(partial.iterdir()):
            raise UserError(f"{partial} is not of a conversion; it is not removed. Move it, or name another folder")
        logger.info("%s is of a conversion that was ended; starting anew", partial)
        shutil.rmtree(partial)
    partial.mkdir()
    try:
        (partial / _MARK).touch()
        _write(source, partial)
        put_folder(partial, folder, record=INDEX, refusal=refusal, overwrite=overwrite)
        (folder / _MARK).unlink()  # until then the folder was known by it
    except (UserError, OSError):
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write(source: TableSource, partial: Path) -> None:
    states, roles = source.states(), source.roles
    columns = {"values": roles.target, "past_covariates": roles.past, "future_covariates": roles.future}
    columns |= {"ahead": roles.future, "weight": () if roles.weight is None else (roles.weight,)}

    def room(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        is_single = name in columns and source.is_single(columns[name])
        kind = "int64" if name not in columns else "float32" if is_single else "float64"
        return new_array(partial / f"{name}.npy", shape, kind)

    panel, cells = Assembly(
        *(source.parts, roles, str(source.path), source.row_name),
        frequency=source.options.frequency,
        max_filled=source.options.max_filled,
        every_target=source.options.target is None,
        times=source.times,
        room=room,
        final_ids=source.final_ids,
    ).panel()
    checksums = source.checksums()
    if source.states() != states:
        raise UserError(f"{source.path} was changed while it was read; start again when it is complete")
    (partial / "source.npy").unlink()
    facts = {"files": states, "sha256": checksums, "options": asdict(source.options)}
    write_index(partial, panel, cells, roles.weight, facts)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Be the one process that writes this folder; the lock of one that was killed is free."""
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


class TableSource:
    """A CSV, Parquet or Arrow file, or a folder of such files, read part by part in the order of their names."""

    def __init__(self, path: Path, options: TableOptions) -> None:
        self.path, self.options = path, options
        self.files = _files(path, options)
        self._starts = [0]  # the first row of each file that was begun, counted over all
        head = next(table_parts(self.files[0], None, 1000, options), pd.DataFrame())
        if not len(head):
            raise UserError(f"{path} has no rows")
        _, self.roles = assigned(head, str(path), options.columns, options.weight_column)
        self._form: tuple[str | None] | None = None

    def states(self) -> list[tuple[str, int, int]]:
        """Name, size and last change, in nanoseconds since 1970-01-01, of each file."""
        try:
            return [(file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in self.files]
        except OSError as error:
            raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error

    def checksums(self) -> list[str]:
        """SHA-256 of each file; all of it is read."""
        return [sha256_of(file) for file in self.files]

    def is_single(self, columns: Sequence[str]) -> bool:
        """Whether all of some columns are of types that single precision holds without a loss."""
        schemas = [schema_of(file, self.options.text) for file in self.files]
        return all(
            schema is not None and name in schema.names and schema.field(name).type in _SMALL
            for schema in schemas
            for name in columns
        )

    def parts(self) -> Iterator[Rows]:
        """All rows."""
        for frame, where, start in self._frames([name for _, name in self.roles.named]):
            table = Table(frame, self.roles, str(self.path), self.options.text, self.options.frequency, where)
            yield read_rows(table, time=read_times(frame[self.roles.time], where, self._time_form()), start=start)

    def times(self) -> Iterator[Rows]:
        """Series and time of all rows, nothing else of them."""
        roles = self.roles
        for frame, where, start in self._frames([*([] if roles.id is None else [roles.id]), roles.time]):
            series, names = series_numbers(None if roles.id is None else frame[roles.id], len(frame), where)
            time, none = read_times(frame[roles.time], where, self._time_form()), np.empty((len(frame), 0))
            yield Rows(names, series, time, none, none, none, none, none, where, start=start)

    def _time_form(self) -> str | None:
        """How time is written, which is found from all of it."""
        if self._form is None:
            columns = ((frame[self.roles.time], where) for frame, where, _ in self._frames([self.roles.time]))
            self._form = (time_form(columns, self.options.text.date_format, self.options.frequency),)
        return self._form[0]

    def row_name(self, row: int) -> str:
        """What a row, counted over all files, is called in messages."""
        file = bisect_right(self._starts, row) - 1
        return rows_of(self.files[file], self.options.text)(row - self._starts[file])

    def final_ids(self, ids: list[Any]) -> list[Any]:
        """The ids, which are text in CSV files, as they are read in memory: whole numbers if all are plain ones."""
        is_csv = any(table_kind(file, self.options.text) == "csv" for file in self.files)
        return [*map(int, ids)] if is_csv and self.roles.id is not None and whole_ids(ids) else ids

    def _frames(self, names: list[str]) -> Iterator[tuple[pd.DataFrame, Callable[[int], str], int]]:
        """Parts of all files that have rows, what names their rows, and the number of their first one."""
        start, size = 0, max(1, _CELLS // len(names))
        for number, path in enumerate(self.files):
            in_file, name_row = 0, rows_of(path, self.options.text)
            self._starts[number:] = [start]
            for cells in table_parts(path, names, size, self.options):
                frame, _ = plain_frame(cells, str(path), self.options.id_column, self.roles.time)
                for name in names:
                    if name not in frame.columns:
                        raise UserError(f"{path} has no column {shown(name)}, which {self.files[0].name} has")

                def where(row: int, first: int = in_file, name_row: Callable[[int], str] = name_row) -> str:
                    return name_row(first + row)

                if len(frame):
                    yield frame[names], where, start
                start, in_file = start + len(frame), in_file + len(frame)


def _files(path: Path, options: TableOptions) -> list[Path]:
    kinds = ", ".join(TABLE_KINDS)
    if not path.exists():
        raise UserError(f"{path} is not there: no such file or folder")
    if not path.is_dir():
        if table_kind(path, options.text) is None:
            raise UserError(f"{path} cannot be converted; valid are {kinds} files and folders of them")
        check_file(path)
        return [path]
    files = sorted(file for file in path.iterdir() if table_kind(file, options.text) is not None and file.is_file())
    if not files:
        raise UserError(f"the folder {path} has no {kinds} file")
    return files
