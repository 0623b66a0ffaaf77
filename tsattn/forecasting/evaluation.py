"""Scoring a model beside the forecasts that any model must beat, on the same windows in the same run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from tsattn.backbones import Backbone, Persistence, Ridge, SeasonalNaive
from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.forecasting.metrics import ForecastErrors

__all__ = ["RIDGE_CONTEXT", "Score", "baseline_scores", "score_table"]

RIDGE_CONTEXT = 512


@dataclass(frozen=True)
class Score:
    """Errors over all windows of a part.

    Attributes:
        mse: mean squared error on the train-standardised scale.
        mae: mean absolute error on that scale.
        mse_original: mean squared error in original units.
        mae_original: mean absolute error in original units.
        windows: the number of windows scored.
    """

    mse: float
    mae: float
    mse_original: float
    mae_original: float
    windows: int

    @classmethod
    def of(cls, errors: ForecastErrors) -> Score:
        """The score that accumulated errors amount to."""
        return cls.from_values({name: value.item() for name, value in errors.compute().items()})

    @classmethod
    def from_values(cls, values: Mapping[str, float]) -> Score:
        """The score with these values by name."""
        numbers: dict[str, Any] = {**values, "windows": int(values["windows"])}
        return cls(**numbers)

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def baseline_scores(data: ForecastDataModule, part: str = "test") -> dict[str, Score]:
    """Scores of closed-form ridge, seasonal naive and persistence over the windows of a part.

    They read the series itself, with a context of their own, whatever the model's. The ridge is fitted on the training
    windows with `RIDGE_CONTEXT` steps, fewer only if the training part is too short for that.
    """
    task = data.task
    if task is None:
        raise UserError("call setup('fit') before scoring")
    T, rows = task.prediction_length, data.split_rows.train_end
    context = max(1, min(RIDGE_CONTEXT, (rows - T) // 2))
    ridge = Ridge(data.eval_dataloader("train", context))
    scores = {f"ridge (context {context})": _score(ridge, data.eval_dataloader(part, context), task.scale)}
    season = task.season_length
    if season <= rows:
        batches = data.eval_dataloader(part, season)
        scores[f"seasonal naive ({season} steps)"] = _score(SeasonalNaive(T, season), batches, task.scale)
    scores["persistence"] = _score(Persistence(T), data.eval_dataloader(part, 1), task.scale)
    return scores


def score_table(title: str, scores: dict[str, Score]) -> str:
    """The scores as text, one model a line, best scaled MSE marked."""
    best = min((score.mse for score in scores.values() if math.isfinite(score.mse)), default=None)
    width = max(len(name) for name in scores)
    lines = [
        title,
        f"{'':{width}}  {'scaled':^17}  {'original units':^21}",
        f"{'':{width}}  {'MSE':>8} {'MAE':>8}  {'MSE':>10} {'MAE':>10}",
    ]
    for name, score in scores.items():
        mark = " *" if score.mse == best else ""
        scaled = f"{score.mse:8.3f} {score.mae:8.3f}"
        lines.append(f"{name:{width}}  {scaled}  {score.mse_original:10.4g} {score.mae_original:10.4g}{mark}")
    return "\n".join(lines)


@torch.no_grad()
def _score(forecaster: Backbone, batches: Iterable[Batch], scale: tuple[float, ...]) -> Score:
    errors = ForecastErrors(scale)
    for batch in batches:
        assert batch.target is not None
        errors.update(forecaster(batch), batch.target, batch.target_observed)
    return Score.of(errors)
