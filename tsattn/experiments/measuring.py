"""Measuring a predictor on all windows of a part of the data."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from tsattn.data import ForecastDataModule, Panel
from tsattn.data.messages import counted
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable, measure
from tsattn.predictors import Predictor
from tsattn.scaler import Units
from tsattn.training import Execution
from tsattn.training.train import DIVERGED

__all__ = ["extent", "measured", "title"]

_WORDS = {"val": "validation", "test": "test"}


def measured(
    predictor: Predictor, data: ForecastDataModule, part: str, execution: Execution, path: Path | None = None
) -> ErrorTable:
    """The errors over all windows of a part, each once.

    Args:
        predictor: built and fitted.
        data: set up.
        part: ``val`` or ``test``.
        execution: where to compute.
        path: a Parquet file for the rows, where they are too many for memory.

    Raises:
        UserError: if the errors are not finite.
    """
    assert data.panel is not None
    assert predictor.output is not None
    levels = predictor.output.quantiles
    table = measure(
        execution.forecaster(predictor),
        data.eval_dataloader(part, predictor.context_length),
        units=Units(data.series.mean, data.series.scale),
        levels=levels,
        ids=data.panel.ids,
        channels=data.panel.channels,
        path=path,
    )
    if not math.isfinite(table.scores()["mse_scaled"]):
        raise UserError(f"the {part} errors are not finite: {DIVERGED}")
    windows = len(data.windows(part))
    if table.windows != windows:
        raise RuntimeError(f"{table.windows} windows were scored, not all {windows}")
    return table


def title(data: ForecastDataModule, windows: int, part: str = "test") -> str:
    """What a table of scores is about: the data, the horizon, and how many windows were scored."""
    assert data.task is not None
    what = f"{windows} {_WORDS[part]} windows, {extent(data)}"
    return f"{data.task.data}, horizon {data.task.prediction_length}: {what}"


def extent(data: ForecastDataModule) -> str:
    """How many channels of one series, or series, the data hold."""
    panel: Panel | None = data.panel
    assert panel is not None
    return counted(len(panel.channels), "channel") if panel.is_wide else f"{len(panel)} series"
