"""All metrics of a forecaster on series, next to forecasts that need no model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch.utils.data import DataLoader

from tsattn.data import WindowDataset, scaled_series
from tsattn.data.frequency import is_steps
from tsattn.errors import UserError, rounded, shown
from tsattn.evaluation import ErrorTable, measure, scores_by
from tsattn.evaluation.error_table import check_group
from tsattn.evaluation.measure import ScoredBatch
from tsattn.evaluation.reductions import BY_CHANNEL, short_name
from tsattn.figures import plot_residuals
from tsattn.figures.plain_names import model_words
from tsattn.figures.residual_plots import ResidualRecorder
from tsattn.forecaster.unseen_windows import UnseenWindows
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.task import Output
from tsattn.training import Execution

__all__ = ["ScoreFrame", "measured_tables", "residual_figure", "score_panel"]

_COLUMNS = ("mse_original", "mae_original", "mase", "crps_original")
_DETAILS = ("rmse_original", "smape", "wape", "wql")


class ScoreFrame(pd.DataFrame):
    """Scores, printed with three or four digits to fit 80 columns; the values themselves are not rounded."""

    @property
    def _constructor(self) -> type[ScoreFrame]:
        return ScoreFrame

    def __repr__(self) -> str:
        """The table as text."""
        with pd.option_context("display.float_format", rounded):
            return super().__repr__()

    def _repr_html_(self) -> str | None:
        """The table in a notebook."""
        with pd.option_context("display.float_format", rounded):
            html: str | None = super()._repr_html_()  # type: ignore[misc]  # not in the stubs
            return html


def score_panel(
    fitted: FittedPredictor,
    unseen: UnseenWindows,
    batch_size: int,
    execution: Execution,
    by: str | None = None,
    *,
    detail: bool = False,
) -> ScoreFrame:
    """The scores of a predictor, of the seasonal naive forecast and of persistence, over the same windows.

    All are in original units, over all observed targets of all series, found for each channel and averaged. Beside a
    predictor of quantiles, a forecast of points takes its point for each quantile: its WQL is then its WAPE and its
    CRPS its MAE, where the levels lie evenly around the median.

    Args:
        fitted: a predictor and its scaler.
        unseen: the windows to score.
        batch_size: windows in a batch.
        execution: where to compute.
        by: ``series``, ``step`` or ``origin``, see `tsattn.evaluation.scores_by`; None for the scores of all windows.
        detail: whether to have RMSE, sMAPE, WAPE and WQL, too.

    Returns:
        a row a predictor; columns ``windows``, ``MSE``, ``MAE``, ``MASE``, and for quantiles ``CRPS`` and ``cover 80``
        (one an interval; NaN for forecasts of points); with `detail` ``RMSE``, ``sMAPE``, ``WAPE`` and ``WQL``. Where
        targets are left out of MASE or sMAPE, ``MASE left out`` and ``sMAPE left out`` say how many. With `by`, a row a
        predictor and group.

    Raises:
        UserError: if there is no window with an observed target, or ids in a column of the name of a score.
    """
    if by is not None:
        check_group(by, unseen.panel.id_name)
    with tempfile.TemporaryDirectory() as folder:
        # rows that may be too many for memory
        path = Path(folder) if by in ("series", "origin") else None
        tables = measured_tables(fitted, unseen, batch_size, execution, by_step=by == "step", folder=path)
        if by is None:
            scores = pd.DataFrame.from_dict({name: table.scores() for name, table in tables.items()}, orient="index")
        else:
            scores = scores_by(tables, by, unseen.panel)
    covered = [name for name in map(str, scores) if name.startswith("coverage_") and not name.endswith(BY_CHANNEL)]
    details = _DETAILS if detail else ()
    left_out = [f"{score}_left_out" for score in ("mase", "smape") if score in (*_COLUMNS, *details)]
    names = ["windows", *(f"{score}{BY_CHANNEL}" for score in (*_COLUMNS, *covered, *details))]
    found = [name for name in names if name in scores] + [name for name in left_out if scores[name].any()]
    return ScoreFrame(scores[found].rename(columns=short_name))


def residual_figure(
    fitted: FittedPredictor, unseen: UnseenWindows, ids: Any, ahead: int, batch_size: int, execution: Execution
) -> Figure:
    """Residuals of a predictor, and the errors by step of it and of what `score_panel` compares it with.

    Args:
        fitted: a predictor and its scaler.
        unseen: the windows.
        ids: the series, or channels of a wide panel, to look at, or a single one; None for all.
        ahead: the step of the horizon, from 1.
        batch_size: windows in a batch.
        execution: where to compute.
    """
    task = fitted.predictor.task
    if ahead > task.prediction_length:
        raise UserError(f"ahead must be from 1 to {task.prediction_length}, a step of the horizon, not {ahead}")
    chosen = ids if ids is None else [ids] if np.isscalar(ids) else list(ids)
    recorder = ResidualRecorder(unseen.panel, chosen, ahead)
    looked_at = set(recorder.series)
    origins = [rows if number in looked_at else range(0) for number, rows in enumerate(unseen.origins)]
    some = replace(unseen, origins=origins)
    tables = measured_tables(fitted, some, batch_size, execution, by_step=True, watch=recorder)
    errors = {name: table.step_scores("mae_scaled", recorder.channels) for name, table in tables.items()}
    what = f", {shown(chosen[0])}" if chosen is not None and len(chosen) == 1 else ""
    return plot_residuals(recorder.finish(), errors, f"Residuals of {model_words(fitted.predictor)}{what}")


def measured_tables(
    fitted: FittedPredictor,
    unseen: UnseenWindows,
    batch_size: int,
    execution: Execution,
    *,
    by_step: bool = False,
    folder: Path | None = None,
    watch: Callable[[ScoredBatch], None] | None = None,
) -> dict[str, ErrorTable]:
    """The errors of a predictor, of the seasonal naive forecast and of persistence, over the same windows, by name.

    Args:
        fitted: a predictor and its scaler.
        unseen: the windows to score.
        batch_size: windows in a batch.
        execution: where to compute.
        by_step: whether to have totals by step of the horizon.
        folder: for the rows that are too many for memory; None does not keep these.
        watch: is given each batch with the forecast of the predictor.
    """
    predictor, panel, origins = fitted.predictor, unseen.panel, unseen.origins
    task, output = predictor.task, predictor.output
    history = np.array([rows.start for rows in origins])  # no scale may know what is scored
    series = scaled_series(panel, fitted.scaler, history)
    predictors = {predictor.name: predictor}
    season = f"seasonal naive ({task.season_length} steps)"
    for name, kind in ((season, "seasonal_naive"), ("persistence", "persistence")):
        predictors[name] = build_predictor(kind)
        predictors[name].build(task, Output())
    tables: dict[str, ErrorTable] = {}
    for name, one in predictors.items():
        windows = WindowDataset(series, origins, one.context_length, task.prediction_length, one.seasons)
        # a generator of its own: else it draws from torch's, and so into a training in another thread
        loader = DataLoader(windows, batch_size=batch_size, collate_fn=_as_is, generator=torch.Generator())
        tables[name] = measure(
            one.on(execution),
            loader,
            units=series.units,
            levels=output.quantiles,
            ids=panel.ids,
            channels=panel.channels,
            seasonal_errors=unseen.scale,
            counts_steps=is_steps(panel.frequency),
            by_step=by_step,
            path=None if folder is None else folder / f"{len(tables)}.parquet",
            watch=watch if one is predictor else None,
            in_units=one.in_units,
        )
    return tables


def _as_is(batch: Any) -> Any:
    return batch
