"""Cards of the public data sets in `cards.toml`, with their oddities, and downloads; needs no torch or pandas."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tsattn.data.splits import ByShare, Split
from tsattn.errors import UserError, did_you_mean, one_of
from tsattn.saved_folders import sha256

_SENTENCES = {
    "note": "{text}",
    "flat": "{column} is {value:g} for {rows} rows from {first}",
    "sentinel": "{column} has {value:g} for a missing value in {cells} {row_word}",
    "missing": "{column} is missing in {cells} rows, which are masked, never dropped, never scored",
    "uneven_step": "the time stamp {stamp} (row {number}) {how}",
    "broken_headers": "letters of {count} headers are U+FFFD in the file, and are repaired when it is read: {names}",
    "crlf": "lines end in CR LF",
}


@dataclass(frozen=True, kw_only=True)
class Oddity:
    """An oddity of a file, which is a sentence on its card; the head of `cards.toml` describes the kinds."""

    kind: str
    text: str = ""
    column: str = ""
    value: float = 0
    first: str = ""
    rows: int = 0
    cells: int = 0
    row: int = 0
    stamp: str = ""
    minutes: int = 0
    renamed: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        how = f"comes {self.minutes} minutes after the row before" if self.minutes else "is written twice in a row"
        words = {"row_word": "row" if self.cells == 1 else "rows", "number": self.row + 1, "how": how}
        words |= {"count": len(self.renamed), "names": one_of(repaired for _, repaired in self.renamed)}
        return _SENTENCES[self.kind].format(**vars(self), **words)


@dataclass(frozen=True)
class Card:
    """Facts about a public data set; the head of `cards.toml` describes the fields."""

    name: str
    title: str
    source: str
    licence: str
    rows: int
    columns: int
    first: str
    last: str
    frequency: str
    season: int
    horizons: tuple[int, ...]
    target: str
    file: str | None = None
    url: str | None = None
    sha256: str | None = None
    same_content: tuple[str, ...] = ()
    reported_sha256: str | None = None
    parts: Literal["ett", "benchmark", "fractions"] = "benchmark"
    date_column: str | None = "date"
    channels: tuple[str, ...] = ()
    on_grid: bool = False
    oddities: tuple[Oddity, ...] = ()
    label: str = ""
    unit: str | None = None

    @property
    def sums(self) -> tuple[str, ...]:
        """The accepted checksums of the file; empty if none is certain."""
        return (() if self.sha256 is None else (self.sha256,)) + self.same_content

    @property
    def module(self) -> str:
        """The class that reads the data set."""
        return "CO2DataModule" if self.file is None else "PublicDataModule"

    @property
    def renamed(self) -> dict[str, str]:
        """Names of columns in the file that are changed, with the names that tsattn uses."""
        return dict(pair for oddity in self.oddities for pair in oddity.renamed)

    @property
    def sentinels(self) -> tuple[Oddity, ...]:
        """The numbers that stand for missing values."""
        return tuple(oddity for oddity in self.oddities if oddity.kind == "sentinel")

    def split(self, time: Sized) -> Split:
        """Split a series of this data set, as a `SplitRule` does."""
        rows, day = len(time), self.season
        if self.parts == "ett":
            return Split(12 * 30 * day, 16 * 30 * day, 20 * 30 * day)
        if self.parts == "fractions":
            return ByShare(0.7, 0.1).split(time)
        # training and test parts are rounded as in the literature on long horizons (Wu et al., Autoformer)
        return Split(int(rows * 0.7), rows - int(rows * 0.2), rows)

    def facts(self) -> list[tuple[str, str]]:
        """The card as pairs of a heading and its text, in reading order."""
        split, how = self.split(range(self.rows)), "70, 10 and 20 percent in the order of time"
        if self.parts == "ett":
            how = "12, 4 and 4 months of 30 days in the order of time; the rows after that belong to no part"
        sizes = f"{split.train_end}, {split.val_end - split.train_end} and {split.test_end - split.val_end} rows"
        pairs = [
            ("what", self.title),
            ("source", self.source),
            ("licence", self.licence),
            ("file", self.file or "none: embedded in a package that tsattn requires"),
            ("download", self.url or "none needed"),
            ("sha256", self.file and (self.sha256 or "none: the file was not at hand")),
            ("also accepted", self.same_content and f"{one_of(self.same_content)} (other line ends, same content)"),
            ("others report", self.reported_sha256 and f"sha256 {self.reported_sha256}"),
            ("rows x channels", f"{self.rows} x {self.columns}"),
            ("time", f"{self.first} to {self.last}"),
            ("frequency", f"{self.frequency}, a season of {self.season} steps"),
            ("split", f"{how}: {sizes}"),
            ("usual horizons", one_of(map(str, self.horizons))),
            ("usual target", f"{self.target}, where one channel is forecast alone"),
            ("channels", one_of(self.channels)),
            ("class", self.module),
        ]
        return [(word, str(text)) for word, text in pairs if text]


def card_of(name: str, *, files_only: bool = False) -> Card:
    """The card of a data set; `files_only` accepts only data sets with a file. UserError lists the valid names."""
    valid = [card.name for card in CARDS.values() if card.file or not files_only]
    if name not in valid:
        raise UserError(f"unknown data set {name!r}{did_you_mean(name, valid)}; valid: {one_of(valid)}")
    return CARDS[name]


def _card(name: str, facts: dict[str, Any]) -> Card:
    oddities = tuple(
        Oddity(**{**one, "renamed": tuple(map(tuple, one.get("renamed", ())))}) for one in facts.pop("oddities", ())
    )
    facts = {"label": name} | {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
    return Card(name=name, **{**facts, "date_column": facts.get("date_column", "date") or None}, oddities=oddities)


CARDS: dict[str, Card] = {
    name: _card(name, facts)
    for name, facts in tomllib.loads(Path(__file__).with_name("cards.toml").read_text("utf-8")).items()
}
"""Cards of the public data sets, by name."""


def data_root(root: str | Path | None) -> Path:
    """The folder of data files: `root`, else `$TSATTN_DATA`, else `data`."""
    return Path(os.environ.get("TSATTN_DATA") or "data") if root is None else Path(root)


def fetch(card: Card, root: Path) -> Path:
    """Find the file of a data set, or download it into `root`; UserError if it fails or differs from the card."""
    path = root / str(card.file)
    if path.is_dir():
        raise UserError(f"{path} is a folder, not the file {card.file}; remove it or name another root")
    if path.exists():
        if card.sums and sha256(path) not in card.sums:
            mend = "remove it to download it again, or read your own data with CSVDataModule"
            raise UserError(f"{path} is not the official {card.file} (its sha256 differs: cut short or edited); {mend}")
        return path
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    print(f"downloading {card.file} to {root}", file=sys.stderr)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as folder:
            unpack = pooch.Decompress(method="gzip") if str(card.url).endswith(".gz") else None
            options = {"processor": unpack, "progressbar": sys.stderr.isatty()}
            fetched = Path(pooch.retrieve(card.url, None, fname="download", path=folder, **options))
            found = sha256(fetched)
            if card.sums and found not in card.sums:
                raise ValueError(f"the sha256 is {found}")
            whole = Path(folder, path.name)  # a copy, so that its permissions follow the umask
            shutil.copyfile(fetched, whole)
            whole.replace(path)  # the file is complete or missing
    except requests.exceptions.RequestException as error:
        mend = f"put the file {card.file} into {root}"
        raise UserError(f"{path} does not exist, and {card.url} cannot be reached to download it; {mend}") from error
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        says = "was cut short or altered (its sha256 differs); try again"
        raise UserError(f"the download of {card.file} from {card.url} {says}") from error
    except OSError as error:
        raise UserError(f"{card.file} cannot be written to {root}: {error.strerror or error}") from error
    if not card.sums:
        print(f"{card.file} cannot be verified against a known sum; {reported(card, found)}", file=sys.stderr)
    return path


def reported(card: Card, found: str) -> str:
    """A sentence on the checksum of a file whose card has no certain checksum."""
    if card.reported_sha256 is None:
        return f"its sha256 is {found}"
    return f"its sha256 is {found}, {'as' if found == card.reported_sha256 else 'but not what'} others report"
