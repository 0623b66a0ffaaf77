"""The windows of a frame that may be scored: those after all that the predictor was trained on."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data import Panel
from tsattn.errors import UserError
from tsattn.evaluation.seasonal import seasonal_errors
from tsattn.forecaster.fitted_series import FittedSeries
from tsattn.forecaster.reading import FrameReader, reread
from tsattn.task import Task

__all__ = ["UnseenWindows"]

logger = logging.getLogger("tsattn")


@dataclass(frozen=True)
class UnseenWindows:
    """Windows that a predictor has not seen.

    Attributes:
        panel: the series, with the rows that were fitted before them.
        origins: of each series, the rows at which horizons start.
        scale: `(S, C)` what MASE divides by: of the rows that were trained on; of a series that is new, those before
            its first horizon.
    """

    panel: Panel
    origins: list[range]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, panel: Panel, series: FittedSeries | None, task: Task, reader: FrameReader, step: int) -> UnseenWindows:
        """The windows of a panel.

        Args:
            panel: the series, as the predictor needs them (`Panel.for_task`).
            series: those that it was fitted to; None where they are not known.
            task: what it was built for.
            reader: of frames.
            step: rows between horizons.

        Raises:
            UserError: if there is none.
        """
        named = None if series is None else series.named_as(panel)
        first = np.zeros(len(panel), np.int64)
        if named is not None:
            panel, first = _after(panel, named, task, reader)
        L, T = task.context_length, task.prediction_length
        origins = []
        for rows, before in zip(panel.lengths.tolist(), first.tolist(), strict=True):
            start = before if before else max(1, min(L, rows - T))
            origins.append(range(start, max(start, rows - T + 1), step))
        lacking = sum(not rows for rows in origins)
        if lacking == len(origins):
            raise UserError(
                f"there is nothing to score: no series has {T} rows (prediction_length) after those that were fitted"
            )
        if lacking:
            logger.warning("%d of %d series have no window to score", lacking, len(origins))
        scale = seasonal_errors(panel, np.array([rows.start for rows in origins]), task.season_length)
        if named is not None:
            errors = dict(zip(named.panel.ids, named.seasonal_error, strict=True))
            for number, name in enumerate(panel.ids):
                if name in errors and name in named.trained_until:
                    scale[number] = errors[name]
        return cls(panel, origins, scale)


def _after(panel: Panel, series: FittedSeries, task: Task, reader: FrameReader) -> tuple[Panel, NDArray[np.int64]]:
    """A panel with the rows that were fitted before it, and how many rows of each series are not to be scored."""
    starts = dict(zip(panel.ids, panel.time[panel.starts[:-1]], strict=True))
    frame = series.panel.to_frame()
    owners = pd.Series(panel.ids * len(frame)) if panel.is_wide else frame[panel.id_name]
    is_before = (frame[panel.time_name] < owners.map(starts)).to_numpy()
    if is_before.any():
        panel = reread(panel, task, reader, frame[is_before])
    added = frame[panel.time_name][is_before].groupby(owners[is_before].to_numpy()).max()
    first = np.zeros(len(panel), np.int64)
    for number, name in enumerate(panel.ids):
        for ends in (added, series.trained_until):
            if name in ends:
                first[number] = max(first[number], panel.time_of(number).searchsorted(ends[name], side="right"))
    return panel, first
