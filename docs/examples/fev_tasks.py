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
from tsattn.forecaster.forecaster import Forecaster
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
    """Return a `Forecaster` with the horizon, frequency, columns and quantiles of a task.

    Args:
        task: the task; its data are loaded, to see what is in its columns.
        backbone: predictor. It forecasts the quantiles of the task and the median if it can, else points.
        covariates: use the covariates (those that are no numbers are logged) and static columns of the task.
        **arguments: arguments of `Forecaster`, which replace those of the task.
    """
    features = task.load_full_dataset().features
    decided: dict[str, Any] = {
        **{"prediction_length": task.horizon, "frequency": task.freq, "quantiles": None},
        **{"id_column": task.id_column, "time_column": task.timestamp_column, "target": list(task.target_columns)},
    }
    model = Forecaster(backbone, arguments.get("attention")).predictor
    if task.quantile_levels and model.emits_quantiles:
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
    """Forecast all evaluation windows of a task, as its ``evaluation_summary`` takes them.

    A forecaster that is not fitted is fitted to the rows before the first cutoff, so that no window is trained on. A
    predictor of points gives its point for each quantile of the task.

    Args:
        forecaster: forecaster with the columns of the task, see `fev_forecaster`; it is left fitted.
        task: the task; its data are loaded.
        refit: fit again before each window, to all rows before its cutoff.

    Raises:
        UserError: for another target or quantile than the forecaster forecasts, or data that it cannot use.
    """
    targets, levels = list(task.target_columns), forecaster.arguments["quantiles"]
    if list(forecaster.arguments["target"] or ()) != targets:
        raise UserError(f"the task forecasts {one_of(targets)}: give the forecaster target={targets}")
    if lacking := [level for level in task.quantile_levels if levels and level not in levels]:
        known = one_of(map(str, levels))
        raise UserError(f"the task asks for the quantile {lacking[0]}, and the forecaster has {known} alone")
    return [_window_forecast(forecaster, task, window, refit=refit) for window in task.iter_windows()]


def _window_forecast(
    forecaster: Forecaster, task: fev.Task, window: fev.EvaluationWindow, *, refit: bool
) -> datasets.DatasetDict:
    import datasets
    import fev

    given, ids = forecaster.arguments, task.id_column
    past, future, static = fev.convert_input_data(window, adapter="pandas")
    covariates = {*given["past_covariates"], *given["future_covariates"]}
    past, future = (
        frame.astype({name: float for name in covariates if name in frame and frame[name].dtype == bool})
        for frame in (past, future)
    )
    if used := list(given["static"]):
        past = past.merge(static[[ids, *used]].astype(dict.fromkeys(used, str)), on=ids)
    if forecaster.predictor.needs_fit and (refit or forecaster.fitted is None):
        forecaster.fit(past)
    frame = pd.concat(_predicted(forecaster, task, past, future), ignore_index=True)
    keys = pd.MultiIndex.from_frame(future[[ids, task.timestamp_column]])
    rows, columns = len(future) // task.horizon, {}
    for target in task.target_columns:
        part = frame if "target_name" not in frame else frame[frame["target_name"] == target]
        found = part.set_index([ids, task.timestamp_column]).reindex(keys)
        if found["predictions"].isna().any():
            name, stamp = keys[int(found["predictions"].isna().argmax())]
            raise UserError(
                f"series {name} cannot be forecast at {stamp}: it has no target before, or other time stamps than "
                f"those of frequency {task.freq!r}"
            )
        made = {
            name: found[name if name in found else "predictions"].to_numpy(np.float64).reshape(rows, -1)
            for name in ("predictions", *map(str, task.quantile_levels))
        }
        columns[target] = datasets.Dataset.from_dict(made)
    return datasets.DatasetDict(columns)


def _predicted(
    forecaster: Forecaster, task: fev.Task, past: pd.DataFrame, future: pd.DataFrame
) -> Iterator[pd.DataFrame]:
    """Yield forecasts over the horizons of all series, and before them where the last targets are missing.

    With future covariates a forecast starts after the last row with a target, so that series are forecast together that
    end with as many rows without one.
    """
    known, ids = list(forecaster.arguments["future_covariates"]), task.id_column
    if not known:
        yield forecaster.predict(past, horizon=task.horizon)
        return
    seen = past[list(task.target_columns)].notna().any(axis=1)
    after = past.groupby(ids, sort=False).cumcount(ascending=False)
    lacking = after[seen].groupby(past.loc[seen, ids], sort=False).min()  # rows after the last one with a target
    for count, names in lacking.groupby(lacking).groups.items():
        ahead = future.loc[future[ids].isin(names), [ids, task.timestamp_column, *known]]
        yield forecaster.predict(past[past[ids].isin(names)], horizon=task.horizon + int(str(count)), future=ahead)
