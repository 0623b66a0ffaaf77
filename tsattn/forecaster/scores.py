"""All metrics of a forecaster on series, beside the forecasts that need no model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader

from tsattn.data import WindowDataset, scaled_series
from tsattn.data.frequency import is_steps
from tsattn.evaluation import measure
from tsattn.evaluation.reductions import BY_CHANNEL
from tsattn.forecaster.unseen_windows import UnseenWindows
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.task import Output
from tsattn.training import Execution

__all__ = ["COLUMNS", "score_panel"]

COLUMNS = ("mse_original", "mae_original", "rmse_original", "mase", "smape", "wape")
"""The scores of any forecast; their names in the table end in ``_by_channel``."""

_QUANTILE_COLUMNS = ("wql", "crps_original")


def score_panel(
    fitted: FittedPredictor,
    unseen: UnseenWindows,
    batch_size: int,
    execution: Execution,
) -> pd.DataFrame:
    """The scores of a predictor, of the seasonal naive forecast and of persistence, over the same windows.

    All are in original units, over all observed targets of all series, found for each channel and averaged. Beside a
    predictor of quantiles, a forecast of points takes its point for each quantile: its WQL is then its WAPE and its
    CRPS its MAE, where the levels lie evenly around the median.

    Args:
        fitted: a predictor and its scaler.
        unseen: the windows to score.
        batch_size: windows in a batch.
        execution: where to compute.

    Returns:
        a row a predictor; columns ``windows`` and those of `COLUMNS`, for quantiles ``wql_by_channel``,
        ``crps_original_by_channel`` and ``coverage_80_by_channel`` and so on; coverage is NaN for forecasts of points.

    Raises:
        UserError: if there is no window with an observed target.
    """
    predictor, panel, origins = fitted.predictor, unseen.panel, unseen.origins
    task, output = predictor.task, predictor.output
    assert task is not None
    assert output is not None
    history = np.array([rows.start for rows in origins])  # no scale may know what is scored
    series = scaled_series(panel, fitted.scaler, history)
    predictors = {predictor.name: predictor}
    season = f"seasonal naive ({task.season_length} steps)"
    for name, kind in ((season, "seasonal_naive"), ("persistence", "persistence")):
        predictors[name] = build_predictor(kind)
        predictors[name].build(task, Output())
    rows = {}
    for name, one in predictors.items():
        windows = WindowDataset(series, origins, one.context_length, task.prediction_length)
        # a generator of its own: else it draws from torch's, and so into a training in another thread
        loader = DataLoader(windows, batch_size=batch_size, collate_fn=_as_is, generator=torch.Generator())
        table = measure(
            one.on(execution),
            loader,
            units=series.units,
            levels=output.quantiles,
            ids=panel.ids,
            channels=panel.channels,
            seasonal_errors=unseen.scale,
            counts_steps=is_steps(panel.frequency),
        )
        scores = table.scores()
        shown = [f"{score}{BY_CHANNEL}" for score in (*COLUMNS, *_QUANTILE_COLUMNS)]
        covered = [score for score in scores if score.startswith("coverage") and score.endswith(BY_CHANNEL)]
        rows[name] = {score: scores[score] for score in ("windows", *shown, *covered) if score in scores}
    return pd.DataFrame.from_dict(rows, orient="index")


def _as_is(batch: Any) -> Any:
    return batch
