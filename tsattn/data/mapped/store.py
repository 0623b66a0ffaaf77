"""A folder of memory maps and the index that says what they are.

``index.json`` is written last and replaced in one step, so that a build that was cut off leaves nothing that is taken
for whole. Its maps carry the name of their build: an index never names the files of another one, and a process that
has maps open keeps them while another process builds anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tsattn.data.files import sha256_of
from tsattn.data.mapped.source import FileState
from tsattn.data.windows import Series
from tsattn.errors import UserError

__all__ = ["MapFile", "MapIndex", "MapWriter", "MappedSeries", "build_lock", "check_space", "open_series", "read_index"]

logger = logging.getLogger("tsattn")

FORMAT = 2  # of the maps and the index; raised when either changes
_MAPPED = ("values", "time", "observed")  # grow with the rows; the other maps are small and are read


@dataclass(frozen=True)
class MapFile:
    """One tensor in a file of its own, row after row.

    Attributes:
        file: its name in the folder.
        dtype: numpy's name of its type.
        shape: its shape.
        sha256: its checksum.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def size(self) -> int:
        """Bytes that the file must have."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class MapIndex:
    """What a folder of maps holds.

    Attributes:
        source: the files that the maps were built from, and their checksums, as they were then.
        checksums: SHA-256 of each of them.
        options: what shaped the maps, as plain data.
        scaler: the fields of `Scaler` for all series, and a digest of those for each, see `scale_digest`.
        frequency: pandas frequency of all series.
        tz: their time zone, or None.
        ids: the id of each series.
        maps: the maps by name: the fields of `Series`; ``splits`` `(S, 3)` int64, the fields of `Split`; ``last``
            `(S,)` int64, the last time stamp of each series in nanoseconds (in UTC if there is a time zone).
    """

    source: tuple[FileState, ...]
    checksums: tuple[str, ...]
    options: dict[str, Any]
    scaler: dict[str, Any]
    frequency: str
    tz: str | None
    ids: tuple[Any, ...]
    maps: dict[str, MapFile]
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Replace the index of a folder, in one step."""
        body = json.dumps(asdict(self), sort_keys=True)
        text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "index": body})
        partial = folder / "index.json.partial"
        with partial.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / "index.json")

    def damage(self, folder: Path, *, verify: bool) -> str | None:
        """What is wrong with the maps, None if nothing is; their checksums are looked at if `verify`."""
        for part in self.maps.values():
            path = folder / part.file
            if not path.is_file():
                return f"{part.file} is not there"
            if path.stat().st_size != part.size:
                return f"{part.file} has {path.stat().st_size} bytes, not {part.size}"
            if verify and sha256_of(path) != part.sha256:
                return f"the checksum of {part.file} is wrong"
        return None

    def array(self, folder: Path, name: str) -> NDArray[Any]:
        """A small map, read into memory."""
        part = self.maps[name]
        return np.fromfile(folder / part.file, part.dtype).reshape(part.shape)


@dataclass(frozen=True)
class MappedSeries(Series):
    """Series whose rows lie in files; pages are read when they are touched, and shared by all processes.

    The tensors of rows must not be written to. Pickled, it is the name of the folder: a loader process opens the same
    maps again.

    Attributes:
        folder: where the maps lie.
        build: the name of the file of values, by which another process knows that these are the same maps.
    """

    folder: Path = field(kw_only=True)
    build: str = field(kw_only=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.folder, self.build)


def read_index(folder: Path) -> MapIndex | str:
    """The index of a folder, or why there is none."""
    try:
        text = json.loads((folder / "index.json").read_text())
        body = text["index"]
        if hashlib.sha256(body.encode()).hexdigest() != text["sha256"]:
            return "its index is damaged"
        content = json.loads(body)
        if content["format"] != FORMAT:
            return f"it has format {content['format']}, not {FORMAT}"
        return MapIndex(
            **{
                **content,
                "source": tuple(FileState(**state) for state in content["source"]),
                "checksums": tuple(content["checksums"]),
                "ids": tuple(content["ids"]),
                "maps": {name: MapFile(**{**m, "shape": tuple(m["shape"])}) for name, m in content["maps"].items()},
            }
        )
    except FileNotFoundError:
        return "there is none"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its index is damaged"


