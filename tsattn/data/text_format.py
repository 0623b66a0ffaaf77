"""How text stands for a table: which lines and cells it has, and how numbers and dates are written."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tsattn.errors import UserError, shown, whole_number

__all__ = ["TextFormat"]

_NO_SEPARATORS = '"\r\n\0'


@dataclass(frozen=True)
class TextFormat:
    """How the text of a table is read; all but `date_format` and `format` concern CSV files alone.

    Attributes:
        separator: the character between the cells of a CSV file; ``\\t``, written out, is a tab too.
        decimal: the character before the decimals of a number in a CSV file.
        encoding: of a CSV file, by Python's name.
        date_format: how dates are written, by the directives of ``strftime``, such as ``%d/%m/%y``, in a frame too;
            None: ISO 8601, or the one format that fits every cell.
        format: ``csv`` or ``parquet``, of files whose names do not say it; None: by the suffix.
        comment: the character that begins the lines of a CSV file that are not read; empty for none.
        skip_rows: lines before the header of a CSV file.

    Raises:
        UserError: for what is none of these.
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    date_format: str | None = None
    format: str | None = None
    comment: str = ""
    skip_rows: int = 0

    def __post_init__(self) -> None:
        if self.separator == "\\t":
            object.__setattr__(self, "separator", "\t")
        for name in ("separator", "decimal", *(["comment"] if self.comment else [])):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) != 1 or value in _NO_SEPARATORS or value.isalnum():
                raise UserError(f"{name} must be one character, such as ',' or '.' or ';', not {shown(repr(value))}")
        if self.separator == self.decimal:
            raise UserError(f"separator and decimal are both {self.separator!r}, but numbers must not fall apart")
        if self.comment == self.separator:
            raise UserError(f"separator and comment are both {self.separator!r}; give two characters")
        object.__setattr__(self, "skip_rows", whole_number("skip_rows", self.skip_rows, least=0))
        try:
            codecs.lookup(self.encoding)
            "".encode(self.encoding)  # a codec of bytes, such as base64, is no encoding
        except (LookupError, TypeError) as error:
            raise UserError(
                f"{shown(repr(self.encoding))} is not an encoding; valid are those of Python, such as utf-8, utf-16, "
                "latin-1, cp1252"
            ) from error
        if self.format not in (None, "csv", "parquet"):
            raise UserError(f"format must be csv or parquet, not {shown(repr(self.format))}")
        if self.date_format is not None:
            _check_date_format(self.date_format)

    def kind_of(self, path: Path) -> str | None:
        """``csv`` or ``parquet``, whichever a file is; None for a name that says neither."""
        suffix = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
        return self.format or {".csv": "csv", ".csv.gz": "csv", ".parquet": "parquet", ".pq": "parquet"}.get(suffix)

    @property
    def leaves_out(self) -> bool:
        """Whether some lines of a CSV file are not read."""
        return bool(self.comment) or self.skip_rows > 0

    @property
    def codec(self) -> str:
        """The encoding that files are opened with; a mark of the byte order in front of UTF-8 is no text."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding


def _check_date_format(date_format: object) -> None:
    example = "write it with the directives of strftime, such as %d/%m/%Y or %Y%m%d %H:%M"
    if not isinstance(date_format, str) or not re.search("%[YyGc]|%[xD]", date_format):
        raise UserError(f"date_format {shown(repr(date_format))} names no year; {example}")
    try:
        pd.to_datetime(pd.Series(["-"], dtype=object), format=date_format, errors="coerce")
    except ValueError as error:
        raise UserError(f"date_format {shown(repr(date_format))} is not understood; {example}") from error
