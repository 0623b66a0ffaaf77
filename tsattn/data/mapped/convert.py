"""From a table larger than memory to a folder that is opened as a panel: counted, laid out, written row by row.

Memory holds a batch of rows and what is known of each series. A conversion that was killed goes on where it was, and
the folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tsattn.data.frequency import Times
from tsattn.data.grid_layout import lay_out
from tsattn.data.mapped.counting import Counts
from tsattn.data.mapped.layout import ChunkReader, Layout
from tsattn.data.mapped.panel_folder import INDEX, is_panel_folder, read_index, write_index
from tsattn.data.mapped.scatter import Places
from tsattn.data.mapped.source import FileState, TableSource
from tsattn.data.mapped.time_column import TimeColumn
from tsattn.data.panel import Panel
from tsattn.data.quiet import quiet
from tsattn.data.roles import NO_NAME, is_nameless
from tsattn.data.table_options import TableOptions
from tsattn.data.time_numbers import time_zone
from tsattn.errors import UserError, number_of, shown
from tsattn.saved_folders import put_folder

__all__ = ["convert", "keep_current"]

logger = logging.getLogger("tsattn")

_EVERY = 20.0  # seconds of work that a kill may cost
_ROWS = 1 << 20  # rows of the arrays that are looked at together


def convert(path: Path, folder: Path, options: TableOptions, *, overwrite: bool = False) -> None:
    """Write a table as a folder of arrays, which `open_panel` opens.

    Rows may come in any order; gaps in time are filled as missing, as `panel_from_frame` does it. While it is written
    the folder is called ``NAME.partial``; run again after it was killed, it goes on from there, unless the table has
    changed.

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


def keep_current(path: Path, folder: Path, options: TableOptions) -> None:
    """Convert a table, unless the folder holds it as it is now.

    Args:
        path: as for `convert`.
        folder: as for `convert`; what another table was converted to is replaced.
        options: as for `convert`.

    Raises:
        UserError: as `convert`.
    """
    if _is_current(path, folder, options):
        return
    source = TableSource(path, options)
    with _only_one(folder):
        if not _is_current(path, folder, options):  # another process may have done it while this one waited
            logger.info("converting %s to %s", path, folder)
            _replace(source, folder, overwrite=True)


def _is_current(path: Path, folder: Path, options: TableOptions) -> bool:
    """Whether a folder holds a table as it is now, read in this way; of files that are newer the content is compared.

    Raises:
        UserError: for a table that is not there.
    """
    if not is_panel_folder(folder):
        return False
    try:
        saved = read_index(folder)["source"]
    except UserError:
        return False
    source = TableSource(path, options)
    known, asked = (json.loads(json.dumps(asdict(one))) for one in (TableOptions(), options))
    if {**known, **saved["options"]} != asked:  # folders of earlier versions do not name later options
        logger.info("%s is read in another way than %s was", path, folder)
        return False
    then, now = [FileState(**state) for state in saved["files"]], source.states()
    if then == now:
        return True
    same = [(state.name, state.size) for state in then] == [(state.name, state.size) for state in now]
    if same and source.checksums() == saved["sha256"]:
        return True
    logger.info("%s has changed since it was converted to %s", path, folder)
    return False


def _replace(source: TableSource, folder: Path, overwrite: bool) -> None:
    """Write a folder beside the one that is there, and put it in its place."""
    refusal = f"{folder} is no folder that a table was converted to (it has no {INDEX}); it is not replaced"
    if folder.exists() and not is_panel_folder(folder):
        raise UserError(refusal)
    partial = folder.with_name(f"{folder.name}.partial")
    states = source.states()
    _go_on(partial, _key(source.path, states, source.options))
    if not is_panel_folder(partial):
        try:
            _write(source, partial, states)
        except (UserError, OSError):
            shutil.rmtree(partial, ignore_errors=True)  # nothing that can be gone on with
            raise
    for name in ("source.npy", "counts.npz", "written.json"):
        (partial / name).unlink(missing_ok=True)
    put_folder(partial, folder, record=INDEX, refusal=refusal, overwrite=overwrite)
    (folder / "key").unlink(missing_ok=True)  # until then the folder was known by it


