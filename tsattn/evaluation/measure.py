"""The one loop that scores forecasts, whoever makes them and whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.batch import Batch
from tsattn.constants import EXACT
from tsattn.errors import UserError
from tsattn.evaluation.error_recorder import MEMORY_LIMIT, ErrorRecorder
from tsattn.evaluation.error_table import ErrorTable
from tsattn.evaluation.step_totals import step_totals
from tsattn.evaluation.window_errors import point_forecast, window_errors
from tsattn.scaler import Units
from tsattn.task import check_quantiles

__all__ = ["ScoredBatch", "measure"]


@dataclass(frozen=True)
class ScoredBatch:
    """B windows and what was forecast of them.

    Attributes:
        point: `(B, T, C)` the point forecast, on the scaled axis.
        target: `(B, T, C)` on the scaled axis.
        observed: `(B, T, C)` bool; None if all is observed.
        units: mean and scale of the windows, two `(B, 1, C)` or `(1, 1, C)`.
        series: `(B,)` numbers of their series.
        time: `(B, L + T)` seconds since 1970-01-01, or steps.
    """

    point: Tensor
    target: Tensor
    observed: Tensor | None
    units: tuple[Tensor, Tensor]
    series: Tensor
    time: Tensor


@torch.no_grad()
def measure(
    forecast: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    *,
    units: Units,
    levels: Sequence[float],
    ids: Sequence[Any],
    channels: Sequence[str],
    seasonal_errors: NDArray[Any] | Tensor | None = None,
    path: str | Path | None = None,
    limit: int = MEMORY_LIMIT,
    counts_steps: bool = False,
    by_step: bool = False,
    watch: Callable[[ScoredBatch], None] | None = None,
    in_units: Callable[[Tensor, Batch, Units], Tensor] | None = None,
) -> ErrorTable:
    """The errors of a forecast in all windows.

    Windows that know their targets in original units are compared with these, exactly; others with scaled ones.

    Nothing is drawn from torch's generators here; a DataLoader draws from them where it has no generator of its own.

    Args:
        forecast: from a batch to `(B, T, C)` on the scale of the batch, or `(B, T, C, Q)` of quantiles, on any device.
            What it needs for that (eval mode, the batch on its device) is its own business.
        batches: all windows, with targets and time stamps, on any device.
        units: mean and scale of the series.
        levels: Q quantile levels, the median among them; none for point forecasts. A point forecast beside them is
            measured as one whose quantiles are all that point.
        ids: the ids of the S series that `Batch.series_id` numbers.
        channels: the names of the C channels.
        seasonal_errors: `(S, C)` in original units, what MASE divides by, NaN where it is unknown; None for all.
        path: the Parquet file that holds the rows at the end.
        limit: bytes of rows that are kept in memory; above it they are written into the file as they come, or without
            one their totals alone are kept.
        counts_steps: whether the time of the windows counts steps, not seconds.
        by_step: whether the table has totals by step of the horizon, too.
        watch: is given each batch with its forecast.
        in_units: takes point forecasts `(B, T, C)` back to original units, see `Predictor.in_units`; by default
            `Units.restore`.

    Raises:
        UserError: for no windows, no observed target, windows without targets, time stamps or series, invalid levels,
            forecasts of another shape, or a file that cannot be written.
    """
    levels = check_quantiles(levels)
    shape = len(ids), len(channels)
    divisors = torch.full(shape, torch.nan) if seasonal_errors is None else torch.as_tensor(seasonal_errors)
    if divisors.shape != shape:
        raise UserError(f"seasonal_errors must be {shape}, a row a series, not {tuple(divisors.shape)}")
    divisors = divisors.to(EXACT)
    with ErrorRecorder(ids, channels, levels, path=path, limit=limit, counts_steps=counts_steps) as recorder:
        for batch in batches:
            series, origin, target = _series(batch, len(ids)), _origins(batch), _target(batch)
            made = forecast(batch)
            device = made.device
            target = target.to(device)
            point = point_forecast(made, target, levels)
            restored = units.restore(point, batch.series_id) if in_units is None else in_units(point, batch, units)
            truth = None if batch.units is None else batch.units.target
            truth = units.restore(target, batch.series_id) if truth is None else truth
            originals = restored.to(device), truth.to(device)
            forecasts, target = (units.standardised(part, batch.series_id) for part in (made, target))
            observed = None if batch.target_observed is None else batch.target_observed.to(device)
            units.fill_constants(device)
            mean, scale = (part.to(device) for part in units.of(batch.series_id))
            errors = window_errors(forecasts, target, observed, (mean, scale), levels, originals)
            divisors = divisors.to(series.device)  # once
            recorder.record(errors, series, origin, divisors[series])
            if by_step:
                seasonal = divisors[series].to(device)
                scaled = forecasts, target, observed
                recorder.record_steps(step_totals(*scaled, (mean, scale), seasonal, levels, originals))
            if watch is not None:
                assert batch.time is not None
                point = point_forecast(forecasts, target, levels)
                watch(ScoredBatch(point, target, observed, (mean, scale), series, batch.time))
        return recorder.finish()


def _series(batch: Batch, num_series: int) -> Tensor:
    """The numbers of the series of the windows, `(B,)`."""
    if batch.series_id is not None:
        return batch.series_id
    if num_series > 1:
        raise UserError(f"windows of {num_series} series need series_id, (B,), the number of the series of each")
    return torch.zeros(len(batch), dtype=torch.long)


def _origins(batch: Batch) -> Tensor:
    """The last time stamps before the horizons, `(B,)`."""
    if batch.time is None:
        raise UserError("windows need time stamps, (B, L + T), by which their errors are known")
    return batch.time[:, batch.past.shape[1] - 1]


def _target(batch: Batch) -> Tensor:
    if batch.target is None:
        raise UserError("windows beyond the end of the data have no target to measure against")
    return batch.target
