"""The colours that all figures share, and the style of your own charts next to them."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.colors import LinearSegmentedColormap

INK = "#30343b"  # truth, borders
ACCENT = "#d1495b"  # the forecast, the model that a figure is about
OTHERS = ("#30343b", "#00798c", "#edae49", "#8d96a3", "#5c4d7d")  # what it is compared with

NOTHING = "#e3e5e9"  # what is exactly 0
HEAT = LinearSegmentedColormap.from_list("heat", ["#ffffff", "#f3c9ce", ACCENT, "#5e1526"]).with_extremes(bad=NOTHING)
BOTH_SIDES = LinearSegmentedColormap.from_list("both_sides", ["#00798c", "#ffffff", ACCENT]).with_extremes(bad=NOTHING)

HOUSE: dict[Any, Any] = {
    **{"axes.titlesize": 11, "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 9},
    **{"axes.spines.right": False, "axes.spines.top": False, "legend.frameon": False, "lines.linewidth": 1.4},
    **{"figure.constrained_layout.use": True, "figure.figsize": (9, 2.9), "date.converter": "concise"},
    "axes.prop_cycle": f"cycler(color={[ACCENT, *OTHERS[1:]]})",
}


def use_house_style() -> None:
    """Draw your own charts of matplotlib and pandas in the colours and sizes of tsattn's figures, from now on."""
    matplotlib.rcParams.update(HOUSE)
