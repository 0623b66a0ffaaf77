"""A figure of differences: one row per data set or model, with a dot and its interval for each compared model."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

_INK, _DIM, _LINE, _PAPER, _STAR = "#25282d", "#6c727b", "#d3d6da", "#ffffff", "#f2b705"
_HUES = (_INK, "#1f77b4", "#2c8c2c", "#d62728", "#8458b3", "#c8690a", "#138496", "#b8468f")
_DARK = ("#e8eaed", "#6db3ea", "#68cf68", "#ff7b7b", "#bd9ae0", "#ffab5c", "#5cd2e4", "#ee8cc8")
COLOURS = {_DIM: "#a3a9b2", _LINE: "#454a52", **dict(zip(_HUES, _DARK, strict=True))}
"""Colours of the figure, each with its replacement in dark mode."""

_CROSSES = ("x", "|", "1")
_WIDTH = 4.4  # inches: on a phone, which is 390 pixels wide, words keep their size
_STEP = 0.13  # inches between the dots of a row
_FAR = 60.0  # percent: dots beyond would press all others together, so arrows at the edge stand for them


@dataclass(frozen=True)
class Mark:
    """A value in a row of `forest`, in percent.

    Attributes:
        name: in the legend; marks of one name have the same style.
        value: the difference.
        low: lower end of its interval; NaN without one.
        high: upper end.
        form: ``dot``, ``star`` or ``cross``; arrows at the edge stand for crosses and far dots beyond it.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    form: str = "dot"


def forest(rows: Mapping[str, Sequence[Mark]], *, title: str, axis: str) -> Figure:
    """Draw differences from 0 with their intervals, one row per name.

    Args:
        rows: marks by the name of the row, from top to bottom.
        title: a few plain words.
        axis: name of the axis, with its unit.
    """
    marks = [mark for row in rows.values() for mark in row]
    names = {form: dict.fromkeys(one.name for one in marks if one.form == form) for form in ("dot", "star", "cross")}
    styles: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(names["dot"]):
        again, colour = divmod(place, len(_HUES))
        styles[name] = {"marker": "osD^v"[again % 5], "ms": 4.5, "color": _HUES[colour], "lw": 1.4}
    for name in names["star"]:
        styles[name] = {"marker": "*", "ms": 11, "color": _STAR, "mec": _DIM, "mew": 0.7, "ls": ""}
    for place, name in enumerate(names["cross"]):
        styles[name] = {"marker": _CROSSES[place % len(_CROSSES)], "ms": 6, "color": _DIM, "mew": 1.3, "ls": ""}
    lines = [sum(mark.form == "dot" for mark in row) + any(mark.form != "dot" for mark in row) for row in rows.values()]
    heights = [_STEP * (1.4 + max(2, line, 1 + name.count("\n"))) for name, line in zip(rows, lines, strict=True)]
    has_legend = len(styles) > 1
    tall = sum(heights) + 0.95 + 0.22 * has_legend * math.ceil(len(styles) / 2)
    with mpl.rc_context({"font.size": 9.5, "text.color": _INK}):
        figure = Figure(figsize=(_WIDTH, tall), layout="constrained", facecolor=_PAPER)
        ax = figure.subplots()
        low, high = _limits(marks)
        ax.axvline(0, color=_DIM, lw=1)
        middles, top = [], 0.0
        for height, line, row in zip(heights, lines, rows.values(), strict=True):
            middles.append(top + height / 2)
            dots = [mark for mark in row if mark.form == "dot"]
            for mark in row:
                place = dots.index(mark) if mark in dots else line - 1  # the others share the last line
                _draw(ax, mark, middles[-1] + _STEP * (place - (line - 1) / 2), styles[mark.name], low, high)
            top += height
            ax.axhline(top, color=_LINE, lw=0.6)
        ax.set_yticks(middles, list(rows))
        ax.set(ylim=(top, 0), xlim=(low, high))
        ax.set_xlabel(axis, color=_INK)
        ax.tick_params(axis="x", color=_DIM, labelcolor=_INK)
        ax.tick_params(axis="y", length=0, labelcolor=_INK)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(_DIM)
        figure.suptitle(title, fontsize=11, fontweight="bold", x=0.02, ha="left")
        if has_legend:
            handles = [Line2D([], [], label=name, **style) for name, style in styles.items()]
            figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    return figure


def _limits(marks: Sequence[Mark]) -> tuple[float, float]:
    """The range of the axis: near dots and stars, and intervals as far as a typical interval reaches."""
    inner = [0.0, *(one.value for one in marks if one.form != "cross" and abs(one.value) <= _FAR)]
    low, high = min(inner), max(inner)
    widths = sorted(one.high - one.low for one in marks if math.isfinite(one.high - one.low))
    room = max(high - low, 1.0, *(1.3 * width for width in widths[len(widths) // 2 :][:1]))
    ends = [end for one in marks for end in (one.low, one.high) if math.isfinite(end)]
    outer = min([low, *ends]), max([high, *ends])
    reach = room if outer[1] - outer[0] <= 3 * room else room / 2  # no interval is cut if all of them nearly fit
    return max(low - reach, outer[0]) - 0.06 * room, min(high + reach, outer[1]) + 0.06 * room


def _draw(ax: Axes, mark: Mark, y: float, style: Mapping[str, Any], low: float, high: float) -> None:
    if not math.isfinite(mark.value):
        return
    if math.isfinite(mark.low):
        ax.plot([max(mark.low, low), min(mark.high, high)], [y, y], color=style["color"], lw=style.get("lw", 1))
        for is_beyond, edge, arrow in ((mark.low < low, low, "<"), (mark.high > high, high, ">")):
            if is_beyond:  # the interval continues
                ax.plot([edge], [y], arrow, ms=5, color=style["color"], clip_on=False)
    beyond = {"marker": "<" if mark.value < low else ">", "ms": 5} if not low <= mark.value <= high else {}
    drawn = {**style, **beyond, "clip_on": False, "zorder": 4}
    ax.plot([min(max(mark.value, low), high)], [y], **drawn)


def png(figure: Figure) -> bytes:
    """The figure as a picture."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    return file.getvalue()


def inline_svg(figure: Figure, label: str) -> str:
    """The figure as an ``<svg>`` element with a label; a page may change its colours, see `COLOURS`."""
    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "forest"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    (view,) = re.findall(r'viewBox="[^"]*"', text.partition(">")[0])
    text = f'<svg {view} role="img" aria-label="{escape(label)}">{text.partition(">")[2]}'
    text = re.sub(r"font: (?:[a-z]+ )*([\d.]+px) [^;\"]*", r"font-size: \1", text)
    text = text.replace("xlink:href", "href")  # HTML does not bind the prefix
    for place, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--drawn-{place})")
    return text
