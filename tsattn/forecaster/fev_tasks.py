"""Forecasts for tasks of the benchmark library fev.

task = fev.Task(dataset_path="sales.parquet", horizon=28, num_windows=3, quantile_levels=[0.1, 0.9])
forecaster = fev_forecaster(task, "patchtst", context_length=112)
summary = task.evaluation_summary(forecast_fev_task(forecaster, task), model_name="patchtst")
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tsattn.descriptions import DEFAULT_BACKBONE, Description
from tsattn.errors import UserError, one_of
from tsattn.forecaster.arguments import described
from tsattn.forecaster.forecaster import Forecaster
from tsattn.predictors import build_predictor
from tsattn.task import MEDIAN

if TYPE_CHECKING:
    import datasets
    import fev

__all__ = ["fev_forecaster", "forecast_fev_task"]

_NUMBERS = ("int", "uint", "float", "bool")

logger = logging.getLogger("tsattn")


def fev_forecaster(
    task: fev.Task, backbone: Description = DEFAULT_BACKBONE, *, covariates: bool = True, **arguments: Any
) -> Forecaster:
    """A `Forecaster` for a task, which decides its horizon, frequency, columns and quantiles.

    Args:
        task: its data are loaded, for what is in its columns.
        backbone: what forecasts; it forecasts the quantiles of the task and the median where it can, else points.
        covariates: whether to use the covariates and static columns of the task. Covariates that are no numbers are
            left out, which is logged.
        **arguments: those of `Forecaster`, in place of what the task decides, too.

    Raises:
        UserError: for an argument that is not valid.
    """
    features = task.load_full_dataset().features
    decided: dict[str, Any] = {
        "prediction_length": task.horizon,
        "frequency": task.freq,
        "id_column": task.id_column,
        "time_column": task.timestamp_column,
        "target": list(task.target_columns),
        "quantiles": None,
    }
    if task.quantile_levels and build_predictor(described(backbone, arguments.get("attention"))).emits_quantiles:
        decided["quantiles"] = sorted({*task.quantile_levels, MEDIAN})
    if covariates:
        roles = {"past_covariates": task.past_dynamic_columns, "future_covariates": task.known_dynamic_columns}
        for role, columns in roles.items():
            kinds = {column: str(features[column].feature.dtype) for column in columns}
            decided[role] = [column for column, kind in kinds.items() if kind.startswith(_NUMBERS)]
            if left := [column for column in columns if column not in decided[role]]:
                logger.warning("covariates that are no numbers are left out: %s", one_of(left))
        decided["static"] = list(task.static_columns)
    return Forecaster(backbone, **{**decided, **arguments})


def forecast_fev_task(forecaster: Forecaster, task: fev.Task, *, refit: bool = False) -> list[datasets.DatasetDict]:
    """Forecasts of all evaluation windows of a task, as its ``evaluation_summary`` takes them.

    A forecaster that is not fitted is fitted to what comes before the first cutoff, so that no window is trained on;
    one that is fitted forecasts as it is. What needs no fit forecasts at once.

    A predictor of points gives its point for each quantile that the task asks for.

    Args:
        forecaster: with the columns of the task, see `fev_forecaster`; it is left fitted.
        task: its data are loaded.
        refit: whether to fit anew before each window, to all that comes before its cutoff.

    Returns:
        one for each window: by target column, a row for each series, with ``predictions`` and a column for each
        quantile level.

    Raises:
        UserError: for another target or quantile than the forecaster forecasts, or data that it cannot use.
    """
    targets, levels = list(task.target_columns), forecaster.arguments["quantiles"]
    if list(forecaster.arguments["target"] or ()) != targets:
        raise UserError(f"the task forecasts {one_of(targets)}: give the forecaster target={targets}")
    lacking = [level for level in task.quantile_levels if levels and level not in levels]
    if lacking:
        raise UserError(
            f"the task asks for the quantile {lacking[0]}, and the forecaster has {one_of(map(str, levels))} alone"
        )
    return [_window_forecast(forecaster, task, window, refit=refit) for window in task.iter_windows()]


def _window_forecast(
    forecaster: Forecaster, task: fev.Task, window: fev.EvaluationWindow, *, refit: bool
) -> datasets.DatasetDict:
    """The forecasts of a window."""
    import datasets
    import fev

    past, future, static = fev.convert_input_data(window, adapter="pandas")
    past, future = (_as_numbers(frame, forecaster) for frame in (past, future))
    used = list(forecaster.arguments["static"])
    if used:
        static = static[[task.id_column, *used]].astype(dict.fromkeys(used, str))
        past = past.merge(static, on=task.id_column)
    if forecaster.predictor.needs_fit and (refit or forecaster.fitted is None):
        forecaster.fit(past)
    frame = pd.concat(_predicted(forecaster, task, past, future), ignore_index=True)
    keys = pd.MultiIndex.from_frame(future[[task.id_column, task.timestamp_column]])
    rows = len(future) // task.horizon
    columns = {}
    for target in task.target_columns:
        part = frame if "target_name" not in frame else frame[frame["target_name"] == target]
        found = part.set_index([task.id_column, task.timestamp_column]).reindex(keys)
        if found["predictions"].isna().any():
            name, stamp = keys[int(found["predictions"].isna().argmax())]
            raise UserError(
                f"series {name} cannot be forecast at {stamp}: it has no target before, or other time stamps than "
                f"those of frequency {task.freq!r}"
            )
        named = {"predictions": "predictions", **{str(level): str(level) for level in task.quantile_levels}}
        made = {
            name: found[column if column in found else "predictions"].to_numpy(np.float64).reshape(rows, -1)
            for name, column in named.items()
        }
        columns[target] = datasets.Dataset.from_dict(made)
    return datasets.DatasetDict(columns)


def _as_numbers(frame: pd.DataFrame, forecaster: Forecaster) -> pd.DataFrame:
    """The frame with truth values as numbers, where they are covariates."""
    covariates = {*forecaster.arguments["past_covariates"], *forecaster.arguments["future_covariates"]}
    return frame.astype({name: float for name in covariates if name in frame and frame[name].dtype == bool})


def _predicted(
    forecaster: Forecaster, task: fev.Task, past: pd.DataFrame, future: pd.DataFrame
) -> Iterator[pd.DataFrame]:
    """Forecasts over the horizons of all series, and before them where the last targets are missing.

    With future covariates a forecast starts after the last row with a target, so that series are forecast together that
    end with as many rows without one.
    """
    known = list(forecaster.arguments["future_covariates"])
    if not known:
        yield forecaster.predict(past, horizon=task.horizon)
        return
    ids = task.id_column
    seen = past[list(task.target_columns)].notna().any(axis=1)
    after = past.groupby(ids, sort=False).cumcount(ascending=False)
    lacking = after[seen].groupby(past.loc[seen, ids], sort=False).min()  # rows after the last one with a target
    future = future[[ids, task.timestamp_column, *known]]
    for count, names in lacking.groupby(lacking).groups.items():
        some = past[past[ids].isin(names)]
        ahead = future[future[ids].isin(names)]
        yield forecaster.predict(some, horizon=task.horizon + int(str(count)), future=ahead)
