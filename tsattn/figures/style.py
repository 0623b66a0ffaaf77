"""The colours that all figures share."""

from __future__ import annotations

from matplotlib.colors import LinearSegmentedColormap

__all__ = ["ACCENT", "BOTH_SIDES", "HEAT", "INK", "NOTHING", "OTHERS"]

INK = "#30343b"  # truth, borders
ACCENT = "#d1495b"  # the forecast, the model that a figure is about
OTHERS = ("#30343b", "#00798c", "#edae49", "#8d96a3", "#5c4d7d")  # what it is compared with

NOTHING = "#e3e5e9"  # what is exactly 0
HEAT = LinearSegmentedColormap.from_list("heat", ["#ffffff", "#f3c9ce", ACCENT, "#5e1526"]).with_extremes(bad=NOTHING)
BOTH_SIDES = LinearSegmentedColormap.from_list("both_sides", ["#00798c", "#ffffff", ACCENT]).with_extremes(bad=NOTHING)
