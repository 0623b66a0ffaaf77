"""Real files, read as anyone would read their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightning.pytorch import Trainer

from tests.conftest import REAL_ROOT
from tests.data.cases import logged
from tsattn.data import CSVDataModule
from tsattn.forecaster import future_frame
from tsattn.training import ForecastingModule

REAL = {"ETTh1": ("h", 7, 17420), "vic_electricity": ("30min", 2, 52608), "national_illness": ("W-TUE", 7, 966)}
REAL["exchange_rate"] = ("D", 8, 7588)  # its dates are invented (see its card), but regular
REAL["ETTm1"] = ("15min", 7, 69680)


def prepared(name: str, **columns: Any) -> CSVDataModule:
    data = CSVDataModule(f"{REAL_ROOT}/{name}.csv", context_length=36, prediction_length=12, **columns)
    data.setup("fit")
    return data


@pytest.mark.real_data
@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_one_s_own_data_too(name: str, caplog: pytest.LogCaptureFixture) -> None:
    frequency, channels, rows = REAL[name]
    time_column = {"vic_electricity": "Time"}.get(name, "date")
    target = ["Demand", "Temperature"] if name == "vic_electricity" else None
    data = prepared(name, time_column=time_column, target=target)
    assert data.panel.is_wide
    assert data.panel.frequency == data.task.frequency == frequency
    assert data.panel.values.shape == (rows, channels)
    table = pd.read_csv(f"{REAL_ROOT}/{name}.csv")
    np.testing.assert_array_equal(data.panel.values, table[list(data.task.channels)])
    last = pd.Timestamp(table[time_column].iloc[-1])
    stamps = data.panel.future_time(0, 3)
    step = pd.tseries.frequencies.to_offset(frequency)
    assert stamps.tolist() == [last + step, last + 2 * step, last + 3 * step]
    assert [said for said in logged(caplog) if "not used" not in said] == []


@pytest.mark.real_data
def test_a_real_file_is_trained_on_and_forecast(tmp_path: Path) -> None:
    data = prepared("vic_electricity", time_column="Time", target=["Demand", "Temperature"])
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 1}
    model = ForecastingModule({"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1})
    trainer = Trainer(default_root_dir=tmp_path, accelerator="cpu", max_steps=2, **quiet)
    trainer.fit(model, data)
    (forecasts,) = trainer.predict(model, data)
    frame = future_frame([forecasts], model.task, model.output, data.panel)
    assert len(frame) == 12 * 2
    assert np.isfinite(frame.predictions).all()
