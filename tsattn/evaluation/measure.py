"""Score forecasts in one loop, whoever makes them and whoever asks."""

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
from tsattn.errors import UserError
from tsattn.evaluation.error_table import ErrorTable, error_rows
from tsattn.evaluation.window_errors import point_forecast, step_totals, window_errors
from tsattn.scaler import Units
from tsattn.task import check_quantiles


@dataclass(frozen=True)
class ScoredBatch:
    """B windows and their point forecast on the scaled axis; the fields are as `window_errors` takes them."""

    point: Tensor  # (B, T, C)
    target: Tensor
    observed: Tensor | None
    units: tuple[Tensor, Tensor]
    series: Tensor  # (B,) numbers
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

    Windows that know their targets in original units are compared with these, exactly; others with scaled ones. Nothing
    is drawn from torch's generators; a DataLoader draws from them where it has no generator of its own.

    Args:
        forecast: from a batch to `(B, T, C)` on the scale of the batch, or `(B, T, C, Q)` of quantiles, on any device.
            It sees to eval mode and to the device of the batch itself.
        batches: all windows, with targets and time stamps, on any device.
        units: mean and scale of the series.
        levels: Q quantile levels, the median among them; none for point forecasts. A point forecast given with them is
            measured as one whose quantiles are all that point.
        ids: the ids of the S series that `Batch.series_id` numbers.
        channels: the names of the C channels.
        seasonal_errors: `(S, C)` in original units, the divisors of MASE, NaN where they are unknown; None for all.
        path: the Parquet file that takes the rows as they come; without it they stay in memory unless they are many.
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
    steps: Tensor | None = None

    def errors() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Series, origins, and sums with seasonal errors `(B, C, K + 1)` of each batch."""
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
            known = known.to(series.device)  # once
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
    """The numbers of the series `(B,)`, the time stamps `(B, L + T)` and the targets `(B, T, C)` of windows."""
    if batch.series_id is None and num_series > 1:
        raise UserError(f"windows of {num_series} series need series_id, (B,), the number of the series of each")
    if batch.time is None:
        raise UserError("windows need time stamps, (B, L + T), by which their errors are known")
    if batch.target is None:
        raise UserError("windows beyond the end of the data have no target to measure against")
    series = torch.zeros(len(batch), dtype=torch.long) if batch.series_id is None else batch.series_id
    return series, batch.time, batch.target


def seasonal_errors(panel: Panel, ends: NDArray[np.int64], season: int) -> NDArray[np.float64]:
    """Average the absolute differences of values one season apart: the error of the seasonal naive forecast.

    Args:
        panel: the series.
        ends: `(S,)` how many rows of each are looked at.
        season: steps in a season; 1 for none.

    Returns:
        `(S, C)` in original units; NaN where there is no pair of values a season apart.
    """
    errors = np.full((len(panel), len(panel.channels)), np.nan)
    for number, (start, rows) in enumerate(zip(panel.starts, ends, strict=False)):
        if rows > season:
            history = torch.from_numpy(panel.values[start : start + rows].copy()).to(EXACT)
            differences = (history[season:] - history[:-season]).abs()
            known = ~differences.isnan()
            errors[number] = (differences.where(known, 0.0).sum(0) / known.sum(0)).numpy()
    return errors
