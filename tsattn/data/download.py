"""Finding the files of public data sets, and fetching each once."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tsattn.errors import UserError

__all__ = ["data_root", "fetch"]


def data_root(root: str | Path | None) -> Path:
    """The folder that data files lie in: the one given, else `$TSATTN_DATA`, else `data`."""
    if root is not None:
        return Path(root)
    return Path(os.environ.get("TSATTN_DATA") or "data")


def fetch(file: str, *, root: Path, url: str, sha256: str) -> Path:
    """The path of `root/file`, downloaded from `url` if it is not there, and checked.

    Raises:
        UserError: if it cannot be downloaded, or is not the file with this sum (then nothing is overwritten).
    """
    path = root / file
    if path.is_dir():
        raise UserError(f"{path} is a folder, not the file {file}; remove it or name another root")
    if path.exists():
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise UserError(
                f"{path} is not the official {file} (its sha256 differs: cut short or edited); "
                "remove it to download it again, or read your own data with CSVDataModule"
            )
        return path
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    print(f"downloading {file} to {root}", file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as folder:
            fetched = pooch.retrieve(
                url, known_hash=f"sha256:{sha256}", fname=file, path=folder, progressbar=sys.stderr.isatty()
            )
            root.mkdir(parents=True, exist_ok=True)
            partial = root / f"{file}.{os.getpid()}.partial"
            shutil.copyfile(fetched, partial)
            partial.replace(path)  # so that the file is there whole or not at all
    except requests.exceptions.RequestException as error:
        raise UserError(
            f"{path} is not there, and {url} cannot be reached to download it; put the file {file} into {root}"
        ) from error
    except ValueError as error:
        raise UserError(
            f"the download of {file} from {url} was cut short or altered (its sha256 differs); try again"
        ) from error
    except OSError as error:
        raise UserError(f"{file} cannot be written to {root}: {error.strerror or error}") from error
    return path
