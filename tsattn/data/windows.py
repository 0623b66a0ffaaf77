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
        L, length = context_length, context_length + prediction_length
        first = origins - L

        def cut(rows: Tensor) -> Tensor:
            # one copy of long runs out of a view of all windows: many times faster than indexing row by row
            return rows.unfold(0, length, 1).movedim(-1, 1).index_select(0, first)

        values, time = cut(self.values), cut(self.time)
        observed = None if self.observed is None else cut(self.observed)
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
        return self.series.windows(self.origins[torch.as_tensor(indices)], self.context_length, self.prediction_length)
