"""The forecasts that any predictor must beat, on the same windows in the same run."""

from __future__ import annotations

from collections.abc import Iterator

from tsattn.data import ForecastDataModule
from tsattn.predictors import Predictor, build_predictor
from tsattn.task import Output
from tsattn.training import Training

__all__ = ["RIDGE_CONTEXT", "fitted_baselines"]

RIDGE_CONTEXT = 512


def fitted_baselines(data: ForecastDataModule, part: str, training: Training) -> Iterator[tuple[str, Predictor]]:
    """Closed-form ridge, seasonal naive and persistence, by what tables call them, fitted to the training windows.

    They read the series itself, with contexts of their own, whatever the predictor's. The ridge has `RIDGE_CONTEXT`
    steps, fewer only if no series has that many before a window. There is no seasonal naive for a season longer than
    the data.

    Args:
        data: set up.
        part: whose windows they are for, ``val`` or ``test``.
        training: of the run.
    """
    assert data.task is not None
    T, season = data.task.prediction_length, data.task.season_length
    bounds = [split.bounds(part) for split in data.splits]
    before = max((start for start, end in bounds if end - start >= T), default=1)  # rows that a context may have
    rows = min(before, max(split.train_end for split in data.splits))
    context = max(1, min(RIDGE_CONTEXT, (rows - T) // 2))
    every = data.thinning("train", context)
    thinned = "" if every == 1 else f", each {every}th window"
    kinds = {f"ridge (context {context}{thinned})": {"kind": "ridge", "context_length": context}}
    if season <= rows:
        kinds[f"seasonal naive ({season} steps)"] = {"kind": "seasonal_naive"}
    kinds["persistence"] = {"kind": "persistence"}
    for name, description in kinds.items():
        predictor = build_predictor(description)
        predictor.build(data.task, Output())
        predictor.fit(data, training)
        yield name, predictor.eval()
