"""A finished run, opened again: to measure it, or to forecast with it."""

from __future__ import annotations

import logging
from pathlib import Path

from tsattn.checks import ACCELERATORS, has_accelerator
from tsattn.data import ForecastDataModule, FrameDataModule
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError
from tsattn.experiments.configs import read_config
from tsattn.experiments.experiment import Experiment, user_errors
from tsattn.experiments.run_folder import RunFolder
from tsattn.predictors.fitted import FittedPredictor, load_predictor
from tsattn.training import Execution, TrainerOptions

__all__ = ["fitted_in", "reopened"]

logger = logging.getLogger("tsattn")


@user_errors()
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
    data, trainer = experiment.made()
    accelerator = trainer["accelerator"]
    if isinstance(accelerator, str) and accelerator in ACCELERATORS and not has_accelerator(accelerator):
        logger.warning("accelerator %s is not on this machine; auto takes its place", accelerator)
        accelerator = "auto"
    # one device of this machine, wherever the training was
    here = {**trainer, "accelerator": accelerator, "strategy": "auto", "devices": 1, "num_nodes": 1}
    execution = Execution(TrainerOptions.of(here, is_new=False))
    fitted = load_predictor(checkpoint, experiment.model["backbone"], experiment.output)
    data.task, data.scaler = fitted.predictor.task, fitted.scaler
    if input is not None:
        data.forecast_from(input)
    if future is not None:
        if not isinstance(data, FrameDataModule):
            raise UserError(f"{type(data).__name__} has no covariates, so that a future of them means nothing to it")
        data.future = Path(future)
    data.prepare_data()
    data.setup(stage)
    return fitted, data, execution


def fitted_in(run: RunFolder, checkpoint: str | Path | None = None) -> FittedPredictor:
    """The predictor in the folder of a run, from a checkpoint or, by default, the one that forecasts.

    Raises:
        UserError: for a folder without a configuration, or a checkpoint that cannot be read or is of another model.
    """
    if not run.config.exists():
        raise UserError(f"{run.path} is not the folder of a run: it has no {run.config.name}")
    model = read_config(run.config).get("model", {})
    return load_predictor(checkpoint or run.forecasting_checkpoint(), model.get("backbone", DEFAULT_BACKBONE))
