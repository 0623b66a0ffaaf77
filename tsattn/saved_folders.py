"""Files and folders that are whole or not there, whenever the process that writes them ends; and their checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from tsattn.errors import UserError, one_line


@contextlib.contextmanager
def atomic_write(path: Path, *, alone: bool = False) -> Iterator[IO[bytes]]:
    """Open a file next to `path`, moved there once whole; a process `alone` replaces what a killed one left."""
    partial = path.with_name(f"{path.name}.partial" if alone else f"{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):  # on a read-only disk it is not there
            partial.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[IO[bytes]], Any], *, overwrite: bool = True) -> None:
    """Write a file, all or nothing; a file that another process has made by now stays without `overwrite`."""
    with unwritten_named(path), atomic_write(path) as file:
        write(file)
        if not overwrite and path.exists():
            raise UserError(f"{path} was made by another process meanwhile; name another file, or add --overwrite")


def write_text(path: Path, text: str) -> None:
    """Write a file of text, all or nothing."""
    write_whole(path, lambda file: file.write(text.encode()))


@contextlib.contextmanager
def unwritten_named(path: Path) -> Iterator[None]:
    """Say in a sentence what cannot be written, and why."""
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or one_line(error, 200) or type(error).__name__
        raise UserError(f"{path} cannot be written: {reason}") from error


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


def restore_folder(folder: Path, record: str) -> None:
    """Move an old folder back if the process that replaced it was killed."""
    with contextlib.suppress(OSError):  # a reader may lack the right to move it: it then finds nothing
        if not folder.exists() and (_aside(folder) / record).exists():
            _aside(folder).rename(folder)


def put_folder(new: Path, folder: Path, *, record: str, refusal: str, overwrite: bool) -> None:
    """Move a folder to its place on the same disk; `overwrite` replaces only a folder that has the file `record`."""
    restore_folder(folder, record)
    aside, replaces = _aside(folder), overwrite and folder.exists()
    if replaces:
        if (aside / record).exists():  # left by a process that was killed when the new folder was there
            shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    try:
        if replaces and not (aside / record).exists():
            raise UserError(refusal)
        if folder.exists():  # a folder without files would make way
            raise UserError(f"{folder} was made by another process meanwhile and is not overwritten; name another")
        new.rename(folder)
    except BaseException:
        if replaces:
            aside.rename(folder)
        raise
    if replaces:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def whole_folder(folder: Path, *, record: str, what: str, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder, moved to its place once written; `what` names it in messages: ``a saved model``."""
    refusal = f"{folder} is not the folder of {what} and is not overwritten; name another folder"
    restore_folder(folder, record)
    if folder.exists() and not overwrite:
        raise UserError(f"{folder} exists already; name another folder, or give overwrite=True")
    if folder.exists() and not (folder / record).exists():
        raise UserError(refusal)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        with unwritten_named(folder):
            partial.mkdir(parents=True)
            yield partial
            for file in partial.iterdir():  # safetensors lets the owner alone read, whatever the umask says
                file.chmod(partial.stat().st_mode & 0o666)
            put_folder(partial, folder, record=record, refusal=refusal, overwrite=overwrite)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


CHECKSUMS = "SHA256SUMS"  # as `sha256sum --check` reads it, too


def sha256(path: Path) -> str:
    """Return the sha256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path, files: Iterable[Path]) -> None:
    """Write the sha256 of files into the checksums of their folder, all or nothing."""
    lines = [f"{sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    write_text(folder / CHECKSUMS, "".join(lines))


def check_checksums(folder: Path) -> list[str]:
    """Compare files with the checksums of their folder, and return the names of those that have one."""
    sums = folder / CHECKSUMS
    if not sums.exists():
        return []
    try:
        pairs = [line.split(maxsplit=1) for line in sums.read_text(encoding="utf-8").splitlines()]
        if not pairs:
            raise ValueError("no checksum")
        wrong = [name for digest, name in pairs if not (folder / name).is_file() or sha256(folder / name) != digest]
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is damaged: {CHECKSUMS} cannot be read") from error
    if wrong:
        raise UserError(f"{folder} is damaged: {wrong[0]} is missing or was changed")
    return [name for _, name in pairs]
