"""A report as Markdown: its sentences and tables; of figures their captions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tsattn.leaderboard.report.parts import Cell, ReportTable, Section

__all__ = ["markdown_report", "markdown_table"]

_MARKS = {"chosen": "**{}**", "strong": "**{}**"}


def markdown_report(title: str, sections: Sequence[Section]) -> str:
    """The whole report.

    Args:
        title: of it.
        sections: in order.
    """
    blocks = [f"# {_escaped(title)}", "The same with figures, and with tables to sort and to filter: `report.html`."]
    for section in sections:
        blocks.append(f"## {_escaped(section.title)}")
        blocks += [_escaped(paragraph) for paragraph in section.text]
        explained: set[str] = set()
        for part in section.parts:
            if isinstance(part, ReportTable):
                blocks += [f"*{_escaped(part.caption)}*", markdown_table(part)]
                blocks += _legend(part, explained)
            else:
                blocks.append(f"*Figure, in `report.html`: {_escaped(part.caption)}*")
    return "\n\n".join(blocks) + "\n"


def markdown_table(table: ReportTable) -> str:
    """A table of pipes, with what is a number set to the right."""
    lines = [[_escaped(column.name) for column in table.columns]]
    lines.append(["---:" if column.is_number else "---" for column in table.columns])
    lines += [[_cell(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _legend(table: ReportTable, explained: set[str]) -> list[str]:
    """What columns are whose heads do not say it, as a list; once for tables of one section.

    Args:
        table: of a section.
        explained: what its tables before explain; this one's is added.
    """
    named: dict[str, list[str]] = {}
    for column in table.columns:
        if column.help:
            named.setdefault(column.help, []).append(column.name)
    lines = [f"- *{_escaped(', '.join(names))}*: {_escaped(help)}" for help, names in named.items()]
    new = [line for line in lines if line not in explained]
    explained.update(new)
    return ["\n".join(new)] if new else []


def _cell(cell: Cell) -> str:
    text = _MARKS.get(cell.mark, "{}").format(_escaped(cell.text)) if cell.text else ""
    return f"{text} ({_escaped(cell.note)})" if cell.note else text


def _escaped(text: str) -> str:
    """Text that is neither markup nor the end of a cell."""
    return re.sub(r"([\\|<>*`\[\]])|_(?=\W|$)|(?<!\w)_", lambda found: f"\\{found[0]}", " ".join(text.split()))
