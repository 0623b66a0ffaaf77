"""Forecasts that need no fitting: what any model must beat."""

from __future__ import annotations

import torch
from torch import Tensor

from tsattn.backbones.base import Backbone
from tsattn.batch import Batch

__all__ = ["Persistence", "SeasonalNaive"]


class SeasonalNaive(Backbone):
    """The last season of the context, again and again (gaps in it are filled by the value before them).

    Args:
        prediction_length: T.
        season_length: steps in a season; the context must hold one.
    """

    def __init__(self, prediction_length: int, season_length: int) -> None:
        super().__init__()
        self.season_length = season_length
        self.prediction_length = prediction_length

    def forward(self, batch: Batch) -> Tensor:
        """See `Backbone`."""
        season = batch.past[:, -self.season_length :]
        return season[:, torch.arange(self.prediction_length) % self.season_length]


class Persistence(SeasonalNaive):
    """The last value of the context for every step.

    Args:
        prediction_length: T.
    """

    def __init__(self, prediction_length: int) -> None:
        super().__init__(prediction_length, season_length=1)
