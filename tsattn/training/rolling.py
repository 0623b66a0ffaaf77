"""Forecasts over any horizon: shorter than trained is cut, longer is rolled forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tsattn.batch import Batch
from tsattn.data import FutureWindows, Panel, scaled_series
from tsattn.scaler import Units
from tsattn.task import Task

if TYPE_CHECKING:
    from tsattn.training.module import ForecastingModule

__all__ = ["beyond_training", "forecast_batches", "rolled_forecast"]


def beyond_training(task: Task, horizon: int) -> str | None:
    """What is to be known of a horizon that is longer than was trained for; None of another."""
    if horizon <= task.prediction_length:
        return None
    also = "; past covariates keep their last value" if task.past_covariates else ""
    return (
        f"horizon {horizon} is longer than the {task.prediction_length} steps that the model was trained for: "
        f"forecasts are fed back as context, errors add up and intervals are too narrow{also}"
    )


def rolled_forecast(model: ForecastingModule, batch: Batch, horizon: int) -> Tensor:
    """The forecast of the first `horizon` steps, on the scale of the batch.

    Beyond the steps that the model was trained for, its own forecast (the median, of quantiles) takes the place of the
    context, again and again: errors add up, and intervals do not widen as they should. Past-only covariates keep their
    last value there.

    Args:
        model: a trained model for T steps.
        batch: `past (B, L, C)`; time stamps and future covariates must cover `horizon`, rounded up to a multiple of T.
        horizon: steps to forecast.

    Returns:
        `(B, horizon, C)`, with Q quantiles `(B, horizon, C, Q)`.
    """
    assert model.task is not None
    L, T, median = model.task.context_length, model.task.prediction_length, model.output.median
    pieces: list[Tensor] = []
    for start in range(0, horizon, T):
        window = replace(
            batch,
            time=None if batch.time is None else batch.time[:, start : start + L + T],
            future_covariates=None
            if batch.future_covariates is None
            else batch.future_covariates[:, start : start + L + T],
        )
        piece = model(window)
        pieces.append(piece)
        point = piece if median is None else piece[..., median]
        batch = replace(
            batch,
            past=_moved_on(batch.past, point, L),
            past_observed=None
            if batch.past_observed is None
            else _moved_on(batch.past_observed, torch.ones_like(point, dtype=torch.bool), L),
            past_covariates=None
            if batch.past_covariates is None
            else _moved_on(batch.past_covariates, batch.past_covariates[:, -1:].expand(-1, T, -1), L),
        )
    return torch.cat(pieces, 1)[:, :horizon]


def forecast_batches(
    model: ForecastingModule, panel: Panel, horizon: int, batch_size: int, device: torch.device
) -> Iterator[Tensor]:
    """Forecasts beyond the end of each series in original units, a batch of series at a time.

    Whether the data will do is checked at once, the forecasts are made when they are asked for.

    Returns:
        `(B, horizon, C)` float64, with Q quantiles `(B, horizon, C, Q)`; again and again, of the next series in order.

    Raises:
        UserError: if a future covariate does not reach over the horizon.
    """
    assert model.task is not None
    assert model.scaler is not None
    series = scaled_series(panel, model.scaler)
    units = Units(series.mean, series.scale)
    windows = FutureWindows(panel, series, model.task, model.scaler, horizon)
    # a generator of its own: else it draws from torch's, and so into a training in another thread
    loader = DataLoader(windows, batch_size=batch_size, collate_fn=_as_is, generator=torch.Generator())
    return _forecasts(model.to(device).eval(), loader, horizon, units, device)


@torch.inference_mode()
def _forecasts(
    model: ForecastingModule, batches: Iterable[Batch], horizon: int, units: Units, device: torch.device
) -> Iterator[Tensor]:
    for batch in batches:
        scaled = rolled_forecast(model, batch.to(device), horizon)
        yield units.restore(scaled.cpu(), batch.series_id)


def _moved_on(past: Tensor, new: Tensor, length: int) -> Tensor:
    return torch.cat([past, new.to(past.dtype)], 1)[:, -length:]


def _as_is(batch: Any) -> Any:
    return batch
