"""A first forecast by pretrained weights imports nothing that only trains, draws, tunes or reads configurations."""

from __future__ import annotations

import subprocess
import sys

FORECAST = """
import sys
import numpy as np
import pandas as pd
from tsattn.data.reader import panel_from_frame
from tsattn.predictors import build_predictor
from tsattn.predictors.fitted import forecast_batches
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import Execution, TrainerOptions
from tsattn.training.trainer_options import default_precision

values = pd.Series(np.sin(np.arange(100) / 4), pd.date_range("2024", periods=100, freq="h"), name="y")
panel = panel_from_frame(values.to_frame())
predictor = build_predictor("chronos-tiny")
predictor.build(Task("toy", 96, 24, ("y",), "h", 24, time_zone=None))
assert default_precision("cpu", 1) == "32-true"
names = ("accelerator", "precision", "plugins", "deterministic", "benchmark")
given = dict.fromkeys(names) | {"accelerator": "cpu"}
execution = Execution(TrainerOptions(given, chooses_steps=True, chooses_validation=True))
(forecast,) = forecast_batches(predictor.eval(), Scaler((0.0,), (1.0,)), panel, 24, 1, execution)
assert forecast.shape == (1, 24, 1)
assert forecast.isfinite().all()
heavy = "lightning jsonargparse sklearn scipy matplotlib torchmetrics transformers optuna statsmodels"
print(*(name for name in heavy.split() if name in sys.modules))
"""


def test_it_needs_neither_lightning_nor_what_draws_and_tunes() -> None:
    done = subprocess.run([sys.executable, "-c", FORECAST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
