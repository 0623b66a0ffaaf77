"""Numbers and tables as reports write them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["markdown_table", "percent", "size", "with_spread"]

_DASH, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
_PREFIXES = ("", "k", "M", "G", "T", "P")


def with_spread(value: float, spread: float) -> str:
    """``0.366 ± 0.002``; without a spread where there is none."""
    digits = 3 if abs(value) >= 0.1 else 4 if abs(value) >= 0.01 else 5
    return f"{value:.{digits}f}" if math.isnan(spread) else f"{value:.{digits}f} ± {spread:.{digits}f}"


def percent(value: float) -> str:
    """``+0.31 %``, and ``-2.4 %`` with a real minus; a dash for what is not there."""
    if math.isnan(value):
        return _DASH
    return f"{value:+.{2 if abs(value) < 0.995 else 1}f} %".replace("-", _MINUS)


def size(value: float, unit: str = "") -> str:
    """``1.2 M``, ``480 MB``: three digits and a prefix of thousands."""
    power = 0
    while abs(value) >= 999.5 and power + 1 < len(_PREFIXES):
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_PREFIXES[power]}{unit}".strip()


def markdown_table(frame: pd.DataFrame) -> str:
    """A frame as a table of pipes; numbers have four digits that count, and are set to the right."""
    marks = ["---:" if pd.api.types.is_numeric_dtype(frame[name]) else "---" for name in frame]
    rows = ([_text(value) for value in row] for row in frame.itertuples(index=False))
    return "\n".join(f"| {' | '.join(line)} |" for line in (map(_escaped, map(str, frame.columns)), marks, *rows))


def _text(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return _DASH
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int | np.integer) else _escaped(str(value))


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("|", r"\|")
