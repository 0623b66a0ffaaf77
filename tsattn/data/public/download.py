"""Finding the files of public data sets, and fetching each once."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tsattn.data.files import sha256_of
from tsattn.data.public.cards import Card
from tsattn.errors import UserError

__all__ = ["data_root", "fetch", "reported"]


def data_root(root: str | Path | None) -> Path:
    """The folder that data files lie in: the one given, else `$TSATTN_DATA`, else `data`."""
    if root is not None:
        return Path(root)
    return Path(os.environ.get("TSATTN_DATA") or "data")


def fetch(card: Card, root: Path) -> Path:
    """The path of the file of a data set, downloaded into `root` if it is not there, and checked.

    A download whose sum is not known is kept, and its sum is printed on standard error.

    Args:
        card: of a data set that is read from a file.
        root: the folder of the file.

    Raises:
        UserError: if it cannot be downloaded, or does not have a sum of the card (then nothing is overwritten).
    """
    assert card.file is not None
    assert card.url is not None
    path = root / card.file
    if path.is_dir():
        raise UserError(f"{path} is a folder, not the file {card.file}; remove it or name another root")
    if path.exists():
        if card.sums and sha256_of(path) not in card.sums:
            raise UserError(
                f"{path} is not the official {card.file} (its sha256 differs: cut short or edited); "
                "remove it to download it again, or read your own data with CSVDataModule"
            )
        return path
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    print(f"downloading {card.file} to {root}", file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bar = sys.stderr.isatty()
            fetched = Path(pooch.retrieve(card.url, known_hash=None, fname="download", path=folder, progressbar=bar))
            if card.url.endswith(".gz"):
                fetched = _unpacked(fetched)
            found = sha256_of(fetched)
            if card.sums and found not in card.sums:
                raise ValueError(f"the sha256 is {found}")
            root.mkdir(parents=True, exist_ok=True)
            partial = root / f"{card.file}.{os.getpid()}.partial"
            shutil.copyfile(fetched, partial)
            partial.replace(path)  # so that the file is there whole or not at all
    except requests.exceptions.RequestException as error:
        raise UserError(
            f"{path} is not there, and {card.url} cannot be reached to download it; "
            f"put the file {card.file} into {root}"
        ) from error
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise UserError(
            f"the download of {card.file} from {card.url} was cut short or altered (its sha256 differs); try again"
        ) from error
    except OSError as error:
        raise UserError(f"{card.file} cannot be written to {root}: {error.strerror or error}") from error
    if not card.sums:
        print(f"{card.file} cannot be verified against a known sum; {reported(card, found)}", file=sys.stderr)
    return path


def reported(card: Card, found: str) -> str:
    """A sentence on the sum of a file whose card has none of its own."""
    if card.reported_sha256 is None:
        return f"its sha256 is {found}"
    return f"its sha256 is {found}, {'as' if found == card.reported_sha256 else 'not the one that'} others report"


def _unpacked(path: Path) -> Path:
    """The content of a gzip file, as a file beside it."""
    content = path.with_name("unpacked")
    with gzip.open(path) as packed, content.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    return content
