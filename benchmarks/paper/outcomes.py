"""What an experiment came to, as files: its report, and its claims as JSON, of which the report over all is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.paper.claims import PaperReport, write_report
from tsattn.errors import number_of
from tsattn.saved_folders import write_text

__all__ = ["CLAIMS_FILE", "write_outcome"]

CLAIMS_FILE = "claims.json"


def write_outcome(
    folder: Path, report: PaperReport, made: str, *, seconds: float, runs: tuple[int, int] | None = None
) -> None:
    """Write the report of an experiment, see `write_report`, and ``claims.json``.

    Args:
        folder: of its records.
        report: what it came to.
        made: how, and where, as Markdown.
        seconds: by the clock, in which it ran.
        runs: how many were decided, and of how many; None where it has none.
    """
    is_part = runs is not None and runs[0] < runs[1]
    write_report(folder, report, made, f"{runs[0]} of {number_of(runs[1], 'run')} are made" if is_part and runs else "")
    claims = [
        {
            "claim": one.text,
            "is_of_paper": one.is_of_paper,
            "found": one.found,
            "holds": None if one.holds is None else bool(one.holds),
        }
        for one in report.claims
    ]
    content: dict[str, Any] = {"title": report.title, "claims": claims, "seconds": round(float(seconds), 1)}
    if runs is not None:
        content |= {"decided": runs[0], "planned": runs[1]}
    write_text(folder / CLAIMS_FILE, json.dumps(content, indent=2) + "\n")
