"""Forecasts of a dataset of Ray Data, on all machines of a cluster."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tsattn.data.columns import id_columns
from tsattn.data.table_rows import find_roles
from tsattn.errors import UserError, import_ray, quiet, whole_number
from tsattn.forecaster.forecaster import Forecaster
from tsattn.training.execution import quiet_lightning

_BLOCKS = 4  # for each processor


def predict_dataset(
    forecaster: Forecaster, dataset: Any, *, horizon: int | None = None, level: Any = None, blocks: int | None = None
) -> Any:
    """Forecast a Ray dataset on its cluster; return a lazy dataset with the columns of `Forecaster.predict`.

    Args:
        forecaster: a fitted forecaster, or a forecaster that needs no fit.
        dataset: ``ray.data.Dataset`` of long rows, or of wide rows, which are one series.
        horizon: as in `Forecaster.predict`, like `level`.
        level: intervals.
        blocks: number of blocks of series, each in the memory of one worker; four per processor by default.

    Raises:
        UserError: before `fit`, if the dataset has another type, or without Ray.
    """
    if forecaster.predictor.needs_fit:
        _ = forecaster.task  # refuses a forecaster that is not fitted
    ray = import_ray("predict_dataset")
    data = importlib.import_module("ray.data")
    if not isinstance(dataset, data.Dataset):
        what = type(dataset).__name__
        raise UserError(f"predict_dataset takes a dataset of ray.data, not a {what}; predict takes frames")
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    steps = None if horizon is None else whole_number("horizon", horizon)
    names = [] if dataset.schema() is None else dataset.schema().names
    id_column = find_roles(pd.DataFrame(columns=names), "the dataset", forecaster._options.data.reader).id
    there, takes_gpus = ray.cluster_resources(), forecaster.arguments["accelerator"] in ("auto", "gpu", "cuda")
    cpus, gpus = int(there.get("CPU", 1)), int(there.get("GPU", 0)) if takes_gpus else 0
    if id_column is None:
        gathered = dataset.repartition(1)  # a wide table is one series
    else:
        count = max(1, _BLOCKS * cpus) if blocks is None else whole_number("blocks", blocks)
        gathered = dataset.repartition(count, keys=[*id_columns(id_column, names)])
    workers = max(1, min(gpus or cpus, gpus or cpus if blocks is None else blocks))
    # a worker that holds the only processor keeps rows from ever reaching it
    resources = {"num_cpus": int(cpus > 1), **({"num_gpus": 1} if gpus else {})}
    pool = data.ActorPoolStrategy(min_size=1, max_size=workers)
    how = {"batch_size": None, "batch_format": "pyarrow", "compute": pool, **resources}
    series, options = forecaster.series, forecaster._options
    if series is not None:  # time stamps are converted to the zone of these; one is small enough to send
        one, errors = series.panel.take(np.array([0])).last_rows(1), series.seasonal_error[:1]
        series = replace(series, panel=one, trained_until={}, seasonal_error=errors)
    training = replace(options.training, callbacks=None, logger=None)  # objects of this machine
    options = replace(options, given={**options.given, "training": None}, training=training, states=[])
    sent = Forecaster.__new__(Forecaster)._take(options, forecaster.fitted, series)
    made = (sent, {"horizon": steps, "level": level})
    return gathered.map_batches(_ForecastThere, fn_constructor_args=made, **how)


class _ForecastThere:
    """Worker that forecasts the series of a block."""

    def __init__(self, forecaster: Forecaster, asked: dict[str, Any]) -> None:
        self._forecaster, self._asked = forecaster, asked

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        if len(block):
            with quiet(), quiet_lightning():
                yield from self._forecaster.predict_batches(block, **self._asked)
