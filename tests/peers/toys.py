"""Data and trainings for the tests of peers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tsattn.data import FrameDataModule
from tsattn.experiments import Experiment
from tsattn.training import TrainerOptions, Training

L, T = 24, 8


def toy_frame(rows: int = 200, channels: int = 2, seed: int = 0) -> pd.DataFrame:
    hours, rng = np.arange(rows), np.random.default_rng(seed)
    waves = {
        name: 10 * number + np.sin(2 * np.pi * hours / 24) + 0.1 * rng.standard_normal(rows)
        for number, name in enumerate("abcdefgh"[:channels])
    }
    return pd.DataFrame(waves, index=pd.date_range("2024-01-01", periods=rows, freq="h", name="date"))


def toy_data(frame: pd.DataFrame | None = None, **sizes: Any) -> FrameDataModule:
    sizes = {"context_length": L, "prediction_length": T, **sizes}
    data = FrameDataModule(toy_frame() if frame is None else frame, **sizes)
    data.setup("fit")
    return data


def training(trainer: Mapping[str, Any] | None = None, **options: Any) -> Training:
    """As an experiment has it; the options are those of a network."""
    content = {"data": {"class_path": "CO2DataModule"}, "trainer": {"accelerator": "cpu", **(trainer or {})}}
    experiment = Experiment.of(content)
    model = {**experiment.model, **options}
    del model["backbone"]
    return Training(TrainerOptions.of(experiment.trainer_arguments()), model, seed=5)
