"""Lines over steps or time, in the colours of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import matplotlib.dates as dates
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tsattn.leaderboard.report.inline_svg import PALETTE, figure_style, inline_svg, page_colour

__all__ = ["line_figure"]

_STYLES = ("-", "--", ":", "-.")
_POINTS = 400  # of a line; more make a page large, and are not seen


def line_figure(
    lines: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
    name: str,
    label: str,
    axes: tuple[str, str],
    colours: Mapping[str, int],
) -> str:
    """An ``<svg>`` element with a line for each name.

    Args:
        lines: by what the legend says, `(N,)` numbers or time stamps, and `(N,)` values; what is not finite is left
            out.
        name: of the figure, alone in its page.
        label: what it shows.
        axes: the words under the one axis and beside the other.
        colours: by the same names, the number of the colour that a line has; those of one colour differ in their style.
    """
    with figure_style():
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        ax = figure.subplots()
        is_time = False
        drawn: Counter[int] = Counter()
        for text, (places, values) in lines.items():
            x, y = _thinned(np.asarray(places), np.asarray(values, float))
            is_time = is_time or x.dtype.kind == "M"
            number = colours[text] % len(PALETTE)
            style = _STYLES[drawn[number] % len(_STYLES)]
            drawn[number] += 1
            ax.plot(x, y, label=text, color=PALETTE[number], ls=style, lw=1.6, marker="o" if len(x) == 1 else None)
        ax.set_xlabel(axes[0])
        ax.set_ylabel(axes[1])
        ax.grid(axis="y", color=page_colour("line"), lw=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        if is_time:
            locator = dates.AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]  # fewer fit not any length
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        else:
            ax.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        if len(lines) > 1:
            figure.legend(frameon=False, fontsize=9, loc="outside upper left", ncols=1 if len(lines) < 4 else 2)
        return inline_svg(figure, name, label)


def _thinned(places: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """At most `_POINTS` of the points that are finite; of more, means of those that follow each other."""
    known = np.isfinite(values)
    places, values = places[known], values[known]
    if len(values) <= _POINTS:
        return places, values
    first = np.linspace(0, len(values), _POINTS, endpoint=False, dtype=int)
    counts = np.diff(first, append=len(values))
    return places[first], np.add.reduceat(values, first) / counts
