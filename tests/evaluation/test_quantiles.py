"""Forecasts of quantiles from the ridge to calibrated intervals."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from tsattn.backbones import build_backbone
from tsattn.backbones.ridge_solution import apply_ridge, solve_ridge
from tsattn.batch import Batch
from tsattn.data import CSVDataModule
from tsattn.evaluation import ErrorTotals
from tsattn.task import Output, Task
from tsattn.training import ForecastingModule

LEVELS = (0.1, 0.5, 0.75, 0.9)
SMALL = {"kind": "transformer", "d_model": 16, "num_heads": 2}


def test_an_output_travels_as_plain_data_and_knows_its_point_forecast() -> None:
    for output, median in ((Output(LEVELS), 1), (Output((0.5,)), 0), (Output(), None)):
        assert Output.from_dict(json.loads(json.dumps(output.to_dict()))) == output
        assert output.median == median
    assert Output([0.1, 0.5]) == Output((0.1, 0.5))


def test_the_median_starts_from_the_ridge() -> None:
    torch.manual_seed(0)
    batches = [Batch(torch.randn(40, 24, 3), torch.randn(40, 8, 3)) for _ in range(3)]
    description = {"kind": "patchtst", "linear_path": "ridge", "d_model": 16, "num_heads": 2}
    backbone = build_backbone(description, Task("toy", 24, 8, ("a", "b", "c"), "h", 24), Output(LEVELS)).eval()
    backbone.warm_start(batches)
    forecast = backbone(batches[0])
    ridge = apply_ridge(solve_ridge(batches), batches[0])
    torch.testing.assert_close(forecast[..., 1].double(), ridge, rtol=1e-4, atol=1e-4)
    spread = batches[0].past.std(1, correction=0)[:, None]
    expected = spread * (NormalDist().inv_cdf(0.9) - NormalDist().inv_cdf(0.1))
    torch.testing.assert_close(forecast[..., -1] - forecast[..., 0], expected.expand(-1, 8, -1), rtol=1e-3, atol=1e-4)


def test_training_finds_calibrated_quantiles(tmp_path: Path) -> None:
    """On a daily wave whose noise is four times as large in the second half of the day."""
    rng, hours = np.random.default_rng(0), np.arange(2400)
    noise = np.where(hours % 24 < 12, 0.25, 1.0) * rng.standard_normal(len(hours))
    index = pd.date_range("2020-01-01", periods=len(hours), freq="h", name="date")
    noisy = pd.DataFrame({"noisy": 50 + 5 * (np.sin(2 * np.pi * hours / 24) + noise)}, index=index)
    noisy.to_csv(tmp_path / "noisy.csv")
    torch.manual_seed(0)
    data = CSVDataModule(str(tmp_path / "noisy.csv"), context_length=48, prediction_length=24, batch_size=64)
    backbone = {**SMALL, "num_layers": 1, "linear_path": "ridge", "dropout": 0.0}
    model = ForecastingModule(backbone, learning_rate=1e-2, warmup_steps=20, quantiles=(0.1, 0.25, 0.5, 0.75, 0.9))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    fitted = Trainer(default_root_dir=tmp_path, max_epochs=8, **quiet)
    fitted.fit(model, data)
    (metrics,) = fitted.test(model, data, verbose=False)
    assert metrics["test_coverage_80"] == pytest.approx(0.8, abs=0.1)
    assert metrics["test_coverage_50"] == pytest.approx(0.5, abs=0.1)
    assert metrics["test_mae_scaled"] == pytest.approx(metrics["test_mae_original"] / data.scaler.scale[0], rel=1e-4)
    # the interval knows the hours of large noise
    parts = [ErrorTotals(1, model.output.quantiles) for _ in range(2)]
    for window in data.test_dataloader():
        calm = (window.time[:, 48:] // 3600 % 24 < 12)[..., None]
        for errors, seen in zip(parts, (calm, ~calm), strict=True):
            errors.update(model(window), window.target, seen, data.scaler.units().of(None))
    for errors in parts:
        assert errors.scores()["coverage_80"] == pytest.approx(0.8, abs=0.1)
    # and comes back in original units: 2 * 1.28 times the noise, which is 5 in loud hours
    (forecast,) = fitted.predict(model, data)
    assert forecast.shape == (1, 24, 1, 5)
    width = (forecast[..., -1] - forecast[..., 0]).flatten()
    calm = torch.tensor(pd.date_range(data.panel.time[-1], periods=25, freq="h")[1:].hour < 12)
    assert width[~calm].mean().item() == pytest.approx(12.8, rel=0.3)
    assert width[calm].mean() < 0.5 * width[~calm].mean()
