"""A run that is finished, opened again: to measure it, or to forecast with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsattn.checks import ACCELERATORS, has_accelerator
from tsattn.data import ForecastDataModule, FrameDataModule
from tsattn.descriptions import difference
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable
from tsattn.experiments.experiment import Experiment
from tsattn.experiments.measuring import calibrated_on, tables_beside_baselines
from tsattn.experiments.schema import user_errors
from tsattn.predictors import complete_predictor
from tsattn.predictors.fitted import FittedPredictor, load_predictor
from tsattn.task import Output
from tsattn.training import Execution, TrainerOptions

__all__ = ["check_same", "measure_again", "reopened"]

logger = logging.getLogger("tsattn")


def reopened(
    experiment: Experiment, checkpoint: str | Path, stage: str, *, input: str | None = None, future: str | None = None
) -> tuple[FittedPredictor, ForecastDataModule, Execution]:
    """A fitted predictor, the data that its experiment names, set up as it needs them, and where to compute.

    Args:
        experiment: of the run.
        checkpoint: of the predictor.
        stage: what the data are set up for: ``validate``, ``test`` or ``predict``.
        input: a file to forecast from, instead of the data of the experiment.
        future: a file of future covariates after the end of the series.

    Raises:
        UserError: if one of them is not there or cannot be used.
    """
    with user_errors():
        data, trainer = experiment.made()
        execution = Execution(TrainerOptions.of(_of_this_machine(trainer), is_new=False))
        fitted = load_predictor(checkpoint)
        check_same(experiment, fitted.predictor.description, fitted.predictor.output)
        data.task, data.scaler = fitted.predictor.task, fitted.scaler
        if input is not None:
            data.forecast_from(input)
        if future is not None:
            if not isinstance(data, FrameDataModule):
                raise UserError(
                    f"{type(data).__name__} has no covariates, so that a future of them means nothing to it"
                )
            data.future = Path(future)
        data.prepare_data()
        data.setup(stage)
    return fitted, data, execution


def _of_this_machine(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a Trainer for one device of this machine, wherever the training was."""
    accelerator = trainer["accelerator"]
    if isinstance(accelerator, str) and accelerator in ACCELERATORS and not has_accelerator(accelerator):
        logger.warning("accelerator %s is not on this machine; auto takes its place", accelerator)
        accelerator = "auto"
    return {**trainer, "accelerator": accelerator, "strategy": "auto", "devices": 1, "num_nodes": 1}


def measure_again(
    experiment: Experiment, checkpoint: str | Path, part: str
) -> tuple[ForecastDataModule, Mapping[str, ErrorTable]]:
    """The data, and the errors of a fitted predictor and of the baselines on a part of them, by name.

    Args:
        experiment: of the run.
        checkpoint: of the predictor.
        part: ``val`` or ``test``.
    """
    fitted, data, execution = reopened(experiment, checkpoint, "validate" if part == "val" else "test")
    return data, tables_beside_baselines(calibrated_on(fitted, data), data, part, execution)


def check_same(experiment: Experiment, description: Mapping[str, Any], output: Output | None) -> None:
    """Refuse a checkpoint that is not of this experiment.

    Args:
        experiment: of the run.
        description: of the predictor in the checkpoint.
        output: what was asked of that.

    Raises:
        UserError: naming the first difference.
    """
    asked = Output(tuple(experiment.model["quantiles"]))
    saved = complete_predictor(description)  # an older one lacks arguments that came later
    if saved != experiment.model["backbone"]:
        raise UserError(f"the checkpoint is of another model: {difference(saved, experiment.model['backbone'])}")
    if output != asked:
        one, other = (list(part.quantiles) if part and part.quantiles else "none" for part in (output, asked))
        raise UserError(f"the checkpoint is of another model: its quantiles are {one}, but {other} are asked for")
