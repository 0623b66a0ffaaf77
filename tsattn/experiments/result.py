"""The result of a run, and a finished run opened again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tsattn.data import ForecastDataModule
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.evaluation import ErrorTable
from tsattn.experiments.configs import read_config
from tsattn.experiments.experiment import Experiment, user_errors
from tsattn.experiments.run_folder import RunFolder
from tsattn.predictors.fitted import FittedPredictor, load_predictor
from tsattn.training import Execution, TrainerOptions
from tsattn.training.trainer_options import ACCELERATORS, has_accelerator

logger = logging.getLogger("tsattn")


@dataclass(frozen=True)
class Result:
    """Result of a run.

    Attributes:
        experiment: the experiment that was run.
        key: identifies the result, see `Experiment.key`.
        fitted: the predictor and its scaler; a network has the weights with the lowest validation error.
        data: the DataModule that it was fitted to, set up.
        fit: facts of the fit as plain data: ``validation_error``, ``selected_by`` (its name), ``parameters``, and of a
            network ``best_step`` and ``training``.
        tables: tables of test errors, by the name of the predictor and of each baseline; empty for a run that was not
            tested.
        folder: of the run; None if nothing was written.
        refitted: the predictor refitted on all rows; None if that was not asked for.
    """

    experiment: Experiment
    key: str
    fitted: FittedPredictor
    data: ForecastDataModule
    fit: Mapping[str, Any]
    tables: Mapping[str, ErrorTable] = field(default_factory=dict)
    folder: Path | None = None
    refitted: FittedPredictor | None = None

    @property
    def errors(self) -> ErrorTable | None:
        """The test errors of the predictor, a row for each series, origin and channel; None if it was not tested."""
        return self.tables.get(self.fitted.predictor.name)

    @property
    def scores(self) -> pd.DataFrame:
        """The test scores: a row for the predictor and each baseline, a column for each score."""
        return pd.DataFrame.from_dict({name: table.scores() for name, table in self.tables.items()}, orient="index")

    def __repr__(self) -> str:
        scores = self.scores[["mse_scaled", "mae_scaled"]] if self.tables else "not tested"
        return f"Result of {self.fitted.predictor.name} in {self.folder}:\n{scores}"


@user_errors()
def reopened(
    experiment: Experiment, checkpoint: str | Path, stage: str, *, input: str | None = None, future: str | None = None
) -> tuple[FittedPredictor, ForecastDataModule, Execution]:
    """Open a finished run: its predictor, the data of its experiment or of the files, set up, and the device."""
    data, trainer = experiment.data_module(), experiment.trainer_arguments()
    accelerator = trainer["accelerator"]
    if isinstance(accelerator, str) and accelerator in ACCELERATORS and not has_accelerator(accelerator):
        logger.warning("accelerator %s is not on this machine; using auto", accelerator)
        accelerator = "auto"
    # one device of this machine, wherever the training was
    here = {**trainer, "accelerator": accelerator, "strategy": "auto", "devices": 1, "num_nodes": 1}
    execution = Execution(TrainerOptions.of(here, is_new=False))
    fitted = load_predictor(checkpoint, experiment.model["backbone"], experiment.output)
    data.forecast_from(input, future)
    data.prepare(stage, fitted.predictor.task, fitted.scaler)
    return fitted, data, execution


def fitted_in(run: RunFolder, checkpoint: str | Path | None = None) -> FittedPredictor:
    """Load the predictor in the folder of a run, by default from the checkpoint that forecasts are made with."""
    run.check_trained()
    model = read_config(run.config).get("model", {})
    return load_predictor(checkpoint or run.forecasting_checkpoint(), model.get("backbone", DEFAULT_BACKBONE))
