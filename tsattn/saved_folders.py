"""Folders that a model is saved to: whole, or as they were."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tsattn.errors import UserError

__all__ = ["whole_folder"]


def _replace(folder: Path, new: Path) -> None:
    """Put a folder into its place; what was there is removed when the new one is there."""
    if not folder.exists():
        new.rename(folder)
        return
    old = new.with_name(f"{new.name}.old")
    folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def whole_folder(folder: Path, *, record: str, what: str, overwrite: bool) -> Iterator[Path]:
    """A new folder beside its place, which is moved there once all is written into it.

    Args:
        folder: its place.
        record: the file by which a folder of this kind is known: another one is never overwritten.
        what: such a folder holds, in messages: ``a saved model``.
        overwrite: whether one that is there may be replaced.

    Raises:
        UserError: if it exists and may not be overwritten, cannot be written, or the model holds what is no plain data.
    """
    if folder.exists() and not overwrite:
        raise UserError(f"{folder} exists already; name another folder, or give overwrite=True")
    if folder.exists() and not (folder / record).exists():
        raise UserError(f"{folder} is not the folder of {what}; it is not overwritten")
    partial: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        yield partial
        partial.chmod(0o755)
        _replace(folder, partial)
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"{folder} cannot be written: the model holds what is no plain data ({error})") from error
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial)