def open_series(folder: Path, index: MapIndex) -> MappedSeries:
    """The series in a folder; nothing of their rows is read.

    Raises:
        OSError: if a map is not there.
    """
    starts, mean, scale = (torch.from_numpy(index.array(folder, name)) for name in ("starts", "mean", "scale"))
    rows = {name: _map(folder, index.maps[name]) for name in _MAPPED if name in index.maps}
    return MappedSeries(
        values=rows["values"],
        observed=rows.get("observed"),
        time=rows["time"],
        starts=starts,
        mean=mean,
        scale=scale,
        folder=folder,
        build=index.maps["values"].file,
    )


def _reopen(folder: Path, build: str) -> MappedSeries:
    index = read_index(folder)
    if isinstance(index, str) or index.maps["values"].file != build:
        raise UserError(f"the map in {folder} was built anew while it was in use; start again")
    return open_series(folder, index)


def _map(folder: Path, part: MapFile) -> torch.Tensor:
    # shared and read-only: a private map that may be written to counts against the memory of the machine, and one
    # that is larger is refused
    with (folder / part.file).open("rb") as file:
        buffer = mmap.mmap(file.fileno(), part.size, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given (NumPy array|buffer) is not writable")
        return torch.from_numpy(np.frombuffer(buffer, part.dtype).reshape(part.shape))


class MapWriter:
    """Writes the maps of one build into a folder; those that were not kept are removed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.maps: dict[str, MapFile] = {}
        self._build = uuid.uuid4().hex

    @contextmanager
    def map(self, name: str, dtype: str, shape: tuple[int, ...]) -> Iterator[_Stream]:
        """A stream to write a map to, in pieces."""
        file = f"{self._build}-{name}.bin"
        with (self.folder / file).open("wb") as raw:
            stream = _Stream(raw, dtype)
            yield stream
            raw.flush()
            os.fsync(raw.fileno())
        part = MapFile(file, dtype, shape, stream.digest.hexdigest())
        assert (self.folder / file).stat().st_size == part.size, f"{name} has not the shape {shape}"
        self.maps[name] = part

    def put(self, name: str, array: NDArray[Any]) -> None:
        """A whole map."""
        with self.map(name, array.dtype.name, array.shape) as stream:
            stream.write(array)


class _Stream:
    def __init__(self, raw: IO[bytes], dtype: str) -> None:
        self._raw, self._dtype = raw, dtype
        self.digest = hashlib.sha256()

    def write(self, part: NDArray[Any]) -> None:
        data = np.ascontiguousarray(part, dtype=self._dtype).data.cast("B")
        self.digest.update(data)
        self._raw.write(data)


@contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """Make the folder and be the one process that builds there; the lock of a process that was killed is free.

    Files of builds that are not named by the index are removed, before and after.

    Raises:
        UserError: for a folder that cannot be written to, or a disk that is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _waiting_lock(folder):
            _sweep(folder)
            try:
                yield
            finally:
                _sweep(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"the map in {folder} cannot be written: {reason}; name another folder") from error


@contextmanager
def _waiting_lock(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting for another process that builds the map in %s", folder)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def check_space(folder: Path, needed: int) -> None:
    """Refuse to build what does not fit on the disk.

    Raises:
        UserError: naming both sizes.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"the map in {folder} needs {needed / 1e9:.2f} GB, but only {free / 1e9:.2f} GB are free there; name "
            "another folder"
        )


def _sweep(folder: Path) -> None:
    """Remove the maps that the index does not name."""
    index = read_index(folder)
    kept = set() if isinstance(index, str) else {part.file for part in index.maps.values()}
    for path in folder.iterdir():
        if path.name not in kept and re.fullmatch(r"[0-9a-f]{32}-[a-z]+\.bin", path.name):
            try:
                path.unlink()
            except OSError:  # where a file that is open cannot be removed, the next build does it
                logger.info("%s is still in use", path)
