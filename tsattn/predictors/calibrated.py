"""A fitted predictor whose intervals are widened to hold the share of targets that they say.

Shape letters: B windows, T horizon, C channels, Q quantile levels, G groups of series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.data.batch_order import spread
from tsattn.data.splits import all_origins
from tsattn.errors import UserError, one_of
from tsattn.predictors.any_horizon import AnyHorizon
from tsattn.predictors.base import Predictor
from tsattn.predictors.conformal import (
    POINT,
    ConformalScores,
    Interval,
    coverage,
    intervals_of,
    levels_of,
    needed_scores,
    scores_of,
)
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.long_horizons import rolled_forecast
from tsattn.task import Output

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Execution, Training

__all__ = ["Calibrated", "check_calibration", "conformal_scores", "with_levels"]

OWN_WINDOWS = 100
"""Validation windows from which on a series has scores of its own: they tell apart all levels up to 99."""

_MOST_WINDOWS = 1000  # of a group; neighbours are alike, so that more of them say little more
_NUMBERS = 1 << 24  # that are kept, but for the `OWN_WINDOWS` that there are in any case


class Calibrated(AnyHorizon):
    """Quantiles of a fitted predictor, of points too, moved by conformal scores.

    The median stays. Bounds never cross it, and those of a higher level never lie inside those of a lower one: both
    make intervals wider alone. Steps beyond the horizon that it was fitted for have the scores of the last one.

    Args:
        predictor: built and fitted.
        scores: its own.
        levels: Q levels to forecast, the median among them.
        ids: of the series that `Batch.series_id` numbers.

    Raises:
        UserError: for a level that the scores are too few for.
    """

    def __init__(
        self, predictor: Predictor, scores: ConformalScores, levels: Sequence[float], ids: Sequence[Any]
    ) -> None:
        super().__init__()
        assert predictor.task is not None, "build(task, output) comes first"
        self.predictor = predictor
        self.task, self.output = predictor.task, Output(tuple(levels))
        self.needs_fit, self.is_trained = predictor.needs_fit, predictor.is_trained
        self.emits_quantiles, self.uses_covariates = True, predictor.uses_covariates
        self.takes_short_contexts = predictor.takes_short_contexts
        asked = [interval for interval in intervals_of(levels) if interval != POINT]
        self._scores = scores
        self._moves = [(interval, scores.widening(interval, self.task.channels)) for interval in asked]
        self._groups = scores.groups(ids)

    @property
    @override
    def description(self) -> dict[str, Any]:
        return self.predictor.description

    @property
    @override
    def name(self) -> str:
        return self.predictor.name

    @property
    @override
    def label(self) -> str:
        return self.predictor.label

    @property
    @override
    def forecasts_counts(self) -> bool:
        return self.predictor.forecasts_counts

    @property
    @override
    def context_length(self) -> int:
        return self.predictor.context_length

    @property
    @override
    def seasons(self) -> tuple[int, ...]:
        return self.predictor.seasons

    @override
    def repeated(self, batch: Batch, horizon: int) -> Tensor | None:
        """The median, which stays that of the predictor."""
        return self.predictor.repeated(batch, horizon)

    @property
    @override
    def steps_at_once(self) -> int:
        if isinstance(self.predictor, AnyHorizon):
            return self.predictor.steps_at_once
        assert self.task is not None
        return self.task.prediction_length

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        raise RuntimeError("what is calibrated was fitted before")

    @override
    def on(self, execution: Execution, forecast: Callable[[Batch], Tensor] | None = None) -> Callable[[Batch], Tensor]:
        """Where the predictor forecasts."""
        return self.predictor.on(execution, forecast or self)

    @override
    def forecast_to(self, batch: Batch, horizon: int) -> Tensor:
        return self._moved(rolled_forecast(self.predictor, batch, horizon), batch.series_id)

    def _moved(self, forecast: Tensor, series_id: Tensor | None) -> Tensor:
        """The Q quantiles `(B, T, C, Q)` of a forecast of the predictor."""
        assert self.output is not None
        assert self.output.median is not None
        assert self.predictor.output is not None
        own, levels, middle = self.predictor.output, self.output.quantiles, self.output.median
        forecast = forecast.to(torch.promote_types(forecast.dtype, torch.float32))
        quantiles = forecast[..., None] if own.median is None else forecast
        point = quantiles[..., own.median or 0]
        bounds = [point] * len(levels)
        groups = self._groups[:1] if series_id is None else self._groups[series_id.to("cpu")]
        for interval, move in self._moves:
            steps = torch.arange(forecast.shape[1]).clamp(max=move.shape[1] - 1)
            moved = move[groups][:, steps].to(forecast)
            widened = self._scores.intervals[self._scores.base(interval)]
            for wanted, base, sign in zip(interval, widened, (-1, 1), strict=True):
                if wanted is not None and base is not None:
                    place = 0 if own.median is None else own.quantiles.index(base)
                    bounds[levels.index(wanted)] = quantiles[..., place] + sign * moved
        above = torch.stack(bounds[middle:], -1).cummax(-1).values
        below = torch.stack(bounds[middle::-1], -1).cummin(-1).values.flip(-1)
        return torch.cat([below, above[..., 1:]], -1)


def with_levels(fitted: FittedPredictor, ids: Sequence[Any], level: Any = None) -> FittedPredictor:
    """A fitted predictor with its quantiles calibrated, if it has scores.

    Args:
        fitted: the predictor.
        ids: of the series that are forecast.
        level: percent of the intervals to forecast in the place of its quantiles, see `levels_of`; None for these.

    Raises:
        UserError: for levels of what is not calibrated, or that its scores are too few for.
    """
    output = fitted.predictor.output
    assert output is not None
    levels = output.quantiles if level is None else levels_of(level)
    if fitted.conformal is None and level is not None:
        own = f"; its quantiles are {one_of(map(str, output.quantiles))}" if output.quantiles else ""
        raise UserError(
            f"intervals of any level need calibrate=True (--model.calibrate true) where the model is fitted{own}"
        )
    if fitted.conformal is None or not levels:
        return fitted
    calibrated = Calibrated(fitted.predictor, fitted.conformal, levels, ids).eval()
    return FittedPredictor(calibrated, fitted.scaler)


def check_calibration(data: ForecastDataModule, output: Output) -> None:
    """Refuse data with too few validation windows to calibrate the quantiles of a model.

    Args:
        data: set up; its validation part is what is calibrated by.
        output: of the model.

    Raises:
        UserError: saying how many there are, and how many are needed.
    """
    if "val" not in data.parts:
        raise UserError("calibrate needs rows for validation, and no series has enough of them")
    windows = len(data.windows("val"))
    widest = max(intervals_of(output.quantiles), key=coverage)
    if windows < max(1, needed_scores(widest)):
        raise UserError(
            f"calibrate needs {needed_scores(widest)} validation windows for an interval of {100 * coverage(widest):g} "
            f"%, and there {'is' if windows == 1 else 'are'} {windows}: hold out more rows for validation"
        )


def conformal_scores(predictor: Predictor, data: ForecastDataModule, execution: Execution) -> ConformalScores:
    """The scores of the validation windows: of all series together, and of each that has `OWN_WINDOWS` of them.

    Of very many windows those that are taken are spread over all series and their time, and where all of it would be
    too much, no series has scores of its own.

    Args:
        predictor: built and fitted.
        data: set up.
        execution: where to compute.
    """
    assert data.panel is not None
    assert predictor.output is not None
    levels = predictor.output.quantiles
    intervals: list[Interval] = intervals_of(levels)
    windows = data.windows("val", predictor.context_length, predictor.seasons)
    T, C = data.prediction_length, len(data.panel.channels)
    counts = [len(rows) for rows in all_origins(data.splits, "val", predictor.context_length, T)]
    own = [number for number, count in enumerate(counts) if count >= OWN_WINDOWS and len(counts) > 1]
    size = len(intervals) * T * C
    most = min(_MOST_WINDOWS, _NUMBERS // (size * (1 + len(own))))
    if most < OWN_WINDOWS:
        own, most = [], min(_MOST_WINDOWS, max(OWN_WINDOWS, _NUMBERS // size))
    chosen = [np.asarray(spread(len(windows), most))]
    starts = np.cumsum([0, *counts])
    chosen += [starts[number] + np.asarray(spread(counts[number], most)) for number in own]
    forecast, parts = predictor.on(execution), []
    numbers = np.concatenate(chosen)
    for first in range(0, len(numbers), data.eval_batch_size):
        batch = windows.__getitems__(numbers[first : first + data.eval_batch_size])
        assert batch.target is not None
        parts.append(scores_of(forecast(batch).float(), batch.target, batch.target_observed, levels))
    groups = torch.split(torch.cat(parts), [len(some) for some in chosen])
    return ConformalScores.of(intervals, [data.panel.ids[number] for number in own], groups)