def _write(source: TableSource, partial: Path, states: list[FileState]) -> None:
    reader = ChunkReader(source, TimeColumn(source))
    seen = _count(reader, partial)
    layout = reader.layout(seen)
    roles = layout.roles
    columns = {"values": roles.target, "past_covariates": roles.past, "future_covariates": roles.future}
    columns["weight"] = () if roles.weight is None else (roles.weight,)
    places = Places(partial, layout, {name: source.is_single(names) for name, names in columns.items()})
    _scatter(reader, seen, places, partial)
    total = len(places.arrays["source"])
    for first in range(0, total, _ROWS):
        places.fill(first, min(first + _ROWS, total))
    _check_rhythms(reader, seen, places)
    complete = _report(source, seen, places)
    checksums = source.checksums()
    if source.states() != states:
        raise UserError(f"{source.path} was changed while it was read; start again when it is complete")
    _finish(source, seen, places, partial, complete, states, checksums)


def _count(reader: ChunkReader, partial: Path) -> Counts:
    """The counts of all rows; those of the rows before the last save are not read again."""
    seen = Counts(reader.source.roles)
    is_old = seen.load(partial)
    if is_old:
        logger.info("%s: going on after %s", reader.source.path, number_of(seen.rows, "row"))
    last = clock.monotonic()
    for chunk in reader.source.chunks(file=seen.place[0], done=seen.place[1], start=seen.rows):
        seen.add(chunk, reader.time.read(chunk))
        if clock.monotonic() - last > _EVERY:
            seen.save(partial)
            last = clock.monotonic()
    seen.save(partial)
    return seen


def _scatter(reader: ChunkReader, seen: Counts, places: Places, partial: Path) -> None:
    """Write all rows; those before the last save are there already."""
    state = partial / "written.json"
    file, done, start = json.loads(state.read_text()) if state.exists() else (0, 0, 0)
    last = clock.monotonic()
    for chunk in reader.source.chunks(file=file, done=done, start=start):
        places.write(reader, seen, chunk)
        if clock.monotonic() - last > _EVERY:
            places.flush()
            new = partial / "written.json.partial"
            new.write_text(json.dumps([chunk.file, chunk.end, chunk.start + len(chunk.frame)]))
            new.replace(state)
            last = clock.monotonic()


def _check_rhythms(reader: ChunkReader, seen: Counts, places: Places) -> None:
    """Refuse series with gaps whose time stamps are of another frequency, as the reader in memory does."""
    layout, source = places.layout, places.arrays["source"]
    whole = layout.kept + layout.ahead
    rows = seen.arrays["rows"][layout.order]
    with_gaps = np.flatnonzero(rows < whole)
    if layout.is_given:
        if len(with_gaps) < len(whole) and (rows[rows == whole] > 2).any():
            return
        # a frequency that is given is wrong if no series has two rows that follow each other
        for number in with_gaps.tolist():
            is_there = _present(places, number)
            if rows[number] > 2 and (is_there[1:] & is_there[:-1]).any():
                return
        reader.explain(seen, [int(layout.order[int(rows.argmax())])], layout.frequency, "no two rows follow each other")
        return
    first = 0
    while first < len(with_gaps):
        sizes = np.cumsum(whole[with_gaps[first:]])
        group = with_gaps[first : first + max(1, int(np.searchsorted(sizes, _ROWS)))]
        first += len(group)
        steps = [np.flatnonzero(_present(places, one)) for one in group.tolist()]
        owner = np.arange(len(group)).repeat([len(one) for one in steps])
        series, step = group[owner], np.concatenate(steps)
        is_ahead = step >= layout.kept[series]
        place = np.where(
            is_ahead,
            layout.starts[-1] + layout.ahead_starts[series] + step - layout.kept[series],
            layout.starts[series] + step,
        )
        _lay_out(reader, seen, layout, group, owner, layout.times(series, step), source[place] - 1)


def _lay_out(reader: ChunkReader, seen: Counts, layout: Layout, group: Any, owner: Any, time: Times, rows: Any) -> None:
    with quiet():
        lay_out(
            *(time, owner, tuple(layout.ids[number] for number in group), layout.frequency),
            lambda row: reader.source.row_name(*seen.name_row(int(rows[row]))),
            str(reader.source.path),
            is_wide=layout.roles.is_wide,
            max_filled=reader.source.options.max_filled,
            is_inferred=True,
        )


def _present(places: Places, number: int) -> NDArray[np.bool_]:
    """Whether a row of the table came to each step of the grid of a series."""
    layout, source = places.layout, places.arrays["source"]
    start, ahead = int(layout.starts[number]), int(layout.starts[-1] + layout.ahead_starts[number])
    kept, more = source[start : start + layout.kept[number]], source[ahead : ahead + layout.ahead[number]]
    is_there: NDArray[np.bool_] = np.concatenate([kept, more]) != 0
    return is_there


