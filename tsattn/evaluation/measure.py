"""Measure the errors of any forecast, in one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.batch import EXACT, Batch
from tsattn.data import Panel
from tsattn.data.splits import Split
from tsattn.errors import UserError
from tsattn.evaluation.error_table import ErrorTable, error_rows
from tsattn.evaluation.window_errors import point_forecast, step_totals, window_errors
from tsattn.scaler import Units
from tsattn.task import check_quantiles


def check_targets(panel: Panel, splits: Sequence[Split], part: str) -> None:
    """Refuse data without any observed target in a part."""
    for start, (first, end) in zip(panel.starts, (split.bounds(part) for split in splits), strict=False):
        if not np.isnan(panel.values[start + first : start + end]).all():
            return
    raise UserError(f"all target values of the {part} part are missing: choose another split")


@dataclass(frozen=True)
class ScoredBatch:
    """B windows and their scaled point forecast, in the form that `window_errors` takes."""

    point: Tensor  # (B, T, C)
    target: Tensor
    observed: Tensor | None
    units: tuple[Tensor, Tensor]
    series: Tensor  # (B,) numbers of the series
    time: Tensor  # (B, L + T) seconds since 1970-01-01, or steps


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
    counts_steps: bool = False,
    by_step: bool = False,
    watch: Callable[[ScoredBatch], None] | None = None,
    in_units: Callable[[Tensor, Batch, Units], Tensor] | None = None,
) -> ErrorTable:
    """Measure the errors of a forecast in all windows.

    If windows have their targets in original units, errors are exact in these units; otherwise scaled targets are
    used. Measuring uses none of torch's generators, but a DataLoader without a generator does.

    Args:
        forecast: maps a batch to `(B, T, C)` on the scale of the batch, or to quantiles `(B, T, C, Q)`, on any device.
            It must set eval mode and move the batch to its device.
        batches: all windows, with targets and time stamps, on any device.
        units: mean and scale of the series.
        levels: Q quantile levels, including the median; none for point forecasts. With levels, a point forecast is
            measured as a forecast whose quantiles all equal the point.
        ids: the ids of the S series; `Batch.series_id` numbers them.
        channels: the names of the C channels.
        seasonal_errors: `(S, C)` in original units, the divisors of MASE, NaN if unknown; None if all are unknown.
        path: the Parquet file to write rows to as they come; without it rows stay in memory, up to a limit.
        counts_steps: whether the time of the windows counts steps, not seconds.
        by_step: whether the table also has totals by step of the horizon.
        watch: called with each batch and its forecast.
        in_units: converts point forecasts `(B, T, C)` to original units, see `Predictor.in_units`; by default
            `Units.restore`.

    Raises:
        UserError: without windows or observed targets; for windows without targets, time stamps or series; for invalid
            levels, forecasts of a wrong shape, or a file that cannot be written.
    """
    levels = check_quantiles(levels)
    shape = len(ids), len(channels)
    divisors = torch.full(shape, torch.nan) if seasonal_errors is None else torch.as_tensor(seasonal_errors)
    if divisors.shape != shape:
        raise UserError(f"seasonal_errors must be {shape}, one row for each series, not {tuple(divisors.shape)}")
    steps: Tensor | None = None

    def errors() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each batch: series, origins, and sums with seasonal errors `(B, C, K + 1)`."""
        nonlocal steps
        known = divisors.to(EXACT)
        for batch in batches:
            series, time, target = _checked(batch, len(ids))
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
            scored = forecasts, target, observed, (mean, scale), levels, originals
            sums = window_errors(*scored)
            known = known.to(series.device)  # moved only once
            seasonal = known[series]
            if by_step:
                totals = step_totals(*scored, seasonal.to(device))
                steps = totals if steps is None else steps + totals
            if watch is not None:
                point = point_forecast(forecasts, target, levels)
                watch(ScoredBatch(point, target, observed, (mean, scale), series, time))
            yield series, time[:, batch.past.shape[1] - 1], torch.cat([sums, seasonal.to(sums)[..., None]], -1)

    rows = error_rows(errors(), ids, channels, levels, counts_steps=counts_steps)
    return ErrorTable.collect(rows, path, lambda: None if steps is None else steps.cpu())


def _checked(batch: Batch, num_series: int) -> tuple[Tensor, Tensor, Tensor]:
    """Check windows; return the numbers of series `(B,)`, time stamps `(B, L + T)` and targets `(B, T, C)`."""
    if batch.series_id is None and num_series > 1:
        raise UserError(f"windows of {num_series} series need series_id, (B,), the number of the series of each")
    if batch.time is None:
        raise UserError("windows need time, (B, L + T): the time stamps of their steps")
    if batch.target is None:
        raise UserError("windows beyond the end of the data have no target to measure against")
    series = torch.zeros(len(batch), dtype=torch.long) if batch.series_id is None else batch.series_id
    return series, batch.time, batch.target


def seasonal_errors(panel: Panel, ends: NDArray[np.int64], season: int) -> NDArray[np.float64]:
    """Average the absolute differences of values one season apart: the error of the seasonal naive forecast.

    Args:
        panel: the series.
        ends: `(S,)` number of rows of each series to use.
        season: steps in a season; 1 without a season.

    Returns:
        `(S, C)` in original units; NaN without a pair of values a season apart.
    """
    errors = np.full((len(panel), len(panel.channels)), np.nan)
    for number, (start, rows) in enumerate(zip(panel.starts, ends, strict=False)):
        if rows > season:
            history = torch.from_numpy(panel.values[start : start + rows].copy()).to(EXACT)
            differences = (history[season:] - history[:-season]).abs()
            known = ~differences.isnan()
            errors[number] = (differences.where(known, 0.0).sum(0) / known.sum(0)).numpy()
    return errors
