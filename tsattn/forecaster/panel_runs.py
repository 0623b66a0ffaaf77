"""An experiment on a panel in memory: run, or only built where the predictor needs no fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn.data import Panel, PanelDataModule
from tsattn.experiments import Experiment, Result, run
from tsattn.forecaster.arguments import AUTO, SPLIT, experiment_of
from tsattn.forecaster.context_choice import with_chosen_context
from tsattn.forecaster.fitting import NEW, Start, hooks_of
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.fitted import FittedPredictor

__all__ = ["built_for", "fitted_beside", "run_on"]


def run_on(
    experiment: Experiment,
    panel: Panel,
    arguments: Mapping[str, Any],
    folder: Path | None = None,
    start: Start = NEW,
    *,
    refit: bool = False,
    copies: bool = False,
) -> Result:
    """The result of an experiment on these series, tested if its split has a test part.

    Args:
        experiment: on a `PanelDataModule`.
        panel: the series.
        arguments: of the Forecaster: whether a context is to be chosen, and training shows a bar (``progress``).
        folder: see `tsattn.run`.
        start: what the fit starts from.
        refit: see `tsattn.run`.
        copies: see `hooks_of`.

    Raises:
        UserError: as `tsattn.run`.
    """
    if start.task is not None:
        start.check(panel)
        experiment = experiment.with_values({"data.context_length": start.task.context_length})
    elif arguments["context_length"] == AUTO:
        experiment = with_chosen_context(experiment, panel)
    data = _data(experiment, panel)
    hooks = hooks_of(arguments, experiment, start, folder, copies=copies)
    return run(experiment, folder, data=data, test="test" in data.parts, refit=refit, hooks=hooks)


def fitted_beside(
    arguments: Mapping[str, Any], predictor: Predictor, panel: Panel, *, calibrates: bool = False
) -> FittedPredictor:
    """A predictor of these series, none of which are for testing, beside that of a Forecaster.

    Args:
        arguments: of the Forecaster.
        predictor: what they describe.
        panel: the series.
        calibrates: whether what needs no fit has one all the same, which calibrates its intervals.
    """
    whole = {**arguments, **dict.fromkeys(SPLIT), "progress": False}
    experiment = experiment_of(whole, predictor)
    if predictor.needs_fit or calibrates:
        return run_on(experiment, panel, whole, copies=True).fitted
    return built_for(experiment, panel)


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
