"""Scoring a model beside the forecasts that any model must beat, on the same windows in the same run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from tsattn.backbones.ridge_solution import apply_ridge, solve_ridge
from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.evaluation.errors import ForecastErrors
from tsattn.scaler import Units

__all__ = ["RIDGE_CONTEXT", "Score", "baseline_scores", "score_table"]

RIDGE_CONTEXT = 512
_COVERAGE = "coverage_"


@dataclass(frozen=True)
class Score:
    """Errors over all windows of a part.

    Attributes:
        mse: mean squared error on the train-standardised scale.
        mae: mean absolute error on that scale.
        mse_original: mean squared error in original units.
        mae_original: mean absolute error in original units.
        windows: the number of windows scored.
        quantile: what `ForecastErrors` says of quantiles, by name; nothing for a point forecast.
    """

    mse: float
    mae: float
    mse_original: float
    mae_original: float
    windows: int
    quantile: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, errors: ForecastErrors) -> Score:
        """The score that accumulated errors amount to."""
        return cls.from_values({name: value.item() for name, value in errors.compute().items()})

    @classmethod
    def from_values(cls, values: Mapping[str, float]) -> Score:
        """The score with these values by name."""
        point = [part.name for part in fields(cls) if part.name != "quantile"]
        numbers: dict[str, Any] = {name: values[name] for name in point}
        quantile = {name: value for name, value in values.items() if name not in point}
        return cls(**{**numbers, "windows": int(values["windows"]), "quantile": quantile})

    def to_dict(self) -> dict[str, float | None]:
        """Plain data by name, those of quantiles beside the others; None where one is not defined."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "quantile"}
        return {name: value if math.isfinite(value) else None for name, value in {**values, **self.quantile}.items()}


def baseline_scores(data: ForecastDataModule, part: str = "test") -> dict[str, Score]:
    """Scores of closed-form ridge, seasonal naive and persistence over the windows of a part.

    They read the series itself, with a context of their own, whatever the model's. The ridge is fitted on the training
    windows with `RIDGE_CONTEXT` steps, fewer only if no series has that many before a window.
    """
    task = data.task
    if task is None:
        raise UserError("call setup('fit') before scoring")
    T = task.prediction_length
    units = Units(data.series.mean, data.series.scale)
    bounds = [split.bounds(part) for split in data.splits]
    before = max((start for start, end in bounds if end - start >= T), default=1)  # rows that a context may have
    rows = min(before, max(split.train_end for split in data.splits))
    context = max(1, min(RIDGE_CONTEXT, (rows - T) // 2))
    every = data.thinning("train", context)
    weight = solve_ridge(data.eval_dataloader("train", context, every))
    fitted = "" if every == 1 else f", each {every}th window"
    scores = {
        f"ridge (context {context}{fitted})": _score(
            lambda batch: apply_ridge(weight, batch), data.eval_dataloader(part, context), units
        )
    }
    season = task.season_length
    if season <= rows:
        batches = data.eval_dataloader(part, season)
        scores[f"seasonal naive ({season} steps)"] = _score(_repeated(season, T), batches, units)
    scores["persistence"] = _score(_repeated(1, T), data.eval_dataloader(part, 1), units)
    return scores


def score_table(title: str, scores: dict[str, Score]) -> str:
    """The scores as text, one model a line, best scaled MSE marked.

    Where a model forecasts quantiles there are its WQL, its CRPS in original units, and the coverage of its central
    intervals in percent; they are blank for a point forecast.
    """
    best = min((score.mse for score in scores.values() if math.isfinite(score.mse)), default=None)
    width = max(len(name) for name in scores)
    quantile = dict.fromkeys(name for score in scores.values() for name in score.quantile)
    covered = [name for name in quantile if name.startswith(_COVERAGE)]
    above = f"{'':{width}}  {'scaled':^17}  {'original units':^21}"
    heads = f"{'':{width}}  {'MSE':>8} {'MAE':>8}  {'MSE':>10} {'MAE':>10}"
    if quantile:
        above += f"  {'quantiles':^19}{'  % inside' if covered else ''}"
        heads += f"  {'WQL':>8} {'CRPS':>10} " + "".join(f" {name.removeprefix(_COVERAGE):>5}" for name in covered)
    lines = [title, above, heads.rstrip()]
    for name, score in scores.items():
        mark = " *" if score.mse == best else ""
        line = (
            f"{name:{width}}  {score.mse:8.3f} {score.mae:8.3f}  {score.mse_original:10.4g} {score.mae_original:10.4g}"
        )
        if score.quantile:
            line += f"  {score.quantile['wql']:8.4f} {score.quantile['crps_original']:10.4g} "
            line += "".join(f" {100 * score.quantile[name]:5.1f}" for name in covered)
        lines.append(f"{line}{mark}")
    return "\n".join(lines)


@torch.no_grad()
def _score(forecaster: Callable[[Batch], Tensor], batches: Iterable[Batch], units: Units) -> Score:
    errors = ForecastErrors(units.mean.shape[1])
    for batch in batches:
        assert batch.target is not None
        errors.update(forecaster(batch), batch.target, batch.target_observed, units.of(batch.series_id))
    return Score.of(errors)


def _repeated(steps: int, T: int) -> Callable[[Batch], Tensor]:
    """The last steps of the context, again and again."""
    return lambda batch: batch.past[:, -steps:][:, torch.arange(T) % steps]
