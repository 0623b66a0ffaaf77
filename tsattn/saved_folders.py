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

from tsattn.errors import UserError

__all__ = ["CHECKSUMS", "atomic_write", "check_checksums", "put_folder", "restore_folder", "sha256", "whole_folder"]
__all__ += ["write_checksums", "write_text", "write_whole"]


@contextlib.contextmanager
def atomic_write(path: Path, *, alone: bool = False) -> Iterator[IO[bytes]]:
    """Open a file beside its place, which is moved there when it is whole; its folder is made.

    Where this process writes it `alone`, it replaces what one that was killed has left of it. An OSError leaves what
    was there before intact.
    """
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


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file whole or not at all; see `atomic_write`."""
    try:
        with atomic_write(path) as file:
            write(file)
    except OSError as error:
        raise _unwritten(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all; see `write_whole`."""
    write_whole(path, lambda file: file.write(text.encode()))


def _unwritten(path: Path, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
    return UserError(f"{path} cannot be written: {reason}")


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


def restore_folder(folder: Path, record: str) -> None:
    """Move an old folder back whose replacement was killed before the new one, known by its record, was there."""
    with contextlib.suppress(OSError):  # a reader may lack the right to move it: it then finds nothing
        if not folder.exists() and (_aside(folder) / record).exists():
            _aside(folder).rename(folder)


def put_folder(new: Path, folder: Path, *, record: str, refusal: str, overwrite: bool) -> None:
    """Move a folder to its place on the same disk; an old one of its kind is removed once the new one is there.

    Args:
        new: the folder.
        folder: its place.
        record: the file by which a folder of this kind is known; another one stays, by the words of `refusal`.
        refusal: says why another one stays.
        overwrite: whether one of this kind may be replaced.
    """
    restore_folder(folder, record)
    aside: Path | None = None
    if overwrite and folder.exists():
        aside = _aside(folder)
        if (aside / record).exists():  # left by a process that was killed once the new folder was there
            shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    try:
        if aside is not None and not (aside / record).exists():
            raise UserError(refusal)
        if folder.exists():  # a folder without files would make way
            raise UserError(f"{folder} was made by another process meanwhile; it is not overwritten, name another")
        new.rename(folder)
    except BaseException:
        if aside is not None:
            aside.rename(folder)
        raise
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def whole_folder(folder: Path, *, record: str, what: str, overwrite: bool) -> Iterator[Path]:
    """A new folder beside its place, which is moved there once all is written into it.

    Args:
        folder: its place.
        record: the file by which a folder of this kind is known: another one is never overwritten.
        what: such a folder holds, in messages: ``a saved model``.
        overwrite: whether one that is there may be replaced.
    """
    refusal = f"{folder} is not the folder of {what}; it is not overwritten"
    restore_folder(folder, record)
    if folder.exists() and not overwrite:
        raise UserError(f"{folder} exists already; name another folder, or give overwrite=True")
    if folder.exists() and not (folder / record).exists():
        raise UserError(refusal)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        for file in partial.iterdir():  # safetensors lets the owner alone read, whatever the umask says
            file.chmod(partial.stat().st_mode & 0o666)
        put_folder(partial, folder, record=record, refusal=refusal, overwrite=overwrite)
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"{folder} cannot be written: the model holds what is no plain data ({error})") from error
    except (OSError, SafetensorError) as error:
        raise _unwritten(folder, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


CHECKSUMS = "SHA256SUMS"  # as `sha256sum --check` reads it, too


def sha256(path: Path) -> str:
    """The sha256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path, files: Iterable[Path]) -> None:
    """Write the sha256 of some files in a folder into its file of checksums, all or nothing."""
    lines = [f"{sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    write_text(folder / CHECKSUMS, "".join(lines))


def check_checksums(folder: Path) -> list[str]:
    """Compare the files of a folder with their checksums; a folder without any is taken as it is.

    Returns:
        the names of the files that have one.
    """
    sums = folder / CHECKSUMS
    if not sums.exists():
        return []
    try:
        lines = [line.split(maxsplit=1) for line in sums.read_text(encoding="utf-8").splitlines()]
        if not lines:
            raise ValueError("no checksum")
        names = {name: digest for digest, name in lines}
        wrong = [name for name in names if not (folder / name).is_file() or sha256(folder / name) != names[name]]
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is damaged: {CHECKSUMS} cannot be read") from error
    if wrong:
        raise UserError(f"{folder} is damaged: {wrong[0]} is not the file that was written")
    return [*names]
