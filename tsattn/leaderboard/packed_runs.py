"""Run folders as bytes, for machines that share no disk."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["pack", "unpack"]


def pack(root: Path, names: Iterable[str]) -> bytes:
    """Files and folders below a folder, those that are there.

    Args:
        root: the folder.
        names: relative to it.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in names:
            if (root / name).exists():
                archive.add(root / name, arcname=name)
    return content.getvalue()


def unpack(packed: bytes, root: Path) -> None:
    """Put back what `pack` took; what is there already under a name makes way, all or nothing for each."""
    partial = root / f".unpacked.{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(partial, filter="data")
            names = sorted({Path(*Path(name).parts[:2]) for name in archive.getnames() if len(Path(name).parts) > 1})
        for name in names:
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir():
                shutil.rmtree(place)
            (partial / name).replace(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
