"""Measuring a predictor on all windows of a part of the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tsattn.data import ForecastDataModule, Panel
from tsattn.data.frequency import is_steps
from tsattn.errors import UserError, number_of
from tsattn.evaluation import ErrorTable, measure
from tsattn.evaluation.measure import ScoredBatch, seasonal_errors
from tsattn.experiments.baselines import fitted_baselines
from tsattn.predictors import Predictor
from tsattn.predictors.fitted import FittedPredictor, with_levels
from tsattn.training import Execution, Training
from tsattn.training.callbacks import DIVERGED

__all__ = ["calibrated_on", "extent", "labelled", "measured", "tables_beside_baselines", "title"]

_WORDS = {"val": "validation", "test": "test"}


def measured(
    predictor: Predictor,
    data: ForecastDataModule,
    part: str,
    execution: Execution,
    path: Path | None = None,
    *,
    by_step: bool = False,
    watch: Callable[[ScoredBatch], None] | None = None,
) -> ErrorTable:
    """The errors over all windows of a part, each once.

    Args:
        predictor: built and fitted.
        data: set up.
        part: ``val`` or ``test``.
        execution: where to compute.
        path: a Parquet file for the rows, where they are too many for memory.
        by_step: whether the table has totals by step of the horizon, too.
        watch: is given each batch with its forecast.

    Raises:
        UserError: if the errors are not finite.
    """
    assert data.panel is not None
    levels = predictor.output.quantiles
    table = measure(
        predictor.on(execution),
        data.eval_dataloader(part, predictor.context_length, seasons=predictor.seasons),
        units=data.series.units,
        levels=levels,
        ids=data.panel.ids,
        channels=data.panel.channels,
        path=path,
        seasonal_errors=_seasonal_errors(data, part),
        counts_steps=is_steps(data.panel.frequency),
        by_step=by_step,
        watch=watch,
        in_units=predictor.in_units,
    )
    if not math.isfinite(table.scores()["mse_scaled"]):
        raise UserError(f"the {part} errors are not finite: {DIVERGED}")
    scored, windows = table.scores()["windows"], len(data.windows(part))
    if scored != windows:
        raise RuntimeError(f"{scored} windows were scored, not all {windows}")
    return table


def _seasonal_errors(data: ForecastDataModule, part: str) -> NDArray[np.float64]:
    """`(S, C)` what MASE divides by, of the rows before the part."""
    assert data.task is not None
    assert data.panel is not None
    before = np.array([split.bounds(part)[0] for split in data.splits])
    return seasonal_errors(data.panel, before, data.task.season_length)


def calibrated_on(fitted: FittedPredictor, data: ForecastDataModule) -> Predictor:
    """What forecasts the series of data: the predictor, its quantiles calibrated if it has scores for that."""
    assert data.panel is not None
    return with_levels(fitted, data.panel.ids).predictor


def tables_beside_baselines(
    predictor: Predictor,
    data: ForecastDataModule,
    part: str,
    execution: Execution,
    path: Path | None = None,
    *,
    folder: Path | None = None,
    by_step: bool = False,
    watch: Callable[[ScoredBatch], None] | None = None,
) -> dict[str, ErrorTable]:
    """The errors of a predictor and of the baselines on the same windows, by name; the arguments are `measured`'s.

    Args:
        folder: for the rows of the baselines, where they are too many for memory; None does not keep these.
    """
    tables = {predictor.name: measured(predictor, data, part, execution, path, by_step=by_step, watch=watch)}
    for name, baseline in fitted_baselines(data, part, Training(execution.options, {})):
        if name in tables:  # persistence is measured already
            continue
        own = None if folder is None else folder / f"{len(tables)}.parquet"
        tables[name] = measured(baseline, data, part, execution, own, by_step=by_step)
    return tables


def labelled(tables: Mapping[str, ErrorTable], predictor: Predictor) -> dict[str, ErrorTable]:
    """Tables of `tables_beside_baselines`, that of the predictor under its label."""
    return {predictor.label if name == predictor.name else name: table for name, table in tables.items()}


def title(data: ForecastDataModule, windows: int, part: str = "test") -> str:
    """What a table of scores is about: the data, the horizon, and how many windows were scored."""
    assert data.task is not None
    what = f"{windows} {_WORDS[part]} windows, {extent(data)}"
    return f"{data.task.data}, horizon {data.task.prediction_length}: {what}"


def extent(data: ForecastDataModule) -> str:
    """How many channels of one series, or series, the data hold."""
    panel: Panel | None = data.panel
    assert panel is not None
    return number_of(len(panel.channels), "channel") if panel.is_wide else f"{len(panel)} series"
