"""What a user may write with every public name; only its types are checked (`test_project_files.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from tsattn import (
    Attention,
    Backbone,
    Batch,
    CO2DataModule,
    CSVDataModule,
    Experiment,
    ForecastDataModule,
    Forecaster,
    ForecastingModule,
    FrameDataModule,
    Output,
    Predictor,
    PublicDataModule,
    Result,
    Scaler,
    Task,
    UserError,
    __version__,
    build_attention,
    build_backbone,
    build_predictor,
    compare,
    diagnose,
    load,
    resume,
    run,
)


class LastValue(Backbone):
    """Goes on with the last value, times what it learns."""

    def __init__(self, task: Task, output: Output, *, start: float = 1.0) -> None:
        super().__init__()
        self.steps: int = task.prediction_length
        self.channels: int = len(task.channels)
        self.is_point: bool = output.quantiles == ()
        self.factor = torch.nn.Parameter(torch.tensor(start))

    def forward(self, batch: Batch) -> Tensor:
        """A forecast, (B, T, C)."""
        return self.factor * batch.past[:, -1:].expand(-1, self.steps, -1)


def forecast(path: Path) -> pd.DataFrame:
    """A frame in, a forecast out, by the file of a model."""
    frame = pd.read_csv(path)
    findings: pd.DataFrame = diagnose(frame, prediction_length=24)
    if len(findings):
        raise UserError(
            f"there is something to look at first, says tsattn {__version__}: {findings['sentence'].iloc[0]}"
        )
    forecaster = Forecaster("patchtst", attention="mlr", context_length=96, prediction_length=24, max_steps=100)
    forecaster.fit(frame)
    forecaster.save(path.with_suffix(".model"))
    again: Forecaster = load(path.with_suffix(".model"))
    again.plot(again.predict(horizon=12), history=frame).savefig(path.with_suffix(".png"))
    table: pd.DataFrame = again.predict()
    return table


def experiments(folder: Path) -> list[Result]:
    """Runs of a description, and one that goes on."""
    experiment: Experiment = Experiment.read("co2_mlr.yaml").with_values({"trainer.max_steps": 100})
    first: Result = run(experiment, folder / "first")
    longer: Result = resume(folder / "first", {"max_steps": 200})
    scores: pd.DataFrame = longer.scores
    print(scores, longer.experiment.to_yaml(), longer.key)
    return [first, longer]


def which_attention() -> pd.DataFrame:
    """Errors of two attentions under identical training, with intervals of their differences."""
    comparison = compare("co2_mlr.yaml", attention=["standard", "mlr"], seeds=2)
    print(comparison)
    table: pd.DataFrame = comparison.table
    return table


def batches(data: ForecastDataModule) -> Tensor:
    """Forecasts of a network for a batch, by hand."""
    data.prepare_data()
    data.setup("fit")
    task = data.task
    scaler = data.scaler
    assert isinstance(task, Task)
    assert isinstance(scaler, Scaler)
    network: Backbone = build_backbone({"kind": "patchtst", "d_model": 16}, task, Output((0.1, 0.5, 0.9)))
    batch: Batch = next(iter(data.train_dataloader()))
    forecasts: Tensor = network(batch)
    print(scaler.mean, scaler.scale, forecasts.shape)
    return forecasts


def parts() -> tuple[Attention, Predictor, ForecastingModule]:
    """What others are built of."""
    attention: Attention = build_attention({"kind": "mlr", "ranks": [4, 4]}, d_model=32, num_heads=4)
    ridge: Predictor = build_predictor("ridge")
    return attention, ridge, ForecastingModule(backbone="patchtst", loss="mae")


def sources(frame: pd.DataFrame) -> list[ForecastDataModule]:
    """Data from everywhere."""
    sizes: dict[str, Any] = {"context_length": 96, "prediction_length": 24}
    return [
        CO2DataModule(),
        PublicDataModule("ETTh1", **sizes),
        CSVDataModule("sales.csv", **sizes),
        FrameDataModule(frame, **sizes),
    ]
