"""Contexts drawn from series, as a Chronos model is given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tsattn.errors import UserError

__all__ = ["HELD_OUT", "ContextWindows"]

HELD_OUT = 5  # one series in so many, or the last part of so many of each series


@dataclass(frozen=True)
class ContextWindows:
    """Windows of series, by where they may end.

    Attributes:
        series: each `(length,)`, in any unit, missing values as NaN.
        ends: for each series the first and last end that is drawn, exclusive of the value there.
        length: values of a window at most.
    """

    series: tuple[Tensor, ...]
    ends: tuple[tuple[int, int], ...]
    length: int

    @classmethod
    def of(cls, data: Any, length: int) -> ContextWindows:
        """All windows of `data`: a list of series, or rows of a matrix, as `predict` of a pipeline takes them.

        Raises:
            UserError: for anything else, and series without a value.
        """
        rows = list(data) if isinstance(data, Sequence | Tensor) or hasattr(data, "__array__") else []
        try:
            series = tuple(torch.as_tensor(row, dtype=torch.float32).cpu() for row in rows)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError("data must be a list of series, each a row of numbers") from error
        if not series or any(row.dim() != 1 or not torch.isfinite(row).any() for row in series):
            raise UserError("data must be a list of series, each a row of numbers of which one at least is not missing")
        return cls(series, tuple((min(length, len(row)), len(row)) for row in series), length)

    def split(self) -> tuple[ContextWindows, ContextWindows]:
        """Windows to learn from, and others: of every fifth series; of fewer series, ends in their last fifth."""
        if len(self.series) >= HELD_OUT:
            held = [at % HELD_OUT == HELD_OUT - 1 for at in range(len(self.series))]
            return self._of([not one for one in held]), self._of(held)
        border = [last - max(1, (last - first) // HELD_OUT) for first, last in self.ends]
        early = tuple((min(first, at), max(at, 1)) for (first, _), at in zip(self.ends, border, strict=True))
        late = tuple((min(at + 1, last), last) for (_, last), at in zip(self.ends, border, strict=True))
        return ContextWindows(self.series, early, self.length), ContextWindows(self.series, late, self.length)

    def _of(self, chosen: Sequence[bool]) -> ContextWindows:
        pairs = [pair for pair, one in zip(zip(self.series, self.ends, strict=True), chosen, strict=True) if one]
        return ContextWindows(tuple(row for row, _ in pairs), tuple(ends for _, ends in pairs), self.length)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` windows, every series alike: `(count, length)`, NaN in front of shorter ones."""
        windows = torch.full((count, min(self.length, max(last for _, last in self.ends))), torch.nan)
        for window, at in zip(windows, torch.randint(len(self.series), (count,), generator=generator), strict=True):
            first, last = self.ends[int(at)]
            end = int(torch.randint(first, last + 1, (), generator=generator))
            values = self.series[int(at)][max(0, end - len(window)) : end]
            window[len(window) - len(values) :] = values
        return windows
