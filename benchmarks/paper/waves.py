"""Drawn waves: a task that a small transformer learns in seconds, never the same series twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import override

from benchmarks.paper.drawn_data import Drawn, DrawnDataModule
from tsattn.errors import UserError


class WaveDataModule(DrawnDataModule):
    """Series of a wave of each period (in steps), of random height (0.5 to 1.5) and phase, and noise."""

    def __init__(
        self,
        context_length: int = 32,
        prediction_length: int = 8,
        periods: Sequence[float] = (24, 8.5, 5),
        noise: float = 0.1,
        **options: Any,
    ) -> None:
        if not periods or not all(period > 0 for period in periods) or not noise >= 0:
            raise UserError(f"periods must be above 0, and noise at least 0, not {list(periods)} and {noise}")
        self.periods, self.noise = tuple(periods), noise
        how = f"waves of periods {', '.join(f'{period:g}' for period in periods)} and noise {noise:g}"
        super().__init__("waves", context_length, prediction_length, how, **options)

    @override
    def draw(self, count: int, generator: torch.Generator, done: float | None = None) -> Drawn:
        L, T = self.context_length, self.prediction_length
        heights, phases = torch.rand(2, count, 1, len(self.periods), generator=generator)
        turns = torch.arange(L + T)[:, None] / torch.tensor(self.periods)
        series = ((0.5 + heights) * torch.sin(2 * math.pi * (turns + phases))).sum(-1)
        series = series + self.noise * torch.randn(series.shape, generator=generator)
        return Drawn(series[:, :L], series[:, L:])
