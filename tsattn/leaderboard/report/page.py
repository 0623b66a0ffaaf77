"""A report as one HTML file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tsattn.errors import UserError
from tsattn.leaderboard.report.parts import Cell, ReportTable, Section

__all__ = ["page"]

_TEMPLATES = Path(__file__).parent / "templates"


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole report.

    Args:
        title: of it.
        sections: in order.

    Raises:
        UserError: if Jinja is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise UserError("the page needs Jinja: pip install 'tsattn[leaderboard]'") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sort_key"] = _sort_key
    environment.tests["table"] = _is_table
    style, script = (_TEMPLATES.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    template = environment.get_template("page.html")
    return template.render(title=title, sections=sections, style=style, script=script) + "\n"


def _is_table(part: Any) -> bool:
    return isinstance(part, ReportTable)


def _sort_key(cell: Cell) -> str | None:
    """What a cell is sorted by, where that is not its text; empty for what comes last."""
    if cell.sort is None:
        return None
    return "" if math.isnan(cell.sort) else f"{cell.sort:.9g}"
