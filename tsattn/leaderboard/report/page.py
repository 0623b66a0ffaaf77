"""A report as one HTML file that needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tsattn.errors import UserError
from tsattn.leaderboard.report.parts import Cell, ForecastViewer, ReportListing, ReportTable, Section

__all__ = ["page"]

_TEMPLATES = Path(__file__).parent / "templates"
_KINDS = {"table": ReportTable, "listing": ReportListing, "viewer": ForecastViewer}  # all others are figures


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
    environment.filters["inline_json"] = _inline_json
    for name, kind in _KINDS.items():
        environment.tests[name] = _test_of(kind)
    has_viewer = any(isinstance(part, ForecastViewer) for section in sections for part in section.parts)
    scripts = [_template("page.js"), *([_template("viewer.js")] if has_viewer else [])]
    template = environment.get_template("page.html")
    return template.render(title=title, sections=sections, style=_template("page.css"), scripts=scripts) + "\n"


def _template(name: str) -> str:
    return _TEMPLATES.joinpath(name).read_text(encoding="utf-8")


def _test_of(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda part: isinstance(part, kind)


def _inline_json(content: Any) -> str:
    """Plain data inside a ``<script>``, which no text of theirs can end."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _sort_key(cell: Cell) -> str | None:
    """What a cell is sorted by, where that is not its text; empty for what comes last."""
    if cell.sort is None:
        return None
    return "" if math.isnan(cell.sort) else f"{cell.sort:.9g}"
