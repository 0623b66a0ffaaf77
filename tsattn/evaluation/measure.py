"""The one loop that scores forecasts, whoever makes them and whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsattn.batch import EXACT, Batch
from tsattn.data import Panel
from tsattn.errors import UserError
from tsattn.evaluation.error_table import MEMORY_LIMIT, ErrorRecorder, ErrorTable
from tsattn.evaluation.reductions import completed
from tsattn.evaluation.window_errors import point_forecast, window_errors
from tsattn.scaler import Units
from tsattn.task import check_quantiles

__all__ = ["ScoredBatch", "measure", "seasonal_error", "seasonal_errors", "step_totals"]

_AT_ONCE = 1 << 18  # values of a forecast that are measured together


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


@torch.no_grad()
def step_totals(
    forecast: Tensor,
    target: Tensor,
    observed: Tensor | None,
    units: tuple[Tensor, Tensor],
    seasonal_errors: Tensor,
    levels: Sequence[float] = (),
    originals: tuple[Tensor | None, Tensor | None] = (None, None),
) -> Tensor:
    """The totals of a batch for each step: what `window_errors` says of windows that are a step long.

    Args:
        forecast: `(B, T, C)` on the scaled axis; with quantiles `(B, T, C, Q)`.
        target: `(B, T, C)` on the scaled axis.
        observed: `(B, T, C)` bool; None if all is observed.
        units: mean and scale of the windows, two `(B, 1, C)` or `(1, 1, C)`.
        seasonal_errors: `(B, C)` in original units, what MASE divides by, NaN where it is unknown.
        levels: the Q quantile levels; none for a point forecast.
        originals: as for `window_errors`.

    Returns:
        `(T, C, M)` float64, see `total_names`; each window counts at every step.
    """
    B, T, C = target.shape
    some = max(1, _AT_ONCE // max(1, B * C))
    parts = []
    for first in range(0, T, some):
        part = slice(first, min(T, first + some))
        t = part.stop - first

        def alone(values: Tensor, t: int = t) -> Tensor:
            """`(B, t, ...)` as windows of one step, `(B * t, 1, ...)`."""
            return values.expand(B, t, *values.shape[2:]).reshape(B * t, 1, *values.shape[2:])

        seen = None if observed is None else alone(observed[:, part])
        mean, scale = (alone(unit) for unit in units)
        point, truth = (None if one is None else alone(one[:, part]) for one in originals)
        scaled = alone(forecast[:, part]), alone(target[:, part])
        errors = window_errors(*scaled, seen, (mean, scale), levels, (point, truth))
        totals = completed(errors.sums, alone(seasonal_errors[:, None])[:, 0])
        parts.append(totals.view(B, t, C, -1).sum(0))
    return torch.cat(parts)


def seasonal_error(past: Tensor, season_length: int, observed: Tensor | None = None) -> Tensor:
    """The mean absolute difference of values one season apart: the error of the seasonal naive forecast.

    Args:
        past: `(B, L, C)`, anything (NaN too) where it is not observed.
        season_length: steps in a season; 1 for none.
        observed: `(B, L, C)` bool; None if all is observed. Only pairs with both values observed count.

    Returns:
        `(B, C)` float64; NaN where no pair is observed.

    Raises:
        UserError: for a season below 1.
    """
    if season_length < 1:
        raise UserError(f"season_length must be at least 1, not {season_length}")
    past = past.to(EXACT)
    difference = (past[:, season_length:] - past[:, :-season_length]).abs()
    if observed is None:
        return difference.mean(1)
    pairs = observed[:, season_length:] & observed[:, :-season_length]
    return difference.where(pairs, 0.0).sum(1) / pairs.sum(1)


def seasonal_errors(panel: Panel, ends: NDArray[np.int64], season: int) -> NDArray[np.float64]:
    """The same of the first rows of each series.

    Args:
        panel: the series.
        ends: `(S,)` how many rows of each are looked at.
        season: steps in a season.

    Returns:
        `(S, C)` in original units; NaN where there is no pair of values a season apart.
    """
    errors = np.full((len(panel), len(panel.channels)), np.nan)
    for number, (start, rows) in enumerate(zip(panel.starts, ends, strict=False)):
        history = torch.from_numpy(panel.values[start : start + rows].copy())[None]
        if rows > season:
            errors[number] = seasonal_error(history, season, ~history.isnan())[0].numpy()
    return errors
