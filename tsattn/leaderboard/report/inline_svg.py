"""Figures as SVG inside a page: text as text, colours that follow those of the page, nothing from elsewhere."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["PALETTE", "figure_style", "inline_svg", "page_colour"]

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"

# colours that no figure has otherwise stand for those of the page, which are other ones in the dark
_OF_PAGE = {
    **{"ink": "#0a0b01", "dim": "#0a0b02", "line": "#0a0b03", "paper": "#0a0b04", "accent": "#0a0b05"},
    **{"better": "#0a0b06", "worse": "#0a0b07", "tie": "#0a0b08"},
    **{f"hue-{number}": f"#0a0b1{number}" for number in range(8)},
}
PALETTE = tuple(_OF_PAGE[f"hue-{number}"] for number in range(8))
"""Colours of groups."""

# what other figures of tsattn are drawn with
_DRAWN = {"#30343b": "ink", "#d1495b": "accent", "#b3b3b3": "line", "#000000": "ink"}


def page_colour(name: str) -> str:
    """The colour to draw with for one of the page: ``ink``, ``dim``, ``line``, ``accent``, ``better``, ...."""
    return _OF_PAGE[name]


@contextmanager
def figure_style() -> Iterator[None]:
    """Figures that are made here have the colours of the page."""
    ink, dim = page_colour("ink"), page_colour("dim")
    colours: dict[str, Any] = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": dim,
        "xtick.color": dim,
        "ytick.color": dim,
        "grid.color": page_colour("line"),
    }
    colours |= {"xtick.labelcolor": ink, "ytick.labelcolor": ink, "font.size": 10}
    with mpl.rc_context(colours):  # type: ignore[arg-type]  # keys that stubs want as literals
        yield


def inline_svg(figure: Figure, name: str, label: str, titles: Mapping[str, str] | None = None) -> str:
    """A figure as an ``<svg>`` element, the same in every run.

    Args:
        figure: drawn.
        name: which no other figure of the page has.
        label: what it shows, for those who cannot see it.
        titles: by the ``gid`` of an artist, what is shown where the mouse is over it.
    """
    file = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    known = {element.get("id") for element in root.iter()}
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in list(element.attrib):
            value = _renamed(element.attrib.pop(key), key, name, known)
            element.set(key.rpartition("}")[2], value)
        title = (titles or {}).get(element.get("id", "").removeprefix(f"{name}-"))
        if title is not None:
            added = ElementTree.Element("title")
            added.text = title
            element.insert(0, added)
    width = float(root.attrib.pop("width").removesuffix("pt")) / 0.75
    root.attrib.pop("height")
    root.attrib.pop("version", None)
    root.set("role", "img")
    root.set("aria-label", label)
    root.set("style", f"--drawn-width: {width:.0f}px")
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _renamed(value: str, key: str, name: str, known: set[str | None]) -> str:
    """The value of an attribute with names of its own figure, and colours and fonts of the page."""
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href") and value.startswith("#"):
        return f"#{name}-{value[1:]}"
    value = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", value)
    for page, drawn in _OF_PAGE.items():
        value = value.replace(drawn, f"var(--{page})")
    for drawn, page in _DRAWN.items():
        value = value.replace(drawn, f"var(--{page})")
    # a family of the page, at the size that was drawn
    return re.sub(r"font: (?:[a-z]+ )*([\d.]+px) [^;]*", r"font-size: \1", value)
