"""Split-conformal calibration: what intervals must be widened by, so that they hold the share of targets that they say.

A score says by how much a target lies outside of an interval of the predictor, below 0 if inside: of quantiles as in
conformalised quantile regression, of a point forecast the absolute error, its interval being the point. An interval
widened by the ``ceil((n + 1) a)``-th smallest of n scores holds a new target with a probability of at least a, whatever
the predictor, where the new window is exchangeable with those n.

Source: Romano, Patterson & Candes, *Conformalized Quantile Regression* (2019); Lei et al., *Distribution-Free
Predictive Inference for Regression* (2018).

Shape letters: B windows, T horizon, C channels, Q quantile levels, P intervals, G groups of series, N scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor

from tsattn.descriptions import typed
from tsattn.errors import UserError, number_of, shown
from tsattn.evaluation.window_errors import central_intervals
from tsattn.scaler import SeriesId
from tsattn.task import MEDIAN, rounded_level

__all__ = [
    *("POINT", "ConformalScores", "Interval", "coverage", "highest_level", "intervals_of", "levels_of"),
    *("needed_scores", "scores_of"),
]

Interval: TypeAlias = tuple[float | None, float | None]
"""The levels of its lower and upper bound; None is no bound."""

POINT: Interval = (MEDIAN, MEDIAN)
"""The interval of a point forecast."""

_DIGITS = 9  # of a share
_TYPES = {"intervals": tuple[tuple[float | None, ...], ...], "ids": tuple[SeriesId, ...], "values": Tensor}


def levels_of(level: Any) -> tuple[float, ...]:
    """The quantile levels of central intervals, and the median.

    Args:
        level: percent that an interval is to hold, or a list of such: ``[80, 95]``.

    Raises:
        UserError: for what is no percentage above 0 and below 100.
    """
    given = list(level) if isinstance(level, Iterable) and not isinstance(level, str) else [level]
    for percent in given:
        if not isinstance(percent, Real) or isinstance(percent, bool) or not 0 < float(percent) < 100:
            raise UserError(f"level must be percent between 0 and 100, such as [80, 95], not {shown(repr(percent))}")
    if not given:
        raise UserError("level must be percent, such as [80, 95], not an empty list")
    tails = [(100 - float(percent)) / 200 for percent in given]
    bounds = {rounded_level(bound) for tail in tails for bound in (tail, 1 - tail)}
    return tuple(sorted({*bounds, MEDIAN}))


def intervals_of(levels: Sequence[float]) -> list[Interval]:
    """The intervals that quantile levels bound: central ones, widest first, then those of levels without a partner.

    Where there is no central one, as for a point forecast, it is the point: ``(0.5, 0.5)``.

    Args:
        levels: Q levels, the median among them; none for a point forecast.
    """
    pairs: list[Interval] = [(levels[low], levels[high]) for _, low, high in central_intervals(levels)]
    paired = {level for pair in pairs for level in pair}
    alone = [level for level in levels if level not in paired and level != MEDIAN]
    open_ones: list[Interval] = [(None, level) if level > MEDIAN else (level, None) for level in alone]
    return [*(pairs or [POINT]), *open_ones]


def coverage(interval: Interval) -> float:
    """The share of targets that an interval is to hold."""
    low, high = interval
    return round((1.0 if high is None else high) - (0.0 if low is None else low), _DIGITS)


def needed_scores(interval: Interval) -> int:
    """How many scores an interval needs at least: with fewer no finite one holds the share that it says."""
    share = coverage(interval)
    return math.ceil(round(share / (1 - share), _DIGITS))


def highest_level(num_scores: int) -> float:
    """The percentage of the widest interval that so many scores allow, rounded down to a tenth."""
    return math.floor(round(1000 * num_scores / (num_scores + 1), _DIGITS)) / 10


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """The scores of windows that a predictor was not trained on.

    They are on the scale of the series, in standard deviations of its training rows, so that those of many series can
    be taken together.

    Attributes:
        intervals: P, of the predictor.
        ids: of the G - 1 series that have scores of their own.
        values: `(P, G, T, C, N)` float32, rising along N and NaN after the last; the first group is of all series.
    """

    intervals: tuple[Interval, ...]
    ids: tuple[Any, ...]
    values: Tensor

    @classmethod
    def of(cls, intervals: Sequence[Interval], ids: Sequence[Any], groups: Sequence[Tensor]) -> Self:
        """Scores in any order.

        Args:
            intervals: P.
            ids: of the groups after the first.
            groups: G, each `(n, P, T, C)`, NaN where a target is missing.
        """
        most = max(len(scores) for scores in groups)
        values = torch.full((len(groups), most, *groups[0].shape[1:]), torch.nan)
        for group, scores in zip(values, groups, strict=True):
            group[: len(scores)] = scores
        rising = values.permute(2, 0, 3, 4, 1).sort(-1).values  # which has what is NaN last
        return cls(tuple(intervals), tuple(ids), rising.contiguous())

    @property
    def counts(self) -> Tensor:
        """`(G, T, C)` how many scores there are."""
        return (~self.values[0].isnan()).sum(-1)

    def groups(self, ids: Sequence[Any]) -> Tensor:
        """`(S,)` int64 the group of each of some series: its own, or the first."""
        number = {name: group for group, name in enumerate(self.ids, 1)}
        texts = {str(name): group for name, group in number.items()}
        return torch.tensor([number.get(name, texts.get(str(name), 0)) for name in ids])

    def base(self, interval: Interval) -> int:
        """The number of the predictor's interval that is widened to another: itself, or the one nearest in coverage."""
        if interval in self.intervals:
            return self.intervals.index(interval)
        central = [number for number, one in enumerate(self.intervals) if None not in one]
        return min(central, key=lambda number: abs(coverage(self.intervals[number]) - coverage(interval)))

    def widening(self, interval: Interval, channels: Sequence[str]) -> Tensor:
        """By how much the bounds of `base` are moved out, `(G, T, C)`; below 0 they are moved in.

        A series that has too few scores of its own for it takes those of all series.

        Args:
            interval: that is asked for.
            channels: the names of the C channels, for messages.

        Raises:
            UserError: if all series together have too few, saying which level they allow.
        """
        counts, share = self.counts, coverage(interval)
        rank = ((counts + 1).double() * share).round(decimals=_DIGITS).ceil().long()
        lacks = rank > counts
        if bool(lacks[0].any()):
            least = int(counts[0].min())
            step, channel = (counts[0] == least).nonzero()[0].tolist()
            raise UserError(
                f"level {100 * share:g} needs {number_of(needed_scores(interval), 'validation window')}, and of "
                f"{shown(channels[channel])}, step {step + 1}, there are {least}: ask for at most "
                f"{highest_level(least):g}, or hold out more rows for validation"
            )
        places = (rank - 1).clamp(min=0, max=self.values.shape[-1] - 1)
        found = self.values[self.base(interval)].gather(-1, places[..., None])[..., 0]
        return found.where(~lacks, found[:1])

    def to_dict(self) -> dict[str, Any]:
        """Plain data and a tensor."""
        return {"intervals": [list(one) for one in self.intervals], "ids": list(self.ids), "values": self.values}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Raises:
            TypeError: for other fields.
            ValueError: for values of another type or shape.
        """
        fields = typed(saved, _TYPES, "conformal")
        shape, values = (len(fields["intervals"]), len(fields["ids"]) + 1), fields["values"]
        if values.dim() != 5 or values.shape[:2] != shape:
            raise ValueError("the scores are not those of their intervals and series")
        return cls(**fields)


def scores_of(forecast: Tensor, target: Tensor, observed: Tensor | None, levels: Sequence[float]) -> Tensor:
    """By how much targets lie outside of the intervals of `intervals_of`, `(B, P, T, C)`, NaN where not observed.

    Args:
        forecast: `(B, T, C)`, of quantiles `(B, T, C, Q)`.
        target: `(B, T, C)`.
        observed: `(B, T, C)` bool; None if all is observed.
        levels: the Q levels; none for a point forecast.
    """
    quantiles = forecast if levels else forecast[..., None]
    places = {level: number for number, level in enumerate(levels or (MEDIAN,))}
    parts = []
    for low, high in intervals_of(levels):
        below = None if low is None else quantiles[..., places[low]] - target
        above = None if high is None else target - quantiles[..., places[high]]
        sides = [side for side in (below, above) if side is not None]
        parts.append(sides[0] if len(sides) == 1 else torch.maximum(*sides))
    scores = torch.stack(parts, 1)
    return scores if observed is None else scores.masked_fill(~observed[:, None], torch.nan)
