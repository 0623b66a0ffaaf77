"""Windows cut from one resident tensor, a whole batch at a time.

Shape letters: B windows, L context length, T prediction length, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from tsattn.batch import Batch

__all__ = ["Series", "WindowDataset"]


@dataclass(frozen=True)
class Series:
    """A multivariate series as tensors.

    Attributes:
        values: `(rows, C)` float32, scaled, gaps imputed.
        observed: `(rows, C)` bool, or None if nothing is missing.
        time: `(rows,)` int64, seconds since 1970-01-01.
    """

    values: Tensor
    observed: Tensor | None
    time: Tensor

    def windows(self, origins: Tensor, context_length: int, prediction_length: int) -> Batch:
        """The windows whose horizons start at the rows `origins (B,)`; without targets if `prediction_length` is 0."""
        L = context_length
        rows = origins[:, None] + torch.arange(-L, prediction_length)
        values, time = self.values[rows], self.time[rows]
        observed = None if self.observed is None else self.observed[rows]
        return Batch(
            past=values[:, :L],
            target=values[:, L:] if prediction_length else None,
            past_observed=None if observed is None else observed[:, :L],
            target_observed=None if observed is None or not prediction_length else observed[:, L:],
            time=time,
        )


class WindowDataset(Dataset[Batch]):
    """The windows of one part of the data; asked for many indices at once, it answers with one batch.

    Args:
        series: what to cut from.
        origins: the rows at which horizons start, one a window.
        context_length: L.
        prediction_length: T.
    """

    def __init__(self, series: Series, origins: range, context_length: int, prediction_length: int) -> None:
        self.series = series
        self.origins = torch.arange(origins.start, origins.stop, origins.step)
        self.context_length = context_length
        self.prediction_length = prediction_length

    def __len__(self) -> int:
        return len(self.origins)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The batch of the windows with these numbers (the DataLoader's own hook for whole batches)."""
        return self.series.windows(self.origins[list(indices)], self.context_length, self.prediction_length)
