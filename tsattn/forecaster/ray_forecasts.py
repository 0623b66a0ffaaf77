"""Forecasts by Ray Data: of the partitions of a folder, and of a dataset."""

from __future__ import annotations

import importlib
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
import pyarrow as pa

from tsattn.checks import whole_number
from tsattn.data.columns import id_columns
from tsattn.data.files import first_line
from tsattn.data.quiet import quiet
from tsattn.data.roles import find_roles
from tsattn.errors import UserError
from tsattn.forecaster.forecaster import Forecaster
from tsattn.forecaster.partition_forecasts import EachPartition, without_its_series
from tsattn.forecaster.partitions import Partition
from tsattn.ray_cluster import import_ray
from tsattn.training.execution import quiet_lightning

__all__ = ["each_by_ray", "forecast_dataset"]

_TASKS = 1000  # at most; of more partitions some share one
_BLOCKS = 4  # for each processor


def each_by_ray(ray: Any, accelerator: str) -> EachPartition:
    """Partitions as rows of a dataset, whose workers call the function with them and must reach the files.

    Args:
        ray: connected to a cluster.
        accelerator: of the forecaster; ``cpu`` leaves the GPUs of the cluster alone.
    """

    def each(function: Callable[[Partition], Any], partitions: Sequence[Partition]) -> Iterator[tuple[Partition, Any]]:
        by_name = {one.name: one for one in partitions}
        rows = [{"partition": asdict(one)} for one in partitions]
        data = _ray_data()
        dataset = data.from_items(rows, override_num_blocks=min(len(rows), _TASKS))
        options = _workers(ray, data, accelerator, len(rows))
        call = {"fn_constructor_args": (function,), "batch_size": 1, "batch_format": "pyarrow"}
        try:
            for row in dataset.map_batches(_CallThere, **call, **options).iter_rows():
                result = pickle.loads(row["result"])
                if isinstance(result, UserError):
                    raise result
                yield by_name[row["name"]], result
        except ray.exceptions.RayError as error:
            raise UserError(f"a worker of the cluster has failed: {first_line(error)}; what is done is kept") from error

    return each


def forecast_dataset(
    forecaster: Forecaster, dataset: Any, *, horizon: int | None = None, level: Any = None, blocks: int | None = None
) -> Any:
    """The forecasts of a dataset of Ray Data, see `Forecaster.predict_dataset`."""
    ray = import_ray("predict_dataset")
    data = _ray_data()
    if not isinstance(dataset, data.Dataset):
        what = type(dataset).__name__
        raise UserError(f"predict_dataset takes a dataset of ray.data, not a {what}; predict takes frames")
    steps = None if horizon is None else whole_number("horizon", horizon)
    names = [] if dataset.schema() is None else dataset.schema().names
    id_column = find_roles(pd.DataFrame(columns=names), "the dataset", forecaster.reader.columns).id
    if id_column is None:
        gathered = dataset.repartition(1)  # a wide table is one series
    else:
        count = max(1, _BLOCKS * int(ray.cluster_resources().get("CPU", 1)))
        count = count if blocks is None else whole_number("blocks", blocks)
        gathered = dataset.repartition(count, keys=[*id_columns(id_column, names)])
    made = without_its_series(forecaster)
    options = _workers(ray, data, forecaster.arguments["accelerator"], blocks)
    return gathered.map_batches(
        _ForecastThere, fn_constructor_args=(made, steps, level), batch_size=None, batch_format="pyarrow", **options
    )


class _CallThere:
    """A worker that calls a function with partitions.

    Args:
        function: of a partition.
    """

    def __init__(self, function: Callable[[Partition], Any]) -> None:
        self._function = function

    def __call__(self, batch: pa.Table) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {"name": [], "result": []}
        for facts in batch["partition"].to_pylist():
            lists = {name: tuple(facts[name]) for name in ("files", "keys", "whole_keys")}
            one = Partition(name=facts["name"], state=facts["state"], **lists)
            with quiet(), quiet_lightning():
                try:
                    result = self._function(one)
                except UserError as error:
                    result = error
            found["name"].append(one.name)
            found["result"].append(pickle.dumps(result))
        return found


class _ForecastThere:
    """A worker that forecasts the series of a block.

    Args:
        forecaster: without its series.
        horizon: steps to forecast; those that were fitted by default.
        level: see `Forecaster.predict`.
    """

    def __init__(self, forecaster: Forecaster, horizon: int | None, level: Any) -> None:
        self._forecaster = forecaster
        self._asked = {"horizon": horizon, "level": level}

    def __call__(self, block: pa.Table) -> Iterator[pa.Table]:
        if len(block):
            with quiet(), quiet_lightning():
                yield from self._forecaster.predict_batches(block, **self._asked)


def _workers(ray: Any, data: Any, accelerator: str, most: int | None) -> dict[str, Any]:
    """How many workers there may be: one for each GPU, where these are used, else for each processor."""
    there = ray.cluster_resources()
    cpus = int(there.get("CPU", 1))
    gpus = int(there.get("GPU", 0)) if accelerator in ("auto", "gpu", "cuda") else 0
    count = max(1, gpus or cpus)
    count = count if most is None else max(1, min(count, most))
    pool = data.ActorPoolStrategy(min_size=1, max_size=count)
    # a worker that holds the only processor keeps rows from ever reaching it
    return {"compute": pool, "num_cpus": int(cpus > 1), **({"num_gpus": 1} if gpus else {})}


def _ray_data() -> Any:
    """Ray Data, which shows no bars from now on."""
    data = importlib.import_module("ray.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return data
