"""What a report is made of, whatever it is written as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Cell", "Column", "ForecastViewer", "ReportFigure", "ReportListing", "ReportTable", "Section"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what it says.
        sort: by what it is sorted, where that is not the text; NaN comes last.
        mark: how it stands out: ``chosen``, ``better``, ``worse``, ``tie``, ``warning`` or nothing.
        note: a second line in small letters.
    """

    text: str
    sort: float | None = None
    mark: str = ""
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its head.
        help: what it is, in a sentence; nothing where the head says it.
        is_number: whether it is set to the right, and sorted by number.
        has_filter: whether rows can be chosen by its values.
        is_prose: whether it holds sentences, which need room.
    """

    name: str
    help: str = ""
    is_number: bool = False
    has_filter: bool = False
    is_prose: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table.

    Attributes:
        name: an identifier, alone in its report.
        caption: what it shows.
        columns: of it.
        rows: a cell for each column.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class ReportFigure:
    """A figure.

    Attributes:
        name: an identifier, alone in its report.
        caption: what it shows.
        svg: an ``<svg>`` element, see `inline_svg`.
        is_wide: whether it takes the whole width.
    """

    name: str
    caption: str
    svg: str
    is_wide: bool = False


@dataclass(frozen=True)
class ReportListing:
    """The text of a file, folded away until somebody opens it.

    Attributes:
        name: an identifier, alone in its report.
        caption: what it is.
        text: of it.
    """

    name: str
    caption: str
    text: str


@dataclass(frozen=True)
class ForecastViewer:
    """Forecasts to step through, which the page itself draws.

    Attributes:
        name: an identifier, alone in its report.
        caption: what it shows.
        content: plain data that ``viewer.js`` describes.
    """

    name: str
    caption: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A part of a report under a heading.

    Attributes:
        name: an identifier, alone in its report.
        title: the heading.
        text: paragraphs before the rest.
        parts: tables, figures and so on.
    """

    name: str
    title: str
    text: Sequence[str] = ()
    parts: Sequence[ReportTable | ReportFigure | ReportListing | ForecastViewer] = field(default=())
