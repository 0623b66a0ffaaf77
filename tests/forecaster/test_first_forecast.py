"""A first forecast imports nothing that only trains, draws, tunes or reads configurations."""

from __future__ import annotations

import subprocess
import sys

FORECAST = """
import sys
sys.modules["chronos"] = sys.modules["peft"] = None  # as where the extra is not installed
import numpy as np
import pandas as pd
from tsattn import Forecaster

frame = pd.DataFrame({"ds": pd.date_range("2024", periods=100, freq="h"), "y": np.sin(np.arange(100) / 4)})
forecast = Forecaster("chronos-tiny", prediction_length=24, accelerator="cpu").predict(frame)
assert len(forecast) == 24
heavy = "lightning jsonargparse sklearn scipy matplotlib torchmetrics transformers optuna statsmodels torch._dynamo"
heavy += " yaml tsattn.evaluation tsattn.forecaster.scores tsattn.forecaster.sample_paths"
print(*(name for name in heavy.split() if name in sys.modules))
"""


def test_it_needs_neither_lightning_nor_what_draws_and_tunes() -> None:
    done = subprocess.run([sys.executable, "-c", FORECAST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
