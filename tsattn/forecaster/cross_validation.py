"""Forecasts from rolling origins, each by a model that has seen nothing after its origin."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from tsattn.data import Panel
from tsattn.data.quiet import quiet
from tsattn.errors import UserError
from tsattn.forecaster.frames import beside_truth
from tsattn.predictors.fitted import FittedPredictor

__all__ = ["rolling_forecasts"]

logger = logging.getLogger("tsattn")


def rolling_forecasts(
    panel: Panel,
    horizon: int,
    windows: int,
    step: int,
    fit: Callable[[Panel], FittedPredictor],
    forecast: Callable[[Panel, FittedPredictor], Iterable[pd.DataFrame]],
    *,
    refit: bool,
) -> pd.DataFrame:
    """The forecasts from each origin, with the cutoff and what came.

    Args:
        panel: the series.
        horizon: steps of a forecast, T; the last origin of each series is so many rows before its end.
        windows: origins of each series.
        step: rows between origins.
        fit: makes a predictor of series.
        forecast: makes frames of the steps after the end of series, see `future_frame`.
        refit: whether a predictor is made anew for each origin; else the first is used for all.

    Raises:
        UserError: if no series is long enough.
    """
    ends = panel.lengths[:, None] - horizon - step * np.arange(windows - 1, -1, -1)  # (S, windows)
    if (ends[:, 0] < 1).all():
        raise UserError(
            f"no series is long enough for {windows} windows: the longest has {panel.lengths.max()} rows, but "
            f"{horizon + step * (windows - 1) + 1} are needed"
        )
    parts, fitted = [], None
    for window in range(windows):
        numbers = np.flatnonzero(ends[:, window] >= 1)
        if len(numbers) < len(panel):
            counts = window + 1, windows, len(numbers), len(panel)
            logger.warning("window %d of %d has %d of %d series: the others are too short", *counts)
        whole = panel.take(numbers)
        # what a covariate lacks after an origin is imputed, as in the windows of a training: these rows have come
        seen = replace(whole.until(ends[numbers, window]), fills_ahead=True)
        with quiet(window > 0):  # the first has the shortest series
            if fitted is None or refit:
                fitted = fit(seen)
            frames = forecast(seen, fitted)
        parts.append(beside_truth(frames, whole, seen))
    return pd.concat(parts, ignore_index=True)
