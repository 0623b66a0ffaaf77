"""Numbers and names as a report writes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from tsattn.leaderboard.report.parts import Cell

__all__ = [
    "DASH",
    "MINUS",
    "PAIR",
    "count_cell",
    "each_row",
    "listed",
    "number_cell",
    "p_value",
    "percent",
    "percent_cell",
    "rough_percent",
    "score",
    "score_pair",
    "seed_counts",
    "size",
    "with_spread",
]

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
"""What stands where nothing is, and what a reader takes for a minus."""

PAIR = "MSE / MAE on the train-standardised scale"
"""What a pair of errors is."""

_PREFIXES = ("", "k", "M", "G", "T", "P")


def score(value: float) -> str:
    """``0.366``, ``0.0821``, ``0.00769``: three digits that count; a dash for what is not there."""
    return DASH if math.isnan(value) else f"{value:.{_digits(value)}f}"


def score_pair(mse: float, mae: float) -> str:
    """``0.366 / 0.391``."""
    return DASH if math.isnan(mse) and math.isnan(mae) else f"{score(mse)} / {score(mae)}"


def with_spread(value: float, spread: float) -> str:
    """``0.366 ± 0.002``; without a spread where there is none."""
    return score(value) if math.isnan(spread) else f"{score(value)} ± {spread:.{_digits(value)}f}"


def _digits(value: float) -> int:
    """How many digits of a score are written after the point."""
    return 3 if abs(value) >= 0.1 else 4 if abs(value) >= 0.01 else 5


def percent(value: float) -> str:
    """``-2.4 %`` with a real minus, ``+0.31 %``: two digits that count below 1."""
    if math.isnan(value):
        return DASH
    digits = 2 if abs(value) < 0.995 else 1
    return f"{value:+.{digits}f} %".replace("-", MINUS)


def rough_percent(value: float) -> str:
    """``1.6 %``, ``23 %``, ``over 100 %``: two digits that count, without a sign; a dash for what is not there."""
    if math.isnan(value):
        return DASH
    return "over 100 %" if value >= 99.5 else f"{value:.2g} %"


def p_value(value: float) -> str:
    """``0.031``, ``< 0.001``; a dash for what is not there."""
    return DASH if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def size(value: float, unit: str = "") -> str:
    """``1.2 M``, ``480 MB``: three digits and a prefix of thousands."""
    if math.isnan(value):
        return DASH
    power = 0
    while abs(value) >= 999.5 and power + 1 < len(_PREFIXES):
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_PREFIXES[power]}{unit}".strip()


def seed_counts(least: float, most: float) -> str:
    """``3``, ``1 to 2``: how many seeds there are at each horizon."""
    return f"{least:.0f}" if least == most else f"{least:.0f} to {most:.0f}"


def number_cell(value: float, text: str, mark: str = "", note: str = "") -> Cell:
    """A cell that is sorted by a number."""
    return Cell(text, value, mark, note)


def percent_cell(value: float, mark: str = "") -> Cell:
    """A cell of a percentage."""
    return Cell(percent(value), value, mark)


def count_cell(value: float) -> Cell:
    """A cell of a whole number."""
    return Cell(DASH if math.isnan(value) else f"{value:,.0f}", value)


def listed(names: Sequence[object]) -> str:
    """``a, b and c``."""
    words = [str(name) for name in names]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def each_row(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame, whose columns are attributes."""
    return iter(frame.itertuples())
