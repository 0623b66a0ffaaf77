"""An experiment on a panel in memory: run, or only built where the predictor needs no fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn.data import Panel, PanelDataModule
from tsattn.experiments import Experiment, Hooks, Result, run
from tsattn.forecaster.arguments import AUTO
from tsattn.forecaster.context_choice import with_chosen_context
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.training.progress import StepsBar

__all__ = ["built_for", "run_on"]


def run_on(
    experiment: Experiment,
    panel: Panel,
    arguments: Mapping[str, Any],
    folder: Path | None = None,
    *,
    refit: bool = False,
) -> Result:
    """The result of an experiment on these series, tested if its split has a test part.

    Args:
        experiment: on a `PanelDataModule`.
        panel: the series.
        arguments: of the Forecaster: whether a context is to be chosen, and training shows a bar (``progress``).
        folder: see `tsattn.run`.
        refit: see `tsattn.run`.

    Raises:
        UserError: as `tsattn.run`.
    """
    if arguments["context_length"] == AUTO:
        experiment = with_chosen_context(experiment, panel)
    data = _data(experiment, panel)
    bar = StepsBar(f"val_{experiment.selection}") if arguments["progress"] else None
    return run(experiment, folder, data=data, test="test" in data.parts, refit=refit, hooks=Hooks(bar=bar))


def built_for(experiment: Experiment, panel: Panel) -> FittedPredictor:
    """The predictor of an experiment for these series, which may be short: one that needs no fit.

    Raises:
        UserError: for series that it cannot forecast.
    """
    task, scaler = _data(experiment, panel).describe()
    predictor = build_predictor(experiment.model["backbone"])
    predictor.build(task, experiment.output)
    return FittedPredictor(predictor.eval(), scaler)


def _data(experiment: Experiment, panel: Panel) -> PanelDataModule:
    data, _ = experiment.made()
    assert isinstance(data, PanelDataModule)
    data.give(panel)
    return data
