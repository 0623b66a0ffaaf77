"""The cells of a CSV file, nothing checked but that it is a table, and the lines that its rows start on."""

from __future__ import annotations

import csv
import gzip
import re
import warnings
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pandas as pd

from tsattn.data.columns import DECIMAL, id_columns
from tsattn.data.files import check_columns, check_file, first_line
from tsattn.data.table_options import TextFormat
from tsattn.errors import UserError

__all__ = ["lines_of", "read_cells", "read_in_parts", "whole_ids"]

_PLAIN = TextFormat()
_SEPARATORS = ",;\t|"
_READ_AHEAD = 1 << 24  # characters of a header line that are looked at
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)  # as numbers are written that are ids
# the cells that pandas takes for missing, of which some are good ids
_MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
_NO_TEXT = re.compile(
    rf"\s*([+-]?[\d.,_]*(e[+-]?\d+)?|[+-]?inf(inity)?|true|false|{'|'.join(map(re.escape, _MISSING))})\s*",
    re.IGNORECASE,
)


def read_cells(
    path: Path,
    *,
    ids: Sequence[str | None] = (),
    dates: Sequence[str] = (),
    has_header: bool = True,
    text: TextFormat = _PLAIN,
) -> pd.DataFrame:
    """Read the table in a CSV file, its cells as pandas reads them; blank lines are no rows.

    Args:
        path: the file, which is unpacked if it is gzip's, whatever its suffix.
        ids: names that a column of ids may have, None among them: the first that is there is kept as it is written
            (``NA`` and ``007`` are ids), unless all its cells are plain whole numbers.
        dates: columns that are kept as they are written, as ``010220`` is the first of February.
        has_header: whether the first row names the columns; else they are 0, 1, ...
        text: what separates its cells, and how its numbers are written.
    """
    with _refusals(path, text, has_header=has_header), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.DtypeWarning)
        options, found = _options(path, ids, dates, text, has_header=has_header)
        try:  # in pieces that fit into a cache, unless they say other things of the kind of a column
            with _source(path, text) as source:
                table: pd.DataFrame = pd.read_csv(source, **{**options, "low_memory": True})
        except pd.errors.DtypeWarning:
            with _source(path, text) as source:
                table = pd.read_csv(source, **options)
    for name in found:
        table[name] = _plain_ids(table[name])
    return _marked(table, text)


def read_in_parts(
    path: Path, rows: int, *, ids: Sequence[str | None] = (), dates: Sequence[str] = (), text: TextFormat = _PLAIN
) -> Iterator[pd.DataFrame]:
    """Read so many rows at a time; ids are text (see `whole_ids`), empty ones are missing."""
    with _refusals(path, text, has_header=True):
        options, _ = _options(path, ids, dates, text, has_header=True, in_parts=True)
        with _source(path, text) as source, pd.read_csv(source, chunksize=rows, **options) as reader:
            for table in reader:
                yield _marked(table.reset_index(drop=True), text)


def lines_of(path: Path, *, has_header: bool = True, text: TextFormat = _PLAIN) -> Callable[[int], str]:
    """What names a row (from 0) in messages: the file and the line that the row starts on."""

    def where(row: int) -> str:
        try:
            return f"{path}, line {_line(path, row + has_header, text)}"
        except csv.Error:  # a cell too long for Python's reader
            return f"{path}, row {row + 1}"

    return where


def whole_ids(texts: Collection[str]) -> bool:
    """Whether there are ids and all of them are written as plain whole numbers."""
    return len(texts) > 0 and all(map(_WHOLE.fullmatch, texts))


def _plain_ids(texts: pd.Series) -> pd.Series:
    """Ids as text, or as whole numbers if they are written exactly so; empty ones are missing."""
    first = texts.first_valid_index()
    if first is None or not _WHOLE.fullmatch(texts[first]) or not whole_ids(texts.dropna().unique()):
        return texts
    numbers = pd.to_numeric(texts)
    return numbers.astype("int64") if numbers.notna().all() else numbers.astype("Int64")


def _marked(table: pd.DataFrame, text: TextFormat) -> pd.DataFrame:
    """A table that says how its numbers are written, where that is not as everywhere."""
    if text.decimal != ".":
        table.attrs[DECIMAL] = text.decimal
    return table


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


@contextmanager
def _source(path: Path, text: TextFormat) -> Iterator[Any]:
    """What pandas is given: the file, or its lines where some of them are left out."""
    if not text.leaves_out:
        yield path
        return
    with _Lines(path, text) as lines:
        yield lines


