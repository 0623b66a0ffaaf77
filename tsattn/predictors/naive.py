"""Forecasts that need no fit: what any model must beat."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.errors import whole_number
from tsattn.layers import InstanceNorm
from tsattn.predictors.base import Predictor, last_context
from tsattn.task import MOST_STEPS


class RepeatedSteps(Predictor):
    """Repeats the last steps of the context; see `SeasonalNaive` for missing steps."""

    needs_fit = False

    @property
    @override
    def seasons(self) -> tuple[int, ...]:
        return (self.context_length,)

    @override
    def forward(self, batch: Batch) -> Tensor:
        L, seasons = self.context_length, {} if batch.units is None else batch.units.seasons
        last = seasons[L].scaled if L in seasons else last_context(batch, L).past
        return self._repeated(last, self.task.prediction_length)

    @override
    def repeated(self, batch: Batch, horizon: int) -> Tensor | None:
        season = None if batch.units is None else batch.units.seasons.get(self.context_length)
        return None if season is None or season.original is None else self._repeated(season.original, horizon)

    def _repeated(self, last: Tensor, horizon: int) -> Tensor:
        return last.repeat(1, -(-horizon // self.context_length), 1)[:, :horizon]


class SeasonalNaive(RepeatedSteps):
    """The last season of the context for each season of the horizon.

    A missing step takes the last known value of its place in the season. Without one it takes the series' last known
    value before it, or before the horizon if the series is shorter than a season. Without any it takes the mean.

    Args:
        season_length: steps in a season, which is also the context length; by default the task's.
    """

    def __init__(self, *, season_length: int | None = None) -> None:
        super().__init__(season_length=season_length)
        self._season = None if season_length is None else whole_number("season_length", season_length, most=MOST_STEPS)

    @property
    @override
    def context_length(self) -> int:
        return self._season or self.task.season_length


class Persistence(RepeatedSteps):
    """The last value of the context for every step."""

    context_length = 1


class WindowMean(Predictor):
    """The mean of the observed values of the context for every step.

    Args:
        context_length: L, the steps that are averaged; by default the task's.
    """

    needs_fit = False

    def __init__(self, *, context_length: int | None = None) -> None:
        super().__init__(context_length=context_length)
        self._own_length = None if context_length is None else whole_number("context_length", context_length)

    @property
    @override
    def context_length(self) -> int:
        return self._own_length or super().context_length

    @override
    def forward(self, batch: Batch) -> Tensor:
        window = last_context(batch, self.context_length)
        level = InstanceNorm(window.past, window.past_observed).level
        return level.expand(-1, self.task.prediction_length, -1)
