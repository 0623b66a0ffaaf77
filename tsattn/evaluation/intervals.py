"""Which quantile levels bound an interval around the median."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["central_intervals"]


def central_intervals(levels: Sequence[float]) -> list[tuple[float, int, int]]:
    """The pairs of levels that leave out as much below as above, widest first.

    Returns:
        for each pair its nominal coverage in percent and the numbers of its levels; for 0.1, 0.5 and 0.9 it is
        ``[(80.0, 0, 2)]``.
    """
    pairs = [(low, high) for low in range(len(levels)) for high in range(low + 1, len(levels))]
    return [
        (round(100 * (levels[high] - levels[low]), 6), low, high)
        for low, high in pairs
        if abs(levels[low] + levels[high] - 1) < 1e-9
    ]
