"""The windows whose horizons lie beyond the end of the data."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tsattn.batch import Batch
from tsattn.data.frequency import seconds
from tsattn.data.panel import Panel
from tsattn.data.scaling import scaled_ahead
from tsattn.data.windows import Series
from tsattn.scaler import Scaler
from tsattn.task import Task

__all__ = ["FutureWindows"]

logger = logging.getLogger("tsattn")


class FutureWindows(Dataset[Batch]):
    """One window for each series: its last rows as context, and all that is known of the horizon after them.

    A batch is made when it is asked for, so that memory does not grow with the number of series.

    Args:
        panel: the series in original units, with the future of their covariates.
        series: the same, scaled.
        task: the sizes.
        scaler: has the scale of the covariates.
        horizon: steps to forecast; `task.prediction_length` by default. Time stamps and covariates reach over whole
            multiples of that: the steps that are too many repeat the last covariates.
        warns_of_short: whether series with fewer rows than the context are worth a warning.
        seasons: see `Series.windows`.

    Raises:
        UserError: if a future covariate does not reach over the horizon.
    """

    def __init__(
        self,
        panel: Panel,
        series: Series,
        task: Task,
        scaler: Scaler,
        horizon: int | None = None,
        *,
        warns_of_short: bool = True,
        seasons: Sequence[int] | None = None,
    ) -> None:
        T = task.prediction_length
        horizon = T if horizon is None else horizon
        self.panel = panel
        self.series = series
        self.context_length = task.context_length
        self.steps = -(-horizon // T) * T
        ahead = panel.future_for(horizon)
        if ahead is not None:
            ahead = ahead[:, np.arange(self.steps).clip(max=horizon - 1)]
        short = int((series.starts.diff() < task.context_length).sum())
        if short and warns_of_short:
            logger.warning(
                "%d of %d series have fewer rows than context_length %d; their contexts are padded",
                short,
                len(panel),
                task.context_length,
            )
        self._seasons = seasons
        self._ahead = scaled_ahead(ahead, scaler, panel)
        self._lacks_some = self._ahead is not None and bool(self._ahead.isnan().any())

    def __len__(self) -> int:
        return len(self.series)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The batch of these series, without targets; see `WindowDataset`."""
        numbers = torch.as_tensor(indices)
        lengths = self.series.starts[numbers + 1] - self.series.starts[numbers]
        padded = bool((lengths < self.context_length).any())
        sizes = self.context_length, 0
        batch = self.series.windows(numbers, lengths, *sizes, padded=padded, seasons=self._seasons)
        stamps = seconds(self.panel.future_times(numbers.numpy(), self.steps)).reshape(len(numbers), self.steps)
        assert batch.time is not None
        known, mask = batch.future_covariates, batch.future_covariates_observed
        if known is not None and self._ahead is not None:
            ahead = self._ahead[numbers]
            if mask is None and self._lacks_some:
                mask = torch.ones_like(known, dtype=torch.bool)
            mask = None if mask is None else torch.cat([mask, ~ahead.isnan()], 1)
            known = torch.cat([known, _filled(ahead, known[:, -1:]) if self._lacks_some else ahead], 1)
        time = torch.cat([batch.time, torch.from_numpy(stamps)], 1)
        return replace(batch, time=time, future_covariates=known, future_covariates_observed=mask)


def _filled(ahead: Tensor, before: Tensor) -> Tensor:
    """Steps `(B, T, F)`, each missing number replaced by the last known one; at first by that `before (B, 1, F)`."""
    steps = torch.arange(1, ahead.shape[1] + 1)[:, None]
    last = torch.where(ahead.isnan(), 0, steps).cummax(1).values
    return torch.cat([before, ahead], 1).gather(1, last)