def _report(source: TableSource, seen: Counts, places: Places) -> list[str]:
    """Log what was done to the table, as the reader in memory does; the arrays in which nothing is missing."""
    layout, arrays, name = places.layout, places.arrays, str(source.path)
    rows, total = int(layout.starts[-1]), len(arrays["source"])
    late = seen.arrays["late"][layout.order]
    if late.any():
        logger.warning("%s: sorted the rows of %d of %d series by time", name, late.sum(), len(late))
    given = sum(int((arrays["source"][at : min(at + _ROWS, rows)] != 0).sum()) for at in range(0, rows, _ROWS))
    own = seen.arrays["rows"][layout.order]
    whole = layout.kept + layout.ahead
    if missing := int((whole - own).sum()):
        logger.warning(
            "%s: filled %s in %d of %d series",
            *(name, number_of(missing, "missing time stamp"), (whole > own).sum(), len(own)),
        )
    if total > rows:
        ahead = number_of(total - rows, "row")
        logger.info("%s: read %s after the last targets as the future of the covariates", name, ahead)
    if places.drops_past:
        logger.warning("%s: values of the past covariates after the last targets are not used", name)
    complete: list[str] = []
    for part in ("values", "past_covariates", "future_covariates"):
        if part not in arrays:
            continue
        array = arrays[part]
        known = sum((~np.isnan(array[at : at + _ROWS])).sum(axis=0) for at in range(0, rows, _ROWS))
        if (known == rows).all():
            complete.append(part)
        lacking = given - known
        if part == "values" and lacking.sum():
            logger.warning(
                "%s: %d of %d values are missing; they are masked, never scored",
                *(name, lacking.sum(), given * array.shape[1]),
            )
        elif part != "values":
            names = layout.roles.past if part == "past_covariates" else layout.roles.future
            for column, count in zip(names, lacking.tolist(), strict=True):
                if count:
                    logger.warning(
                        "%s: covariate %s: %d of %d values are missing; a model that needs one sees the last known",
                        *(name, shown(column), count, given),
                    )
    return complete


def _finish(
    source: TableSource,
    seen: Counts,
    places: Places,
    partial: Path,
    complete: list[str],
    states: list[FileState],
    checksums: list[str],
) -> None:
    layout, roles = places.layout, places.layout.roles
    places.flush()
    places.arrays.clear()
    np.save(partial / "starts.npy", layout.starts)
    np.save(partial / "ahead_starts.npy", layout.ahead_starts)
    if roles.static:
        np.save(partial / "static.npy", layout.static)
    facts = {
        "ids": layout.ids,
        "channels": roles.target,
        "frequency": layout.frequency,
        "past_names": roles.past,
        "future_names": roles.future,
        "static_names": roles.static,
        "static_categories": layout.categories,
        "covariate_categories": seen.covariate_categories,
        "weight_name": roles.weight,
        "is_wide": roles.is_wide,
        "id_name": Panel.id_name if roles.id is None else roles.id,
        "time_name": NO_NAME if is_nameless(roles.time) or roles.time.startswith("__index_level_") else roles.time,
        "complete": complete,
        "time_unit": layout.unit,
        "time_zone": time_zone(layout.times(np.zeros(1, np.int64), np.zeros(1, np.int64))),
    }
    write_index(partial, facts, states, checksums, source.options)


def _key(path: Path, states: list[FileState], options: TableOptions) -> str:
    """What a conversion is of: it can only be gone on with where that is the same."""
    plain = [str(path.resolve()), [asdict(state) for state in states], asdict(options)]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def _go_on(partial: Path, key: str) -> None:
    """Keep what was written before, if it is of the same table as it is now; else begin."""
    if partial.exists():
        note = partial / "key"
        if not note.is_file() and any(partial.iterdir()):
            raise UserError(f"{partial} is not of a conversion; it is not removed. Move it, or name another folder")
        if note.is_file() and note.read_text() == key:
            return
        logger.info("%s is of another table, or of one that has changed since; starting anew", partial)
        shutil.rmtree(partial)
    partial.mkdir()
    (partial / "key").write_text(key)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Be the one process that writes this folder; the lock of one that was killed is free.

    Raises:
        UserError: for a folder that cannot be written.
    """
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