class _Lines:
    """The lines of a CSV file that are read: unpacked, without those before the header and those of comments.

    A line within a quoted cell is no comment, whatever it begins with.
    """

    def __init__(self, path: Path, text: TextFormat) -> None:
        opened = gzip.open if _is_packed(path) else open
        self._file: Any = opened(path, "rt", newline="", encoding=text.codec)
        self._comment, self._skipped = text.comment, text.skip_rows
        self._is_quoted, self._is_new = False, True
        self.number = 0  # of the last line, from 1, as an editor counts them
        self.start = 0  # of the first line since it was set to 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        while line := self._file.readline(_READ_AHEAD):  # a line of many megabytes comes in pieces
            begins, self._is_new = self._is_new, line.endswith(("\n", "\r"))
            self.number += begins
            if self.number <= self._skipped:
                continue
            if begins and self._comment and not self._is_quoted and line.lstrip().startswith(self._comment):
                continue
            self._is_quoted ^= line.count('"') % 2 == 1
            self.start = self.start or self.number
            return str(line)
        raise StopIteration

    def read(self, size: int = -1) -> str:
        """Lines of at least so many characters; all by default."""
        lines, length = [], 0
        for line in self:
            lines.append(line)
            length += len(line)
            if 0 <= size <= length:
                break
        return "".join(lines)


@contextmanager
def _refusals(path: Path, text: TextFormat, *, has_header: bool) -> Iterator[None]:
    """What reading a file raises, as one sentence."""
    check_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UserError:
        raise
    except UnicodeError as error:
        name = "UTF-8" if text.codec == "utf-8-sig" else text.encoding
        raise UserError(f"{path} is not {name} text ({_undecodable(path, text)}); {_advice(path)}") from error
    except pd.errors.EmptyDataError as error:
        raise UserError(f"{path} is empty; it needs {'a header and ' if has_header else ''}rows") from error
    except pd.errors.ParserWarning as error:
        raise UserError(f"{path} is not a regular CSV table: its rows have more fields than its header") from error
    except (ValueError, OverflowError, csv.Error) as error:
        reason = first_line(error).split("C error: ")[-1]
        raise UserError(f"{path} is not a regular CSV table: {reason}") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"{path} cannot be read: {reason}") from error


def _options(
    path: Path,
    ids: Sequence[str | None],
    dates: Sequence[str],
    text: TextFormat,
    *,
    has_header: bool,
    in_parts: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How pandas is to read a file, and the columns of ids, if there are some."""
    with _Lines(path, text) as lines:
        records = csv.reader(lines, delimiter=text.separator)
        first, second = next(filter(_is_row, records), []), list[str]()
        with suppress(csv.Error, UnicodeError):  # of what pandas says more
            second = next(filter(_is_row, records), [])
    if has_header and len(first) == 1 and (other := max(_SEPARATORS, key=first[0].count)) in first[0]:
        decimal = " (and the decimal ',', if its numbers are written so)" if other == ";" else ""
        raise UserError(
            f"{path} separates its cells with {other!r}, not with {text.separator!r}; give that as separator{decimal}"
        )
    check_columns(path, len(first))
    names: list[Any] = first if has_header else list(range(len(first)))
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise UserError(f"{path} has two columns {repeated[0][:60]!r}")
    found = next(filter(None, (id_columns(name, names) for name in ids)), ())
    missing = {
        # as pandas calls columns without a name
        name or f"Unnamed: {i}": [""] if name in found else _MISSING
        for i, name in enumerate(names if found else ())
    }
    kept = [name for name in (*found, *dates) if name in names]
    if not in_parts:
        # a column with a text is one of texts, which pandas reads many times faster than if it is told so
        is_text = {name: not _NO_TEXT.fullmatch(cell) for name, cell in zip(names, second, strict=False)}
        kept = [name for name in kept if not is_text.get(name)]
    return {
        "header": "infer" if has_header else None,
        "index_col": False,
        "compression": "gzip" if _is_packed(path) and not text.leaves_out else None,
        "low_memory": False,
        "sep": text.separator,
        "decimal": text.decimal,
        # pandas skips a mark of the byte order itself, and reads plain UTF-8 without a decoder
        "encoding": "utf-8" if text.codec == "utf-8-sig" else text.encoding,
        "dtype": dict.fromkeys(kept, "object"),
        "keep_default_na": not found,
        "na_values": missing if found else None,
    }, found


def _line(path: Path, row: int, text: TextFormat) -> int:
    """The line that a row (from 0, headers counted) starts on; a quoted cell may go over several lines."""
    with _Lines(path, text) as lines:
        rows = 0
        for record in csv.reader(lines, delimiter=text.separator):
            if _is_row(record):
                if rows == row:
                    break
                rows += 1
            lines.start = 0
        return lines.start or lines.number


def _is_row(record: list[str]) -> bool:
    """Whether pandas takes it for one: blank lines are none."""
    return len(record) > 1 or any(cell.strip() for cell in record)


def _advice(path: Path) -> str:
    """What to do with a file of another encoding, by its first bytes."""
    with path.open("rb") as file:
        first = file.read(2)
    if first == b"PK":
        return "it is compressed: unpack it first, or pack it as .csv.gz"
    return f"give its encoding, {'utf-16' if first in (BOM_UTF16_LE, BOM_UTF16_BE) else 'such as latin-1 or cp1252'}"


def _undecodable(path: Path, text: TextFormat) -> str:
    """The place of the first byte that is not of the encoding (pandas counts from the start of a chunk)."""
    try:
        (gzip.decompress if _is_packed(path) else bytes)(path.read_bytes()).decode(text.encoding)
    except UnicodeDecodeError as error:
        return f"byte {error.start}"
    except UnicodeError:
        pass
    return "an encoding error"
