"""The windows of a frame that may be scored: those after all that the predictor was trained on."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsattn.data import Panel
from tsattn.data.continued import appended
from tsattn.errors import UserError, number_of
from tsattn.evaluation.measure import seasonal_errors
from tsattn.forecaster.fitted_series import FittedSeries
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
    def of(cls, panel: Panel, series: FittedSeries | None, task: Task, step: int) -> UnseenWindows:
        """The windows of a panel.

        Args:
            panel: the series, as the predictor needs them (`tsattn.data.matching.match_task`).
            series: those that it was fitted to; None where they are not known.
            task: what it was built for.
            step: rows between horizons.

        Raises:
            UserError: if there is none.
        """
        named = None if series is None else series.named_as(panel)
        first = np.zeros(len(panel), np.int64)
        if named is not None:
            panel, first = _after(panel, named, task)
        L, T = task.context_length, task.prediction_length
        origins = []
        short = 0  # series whose only window has less than a whole context
        for rows, before in zip(panel.lengths.tolist(), first.tolist(), strict=True):
            start = before if before else max(1, min(L, rows - T))
            short += not before and start + T <= rows < L + T
            origins.append(range(start, max(start, rows - T + 1), step))
        lacking = sum(not rows for rows in origins)
        if lacking == len(origins):
            raise UserError(
                f"there is nothing to score: no series has {T} rows (prediction_length) after those that were fitted; "
                "keep some from the fit (val_rows=..., test_rows=...), or see cross_validate"
            )
        if lacking:
            logger.warning("%d of %d series have no window to score", lacking, len(origins))
        windows = number_of(sum(map(len, origins)), "window")
        if short:
            says = "%s scored, one for each of %d series below %d rows: give more rows, or a smaller "
            says += "context_length (now %d) or prediction_length (now %d)"
            logger.warning(says, windows, short, L + T, L, T)
        else:
            logger.info("%s scored", windows)
        scale = seasonal_errors(panel, np.array([rows.start for rows in origins]), task.season_length)
        if named is not None:
            errors = dict(zip(named.panel.ids, named.seasonal_error, strict=True))
            for number, name in enumerate(panel.ids):
                if name in errors and name in named.trained_until:
                    scale[number] = errors[name]
        return cls(panel, origins, scale)


def _after(panel: Panel, series: FittedSeries, task: Task) -> tuple[Panel, NDArray[np.int64]]:
    """A panel with the rows that were fitted before it, and how many rows of each series are not to be scored."""
    number = {name: number for number, name in enumerate(panel.ids)}
    before, seen = series.panel, np.zeros(len(panel), np.int64)
    rows = np.zeros(len(before), np.int64)  # of those that were fitted, before the panel begins
    lost = 0
    for fitted, name in enumerate(before.ids):
        if name in number:
            rows[fitted] = before.time_of(fitted).searchsorted(panel.time_of(number[name])[0])
        if name in number and not rows[fitted] and name in series.trained_until:
            lost += panel.time_of(number[name])[0] > series.trained_until[name]
    if lost:
        logger.warning(
            "the rows before those of %d of %d series were fitted but not saved, so that their first %d rows are "
            "context alone; give all rows since the fit",
            *(lost, len(panel), task.context_length),
        )
    numbers = np.flatnonzero(rows)
    added = {before.ids[fitted]: before.time_of(fitted)[rows[fitted] - 1] for fitted in numbers.tolist()}
    if len(numbers):
        fitted_before = before.take(numbers).until(rows[numbers])
        if before.is_mapped:
            season = task.season_length
            fitted_before = fitted_before.last_rows(max(task.context_length, season), (season,))
        panel = appended(fitted_before, panel)
    for name, place in number.items():
        for ends in (added, series.trained_until):
            if name in ends:
                seen[place] = max(seen[place], panel.time_of(place).searchsorted(ends[name], side="right"))
    return panel, seen
