"""Which windows of a test part a page has room for: the worst, the best, the median, and some evenly spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["ChosenWindow", "choose_windows", "spread_windows"]

_SERIES = 16  # at most
_WINDOWS = 11  # of a series, at most


@dataclass(frozen=True)
class ChosenWindow:
    """A channel of a window.

    Attributes:
        window: its number among those of the part.
        channel: its number.
        word: why it was chosen: ``highest error``, ``lowest error``, ``median error`` or nothing.
        about: the same of its series.
    """

    window: int
    channel: int
    word: str = ""
    about: str = ""


def choose_windows(errors: Sequence[pd.DataFrame], room: int) -> list[ChosenWindow]:
    """Windows by the mean squared errors of all runs, those of one series together.

    Series are evenly spread over their ranks, the worst first; of each series its worst, median and best window, and
    others evenly spread over its time.

    Args:
        errors: of runs on the same windows, `ReportedRun.errors`, in the order of the windows.
        room: how many windows may be chosen.
    """
    first = errors[0]
    squared = np.sum([one["squared_scaled"].to_numpy(np.float64) for one in errors], axis=0)
    count = first["count"].to_numpy(np.float64)
    numbers, _ = pd.factorize(first["unique_id"])
    channel, channels = pd.factorize(first["channel"])  # rows of a window follow each other, channel by channel
    group = numbers * len(channels) + channel
    known = (count > 0) & np.isfinite(squared)
    if not known.any():
        return []
    sums = np.zeros((2, int(group.max()) + 1))
    np.add.at(sums[0], group[known], squared[known])
    np.add.at(sums[1], group[known], count[known])
    there = np.flatnonzero(sums[1])
    order = there[np.argsort(-sums[0][there] / sums[1][there], kind="stable")]
    each = int(np.clip(room // min(len(order), 4), 3, _WINDOWS))
    places = _even(len(order), int(np.clip(room // each, 1, _SERIES)))
    found = []
    for place in places:
        rows = np.flatnonzero((group == order[place]) & known)
        about = _word(place, len(order))
        ranks = rows[np.argsort(-squared[rows] / count[rows], kind="stable")]
        words = {int(ranks[rank]): _word(rank, len(ranks)) for rank in _even(len(ranks), 3)}
        for place_in_time in _even(len(rows), each - len(words)):
            words.setdefault(int(rows[place_in_time]), "")
        found += [ChosenWindow(row // len(channels), row % len(channels), words[row], about) for row in sorted(words)]
    return found


def spread_windows(windows: int, channels: int, room: int) -> list[ChosenWindow]:
    """Windows evenly spread over all of them, where their errors are not known."""
    shown = _even(channels, max(1, min(_SERIES, room // 3)))
    each = max(1, room // len(shown))
    return [ChosenWindow(int(window), int(channel)) for channel in shown for window in _even(windows, each)]


def _even(length: int, count: int) -> NDArray[np.int64]:
    """So many of the numbers from 0 to `length`, both ends among them."""
    if count <= 0:
        return np.zeros(0, np.int64)
    return np.unique(np.linspace(0, length - 1, min(count, length)).round().astype(np.int64))


def _word(rank: int, of: int) -> str:
    words = {0: "highest error", of - 1: "lowest error"} if of > 1 else {}
    return words.get(int(rank), "median error" if of > 2 and abs(rank - (of - 1) / 2) < 1 else "")
