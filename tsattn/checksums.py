"""Whether files are still those that were written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tsattn.errors import UserError
from tsattn.saved_folders import write_text

__all__ = ["CHECKSUMS", "check_checksums", "sha256", "write_checksums"]

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

    Raises:
        UserError: naming the file that is another, or is not there.
    """
    sums = folder / CHECKSUMS
    if not sums.exists():
        return []
    names = []
    try:
        lines = sums.read_text(encoding="utf-8").splitlines()
        if not lines:
            raise ValueError("no checksum")
        for line in lines:
            digest, name = line.split(maxsplit=1)
            if not (folder / name).is_file() or sha256(folder / name) != digest:
                raise UserError(f"{folder} is damaged: {name} is not the file that was written")
            names.append(name)
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is damaged: {CHECKSUMS} cannot be read") from error
    return names
