"""Forecasts over any horizon: shorter than trained is cut, longer is rolled forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tsattn.batch import Batch
from tsattn.data import FutureWindows, Panel, Series, scaled_series
from tsattn.data.counts import check_counts
from tsattn.predictors.any_horizon import AnyHorizon
from tsattn.predictors.base import Predictor
from tsattn.scaler import Scaler
from tsattn.training import Execution

__all__ = ["beyond_training", "forecast_batches", "future_batches", "moved_on", "rolled_forecast", "window_from"]


def beyond_training(predictor: Predictor, horizon: int) -> str | None:
    """What is to be known of a horizon that is longer than was trained for; None of another."""
    task = predictor.task
    assert task is not None
    if isinstance(predictor, AnyHorizon):
        most = predictor.steps_at_once
        goes_on = "it goes on from its own quantiles, and errors add up"
        is_far = horizon > most
        return f"horizon {horizon} is longer than the {most} steps of {predictor.name}: {goes_on}" if is_far else None
    if horizon <= task.prediction_length:
        return None
    also = "; past covariates keep their last value" if task.past_covariates else ""
    return (
        f"horizon {horizon} is longer than the {task.prediction_length} steps that the model was trained for: "
        f"forecasts are fed back as context, errors add up and intervals are too narrow{also}"
    )


def rolled_forecast(predictor: Predictor, batch: Batch, horizon: int) -> Tensor:
    """The forecast of the first `horizon` steps, on the scale of the batch.

    Beyond the steps that the model was trained for, its own forecast (the median, of quantiles) takes the place of the
    context, again and again: errors add up, and intervals do not widen as they should. Past-only covariates keep their
    last value there. An `AnyHorizon` predictor goes on in its own way.

    Args:
        predictor: built for T steps.
        batch: `past (B, L, C)`; time stamps and future covariates must cover `horizon`, rounded up to a multiple of T.
        horizon: steps to forecast.

    Returns:
        `(B, horizon, C)`, with Q quantiles `(B, horizon, C, Q)`.
    """
    assert predictor.task is not None
    assert predictor.output is not None
    if isinstance(predictor, AnyHorizon):
        return predictor.forecast_to(batch, horizon)
    L, T, median = predictor.context_length, predictor.task.prediction_length, predictor.output.median
    pieces: list[Tensor] = []
    for start in range(0, horizon, T):
        piece = predictor(window_from(batch, start, L + T))
        pieces.append(piece)
        batch = moved_on(batch, piece if median is None else piece[..., median], L)
    return torch.cat(pieces, 1)[:, :horizon]


def window_from(batch: Batch, start: int, length: int) -> Batch:
    """Windows with the time stamps and future covariates of `length` steps from the step `start` on.

    Args:
        batch: their context is that before the horizon already, their time stamps and covariates reach further.
        start: steps that the horizon has moved on.
        length: L + T.
    """
    steps = slice(start, start + length)
    return replace(
        batch,
        time=_part(batch.time, steps),
        future_covariates=_part(batch.future_covariates, steps),
        future_covariates_observed=_part(batch.future_covariates_observed, steps),
    )


def moved_on(batch: Batch, values: Tensor, length: int) -> Batch:
    """Windows whose context goes on with values `(B, T, C)` in the place of what is not known; past covariates keep
    their last value.

    Args:
        batch: the windows; time stamps and future covariates stay as they are, see `window_from`.
        values: on the scale of the batch.
        length: L.
    """
    return replace(
        batch,
        past=_moved_on(batch.past, values, length),
        past_observed=None
        if batch.past_observed is None
        else _moved_on(batch.past_observed, torch.ones_like(values, dtype=torch.bool), length),
        past_covariates=_kept_on(batch.past_covariates, values.shape[1], length),
        past_covariates_observed=_kept_on(batch.past_covariates_observed, values.shape[1], length),
        units=None if batch.units is None else batch.units.moved_on(values),
    )


def forecast_batches(
    predictor: Predictor,
    scaler: Scaler,
    panel: Panel,
    horizon: int,
    batch_size: int,
    execution: Execution,
    series: Series | None = None,
) -> Iterator[Tensor]:
    """Forecasts beyond the end of each series in original units, a batch of series at a time.

    Whether the data will do is checked at once, the forecasts are made when they are asked for.

    Args:
        predictor: built and fitted.
        scaler: that it was fitted with.
        panel: the series, as its task needs them (`Panel.for_task`).
        horizon: steps to forecast.
        batch_size: series in a batch.
        execution: where to compute.
        series: the same series, scaled, where a DataModule holds them: its panel may have their last rows only.

    Returns:
        `(B, horizon, C)` float64, with Q quantiles `(B, horizon, C, Q)`; again and again, of the next series in order.

    Raises:
        UserError: if a future covariate does not reach over the horizon.
    """
    series = scaled_series(panel, scaler) if series is None else series
    loader = future_batches(predictor, scaler, panel, horizon, batch_size, series)
    rolled = predictor.on(execution, lambda batch: rolled_forecast(predictor, batch, horizon))
    units = series.units
    return (predictor.in_units(rolled(batch), batch, units) for batch in loader)


def future_batches(
    predictor: Predictor, scaler: Scaler, panel: Panel, horizon: int, batch_size: int, series: Series
) -> Iterable[Batch]:
    """The windows beyond the end of each series; the arguments are those of `forecast_batches`.

    Raises:
        UserError: for values that are no counts, if the predictor forecasts these.
    """
    assert predictor.task is not None
    if predictor.forecasts_counts:
        check_counts(panel.last_rows(predictor.context_length), "this model", of=panel)
    task = replace(predictor.task, context_length=predictor.context_length)
    warns = not predictor.takes_short_contexts
    windows = FutureWindows(panel, series, task, scaler, horizon, warns_of_short=warns, seasons=predictor.seasons)
    # a generator of its own: else it draws from torch's, and so into a training in another thread
    return DataLoader(windows, batch_size=batch_size, collate_fn=_as_is, generator=torch.Generator())


def _moved_on(past: Tensor, new: Tensor, length: int) -> Tensor:
    return torch.cat([past, new.to(past.dtype)], 1)[:, -length:]


def _kept_on(past: Tensor | None, steps: int, length: int) -> Tensor | None:
    """With the last value once more for each step."""
    return None if past is None else _moved_on(past, past[:, -1:].expand(-1, steps, -1), length)


def _part(values: Tensor | None, steps: slice) -> Tensor | None:
    return None if values is None else values[:, steps]


def _as_is(batch: Any) -> Any:
    return batch
