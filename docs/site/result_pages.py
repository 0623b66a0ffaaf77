"""Reports that benchmarks have left in the repository, in the groups of `docs/results/index.md`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["result_files", "result_nav"]

RESULTS = "benchmarks/results"


def result_files(root: Path) -> list[str]:
    """Reports and figures, by their paths in the repository."""
    found = (path for path in (root / RESULTS).rglob("*") if path.suffix in (".md", ".png", ".svg"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def result_nav(page: str) -> list[Any]:
    """Groups of reports by the headings and links of the page that lists them; reports without a link are last."""
    link = re.compile(rf"^- \[(.*?)\]\(\.\./\.\./({RESULTS}/[^)]*)\)", re.MULTILINE)
    groups = (part.partition("\n") for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:])
    return [
        *({group: [{title: file} for title, file in link.findall(text)]} for group, _, text in groups),
        f"{RESULTS}/**",
    ]
