"""A finished run, opened again: to measure it, or to forecast with it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tsattn.checks import ACCELERATORS, has_accelerator
from tsattn.data import ForecastDataModule, FrameDataModule
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable, scores_by
from tsattn.evaluation.error_table import check_by, check_group
from tsattn.experiments.configs import read_config
from tsattn.experiments.experiment import Experiment
from tsattn.experiments.measuring import calibrated_on, tables_beside_baselines
from tsattn.experiments.run_folder import RunFolder
from tsattn.experiments.schema import user_errors
from tsattn.figures.residual_plots import ResidualRecorder, Residuals
from tsattn.predictors import Predictor
from tsattn.predictors.fitted import FittedPredictor, load_predictor
from tsattn.training import Execution, TrainerOptions

__all__ = ["Remeasured", "fitted_in", "measure_again", "reopened"]

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
                raise UserError(
                    f"{type(data).__name__} has no covariates, so that a future of them means nothing to it"
                )
            data.future = Path(future)
        data.prepare_data()
        data.setup(stage)
    return fitted, data, execution


@dataclass(frozen=True)
class Remeasured:
    """Scores of a fitted predictor on a part of the data.

    Attributes:
        predictor: as it was fitted.
        data: set up.
        tables: of the errors of the predictor, which comes first, and of the baselines, by name.
        groups: their scores by group, see `tsattn.evaluation.scores_by`; None if that was not asked for.
        residuals: of the predictor; None if they were not asked for.
    """

    predictor: Predictor
    data: ForecastDataModule
    tables: Mapping[str, ErrorTable]
    groups: pd.DataFrame | None
    residuals: Residuals | None


def measure_again(
    experiment: Experiment, checkpoint: str | Path, part: str, by: str | None = None, *, residuals: bool = False
) -> Remeasured:
    """Measure a fitted predictor and the baselines on ``val`` or ``test``.

    Args:
        experiment: of the run.
        checkpoint: of the predictor.
        part: of the data.
        by: what else there are scores by, ``series``, ``step`` or ``origin``.
        residuals: whether to keep residuals, and totals by step, for a figure.

    Raises:
        UserError: for another `by`, or ids in a column of the name of a score.
    """
    if by is not None:
        check_by(by)
    fitted, data, execution = reopened(experiment, checkpoint, "validate" if part == "val" else "test")
    assert data.panel is not None
    if by is not None:
        check_group(by, data.panel.id_name)
    recorder = ResidualRecorder(data.panel) if residuals else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if by in ("series", "origin") else None  # for rows that are too many for memory
        tables = tables_beside_baselines(
            calibrated_on(fitted, data),
            data,
            part,
            execution,
            None if folder is None else folder / "0.parquet",
            folder=folder,
            by_step=residuals or by == "step",
            watch=recorder,
        )
        groups = None if by is None else scores_by(tables, by, data.panel)
    return Remeasured(fitted.predictor, data, tables, groups, None if recorder is None else recorder.finish())


def fitted_in(run: RunFolder, checkpoint: str | Path | None = None) -> FittedPredictor:
    """The predictor in the folder of a run, from a checkpoint or, by default, the one that forecasts.

    Raises:
        UserError: for a folder without a configuration, or a checkpoint that cannot be read or is of another model.
    """
    if not run.config.exists():
        raise UserError(f"{run.path} is not the folder of a run: it has no {run.config.name}")
    model = read_config(run.config).get("model", {})
    return load_predictor(checkpoint or run.forecasting_checkpoint(), model.get("backbone", DEFAULT_BACKBONE))
