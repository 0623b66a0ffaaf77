"""An experiment on a panel in memory: run, or only built where the predictor needs no fit."""

from __future__ import annotations

from pathlib import Path

from tsattn.data import Panel, PanelDataModule
from tsattn.experiments import Experiment, Hooks, Result, run
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import FittedPredictor
from tsattn.task import Output
from tsattn.training.progress import StepsBar

__all__ = ["built_for", "run_on"]


def run_on(
    experiment: Experiment, panel: Panel, folder: Path | None = None, *, refit: bool = False, shows_bar: bool = False
) -> Result:
    """The result of an experiment on these series, tested if its split has a test part.

    Args:
        experiment: on a `PanelDataModule`.
        panel: the series.
        folder: see `tsattn.run`.
        refit: see `tsattn.run`.
        shows_bar: whether training shows a bar.

    Raises:
        UserError: as `tsattn.run`.
    """
    data = _data(experiment, panel)
    bar = StepsBar(f"val_{experiment.selection}") if shows_bar else None
    return run(experiment, folder, data=data, test="test" in data.parts, refit=refit, hooks=Hooks(bar=bar))


def built_for(experiment: Experiment, panel: Panel) -> FittedPredictor:
    """The predictor of an experiment for these series, which may be short: one that needs no fit.

    Raises:
        UserError: for series that it cannot forecast.
    """
    task, scaler = _data(experiment, panel).describe()
    predictor = build_predictor(experiment.model["backbone"])
    predictor.build(task, Output(tuple(experiment.model["quantiles"])))
    return FittedPredictor(predictor.eval(), scaler)


def _data(experiment: Experiment, panel: Panel) -> PanelDataModule:
    data, _ = experiment.made()
    assert isinstance(data, PanelDataModule)
    data.give(panel)
    return data
