"""The list of results: every report and figure that benchmarks have left in the repository."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["result_files", "results_page"]

RESULTS = "benchmarks/results"

_INDEX = """# Results

Reports as the benchmarks wrote them, with what they were measured on. Nothing here is edited by hand.
"""
_TITLES = {
    "paper": "The paper's experiments",
    "leaderboard": "Leaderboard",
    "chronos": "Pretrained Chronos",
    "attention": "The speed of attention",
    "forecasting": "Forecasts",
}


def result_files(root: Path) -> list[str]:
    """Reports and figures, by their paths in the repository."""
    found = (path for path in (root / RESULTS).rglob("*") if path.suffix in (".md", ".png", ".svg"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def results_page(root: Path) -> str:
    """Reports by folder."""
    files = result_files(root)
    folders: dict[str, list[str]] = {}
    for file in files:
        if file.endswith(".md"):
            folders.setdefault(Path(Path(file).relative_to(RESULTS).parts[0]).stem, []).append(file)
    order = [*_TITLES, *folders]
    parts = [_INDEX]
    for folder in sorted(folders, key=order.index):
        parts.append(f"## {_TITLES.get(folder, folder.replace('_', ' ').capitalize())}\n")
        for file in sorted(folders[folder], key=lambda file: (file.count("/"), file)):
            parts.append(f"- [{_title(root / file)}](../../{file})")
        parts.append("")
    return "\n".join(parts)


def _title(path: Path) -> str:
    """The first heading of a report; with the machine where it is one of several."""
    found = re.search(r"^# (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return found[1] if found else path.stem
