"""Notebooks as pages: their committed cells and outputs as Markdown, so that links are checked and colours are ours."""

from __future__ import annotations

import re
from pathlib import Path

from nbconvert import MarkdownExporter

__all__ = ["notebook_page"]

_STYLE = re.compile(r"<style scoped>.*?</style>\s*", re.DOTALL)


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as it was committed; nothing is executed.

    Returns:
        its Markdown, and its pictures by file name.
    """
    text, resources = MarkdownExporter().from_filename(str(path))  # type: ignore[no-untyped-call]
    names = {name: f"{path.stem}_{name}" for name in resources["outputs"]}
    for name, own in names.items():
        text = text.replace(f"]({name})", f"]({own})")
    text = _STYLE.sub("", text).replace(' border="1" class="dataframe"', "")
    return text, {names[name]: content for name, content in resources["outputs"].items()}
