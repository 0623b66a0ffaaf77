"""Scoring a model beside the forecasts that any model must beat, on the same windows in the same run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tsattn.backbones import Backbone, Persistence, Ridge, SeasonalNaive
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.evaluation.error_table import ErrorTable
from tsattn.evaluation.measure import measure
from tsattn.evaluation.units import Units

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
        quantile: the scores of quantiles, by name; nothing for a point forecast.
    """

    mse: float
    mae: float
    mse_original: float
    mae_original: float
    windows: int
    quantile: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, errors: ErrorTable) -> Score:
        """The score of point forecasts that a table of errors amounts to."""
        scores = errors.scores()
        scaled = {name: scores[f"{name}_scaled"] for name in ("mse", "mae")}
        original = {name: scores[name] for name in ("mse_original", "mae_original", "windows")}
        return cls.from_values({**scaled, **original})

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

    def scored(forecaster: Backbone, context: int) -> Score:
        ids = range(len(data.series))
        batches = data.eval_dataloader(part, context)
        return Score.of(measure(forecaster, batches, units=units, levels=(), ids=ids, channels=task.channels))

    ridge = Ridge(data.eval_dataloader("train", context, every))
    fitted = "" if every == 1 else f", each {every}th window"
    scores = {f"ridge (context {context}{fitted})": scored(ridge, context)}
    season = task.season_length
    if season <= rows:
        scores[f"seasonal naive ({season} steps)"] = scored(SeasonalNaive(T, season), season)
    scores["persistence"] = scored(Persistence(T), 1)
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
