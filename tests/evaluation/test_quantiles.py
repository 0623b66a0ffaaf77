"""Forecasts of quantiles from the task to the frame, the figure and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from lightning.pytorch import Trainer

from tsattn.backbones import build_backbone
from tsattn.backbones.ridge_solution import apply_ridge, solve_ridge
from tsattn.batch import Batch
from tsattn.cli import main
from tsattn.data import CSVDataModule
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTotals
from tsattn.figures import plot_test_forecasts
from tsattn.predictors.network import NetworkPredictor
from tsattn.scaler import Scaler
from tsattn.task import Output, Task
from tsattn.training import ForecastingModule
from tsattn.training.losses import masked_loss

LEVELS = (0.1, 0.5, 0.75, 0.9)
L, T, C = 24, 8, 3
TASK, OUTPUT = Task("toy", L, T, ("a", "b", "c"), "h", 24), Output(LEVELS)
SMALL = {"kind": "transformer", "d_model": 16, "num_heads": 2}


def batch(seed: int = 0, size: int = 5) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(torch.randn(size, L, C, generator=generator), torch.randn(size, T, C, generator=generator))


def built(description: dict[str, Any], output: Output = OUTPUT) -> Any:
    torch.manual_seed(0)
    return build_backbone({"d_model": 16, "num_heads": 2, **description}, TASK, output).eval()


def trainer(folder: Path, **more: Any) -> Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(default_root_dir=folder, accelerator="cpu", **quiet, **more)


def test_an_output_travels_as_plain_data_and_knows_its_point_forecast() -> None:
    for output, num, median in ((OUTPUT, 4, 1), (Output((0.5,)), 1, 0), (Output(), 1, None)):
        assert Output.from_dict(json.loads(json.dumps(output.to_dict()))) == output
        assert (output.num, output.median) == (num, median)
    assert Output([0.1, 0.5]) == Output((0.1, 0.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("description", [{"kind": "transformer", "channels": "mixed"}, {"kind": "patchtst"}], ids=str)
def test_the_median_starts_from_the_ridge(description: dict[str, Any]) -> None:
    batches = [batch(seed, 40) for seed in range(3)]
    backbone = built({**description, "linear_path": "ridge"})
    backbone.warm_start(batches)
    forecast = backbone(batches[0])
    ridge = apply_ridge(solve_ridge(batches), batches[0])
    torch.testing.assert_close(forecast[..., 1].double(), ridge, rtol=1e-4, atol=1e-4)
    spread = batches[0].past.std(1, correction=0)[:, None]
    expected = spread * (NormalDist().inv_cdf(0.9) - NormalDist().inv_cdf(0.1))
    torch.testing.assert_close(forecast[..., -1] - forecast[..., 0], expected.expand(-1, T, -1), rtol=1e-3, atol=1e-4)


def test_the_pinball_loss_is_the_mean_over_observed_targets_and_levels() -> None:
    forecast, target = torch.randn(2, 6, 3, 4).double(), torch.randn(2, 6, 3).double()
    observed = torch.rand(2, 6, 3) > 0.4
    error = target[..., None] - forecast
    losses = torch.stack([2 * e * (q - (e < 0).double()) for e, q in zip(error.unbind(-1), LEVELS, strict=True)], -1)
    junk = torch.where(observed, target, 1e3)
    torch.testing.assert_close(masked_loss("pinball", forecast, junk, observed, LEVELS), losses[observed].mean())
    torch.testing.assert_close(masked_loss("pinball", forecast, target, None, LEVELS), losses.mean())
    assert masked_loss("pinball", forecast, target, ~torch.ones_like(observed), LEVELS) == 0
    median = masked_loss("pinball", forecast[..., :1], target, None, (0.5,))
    torch.testing.assert_close(median, masked_loss("mae", forecast[..., 0], target, None))


def test_the_loss_follows_from_what_is_forecast() -> None:
    assert ForecastingModule(SMALL).loss == "mse"
    assert ForecastingModule(SMALL, loss="mae").loss == "mae"
    assert ForecastingModule(SMALL, quantiles=LEVELS).loss == "pinball"
    assert ForecastingModule(SMALL, quantiles=LEVELS, loss="pinball").loss == "pinball"
    for name in ("mse", "mae", "huber"):
        with pytest.raises(
            UserError, match=f"loss {name} trains a point forecast, not quantiles: give `--model.loss pinball` .Python"
        ):
            ForecastingModule(SMALL, loss=name, quantiles=LEVELS)
    with pytest.raises(UserError, match="loss pinball needs quantiles; without them the loss is one of mse, mae"):
        ForecastingModule(SMALL, loss="pinball")


def test_half_precision_keeps_the_original_units() -> None:
    model = ForecastingModule(SMALL, quantiles=(0.1, 0.5))
    model.build(TASK, Scaler((371.3,) * C, (1.0,) * C))
    model.to(torch.bfloat16)
    scaled = torch.tensor([-0.25, 0.0], dtype=torch.bfloat16).expand(1, T, C, 2)
    expected = torch.tensor([371.05, 371.3], dtype=torch.float64).expand(1, T, C, 2)
    torch.testing.assert_close(model.units.restore(scaled), expected)


def test_a_backbone_of_points_takes_no_quantiles() -> None:
    description = {"kind": "tests.backbones.test_backbones.Flat"}
    assert build_backbone(description, TASK)
    with pytest.raises(UserError, match=r"Flat forecasts points only: it takes no quantiles"):
        build_backbone(description, TASK, OUTPUT)


@pytest.fixture
def noisy_csv(tmp_path: Path) -> Path:
    """A daily wave whose noise is four times as large in the second half of the day."""
    rng = np.random.default_rng(0)
    hours = np.arange(2400)
    noise = np.where(hours % 24 < 12, 0.25, 1.0) * rng.standard_normal(len(hours))
    index = pd.date_range("2020-01-01", periods=len(hours), freq="h", name="date")
    path = tmp_path / "noisy.csv"
    pd.DataFrame({"noisy": 50 + 5 * (np.sin(2 * np.pi * hours / 24) + noise)}, index=index).to_csv(path)
    return path


def test_training_finds_calibrated_quantiles(noisy_csv: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = CSVDataModule(str(noisy_csv), context_length=48, prediction_length=24, batch_size=64)
    backbone = {**SMALL, "num_layers": 1, "linear_path": "ridge", "dropout": 0.0}
    model = ForecastingModule(backbone, learning_rate=1e-2, warmup_steps=20, quantiles=(0.1, 0.25, 0.5, 0.75, 0.9))
    fitted = trainer(tmp_path, max_epochs=8)
    fitted.fit(model, data)
    (metrics,) = fitted.test(model, data, verbose=False)
    assert metrics["test_coverage_80"] == pytest.approx(0.8, abs=0.1)
    assert metrics["test_coverage_50"] == pytest.approx(0.5, abs=0.1)
    assert metrics["test_mae_scaled"] == pytest.approx(metrics["test_mae_original"] / data.scaler.scale[0], rel=1e-4)
    # the interval knows the hours of large noise
    quiet, loud = ErrorTotals(1, model.output.quantiles), ErrorTotals(1, model.output.quantiles)
    units = data.scaler.units().of(None)
    for window in data.test_dataloader():
        calm = (window.time[:, 48:] // 3600 % 24 < 12)[..., None]
        quiet.update(model(window), window.target, calm, units)
        loud.update(model(window), window.target, ~calm, units)
    for errors in (quiet, loud):
        assert errors.scores()["coverage_80"] == pytest.approx(0.8, abs=0.1)
    # and comes back in original units: 2 * 1.28 times the noise, which is 5 in loud hours
    (forecast,) = fitted.predict(model, data)  # type: ignore[misc]
    assert forecast.shape == (1, 24, 1, 5)
    width = (forecast[..., -1] - forecast[..., 0]).flatten()
    calm = torch.tensor(pd.date_range(data.panel.time[-1], periods=25, freq="h")[1:].hour < 12)
    assert width[~calm].mean().item() == pytest.approx(12.8, rel=0.3)
    assert width[calm].mean() < 0.5 * width[~calm].mean()
    predictor = NetworkPredictor(backbone)
    predictor.build(data.task, model.output)
    predictor.backbone = model.backbone
    figure = plot_test_forecasts(predictor, data, "title", num_windows=2)
    bands = figure.axes[0].collections
    assert [band.get_label() for band in bands] == ["80 % interval", "50 % interval"]
    heights = [np.ptp(band.get_paths()[0].vertices[:, 1]) for band in bands]
    assert heights[0] > heights[1] > 0
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["observed", "forecast"]
    observed, median = figure.axes[0].lines[:2]
    assert (len(observed.get_ydata()), len(median.get_ydata())) == (48 + 24, 1 + 24)


def test_a_checkpoint_keeps_its_quantiles(toy_csv: Path, tmp_path: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    model = ForecastingModule(SMALL, quantiles=np.array([0.1, 0.5]))  # type: ignore[arg-type]
    fitted = trainer(tmp_path, max_steps=1)
    fitted.fit(model, data)
    path = tmp_path / "model.ckpt"
    fitted.save_checkpoint(path)
    loaded = ForecastingModule.load_from_checkpoint(path, weights_only=True)
    assert (loaded.task, loaded.scaler) == (model.task, model.scaler)
    assert loaded.output == model.output == Output((0.1, 0.5))
    window = next(iter(data.test_dataloader()))
    assert torch.equal(loaded.eval()(window), model.eval()(window))
    with pytest.raises(UserError, match=r"its quantiles are \[0\.1, 0\.5\], but none are asked for"):
        ForecastingModule(SMALL).on_load_checkpoint(torch.load(path, weights_only=True))


CO2 = ["fit", "--config", "co2_mlr.yaml", "--data.context_length=16", "--attention=mlr", "--model.backbone.d_model=16"]
TINY = ["--trainer.max_steps=4", "--trainer.val_check_interval=2", "--trainer.accelerator=cpu"]


@pytest.mark.usefixtures("undrawn", "short_ridge")
def test_the_commands_take_quantiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main([*CO2, *TINY, "--model.quantiles", "[0.1, 0.5, 0.9]", "--run", str(run)]) == 0
    assert "CRPS" in capsys.readouterr().out
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["quantiles"] == [0.1, 0.5, 0.9]
    test = json.loads((run / "metrics.json").read_text())["test"]
    assert {"wql", "crps_scaled", "crps_original", "coverage_80"} <= set(test["transformer_mlr"])
    assert "wql" not in test["persistence"]
    assert "val_wql" in pd.read_csv(run / "metrics.csv").columns
    for command in ("test", "validate"):
        assert main([command, "--run", str(run)]) == 0
        assert "CRPS" in capsys.readouterr().out
    assert main(["predict", "--run", str(run)]) == 0
    frame = pd.read_csv(run / "forecast.csv")
    assert list(frame.columns) == ["unique_id", "date", "predictions", "0.1", "0.5", "0.9"]
    assert (frame["0.1"] < frame["0.5"]).all()
    assert (frame["0.5"] < frame["0.9"]).all()
    assert (frame.predictions == frame["0.5"]).all()
    assert frame.predictions.between(300, 450).all()
    capsys.readouterr()
    words = ["test", "--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]
    assert main([*words, "--model.quantiles", "[0.5]"]) == 2
    said = capsys.readouterr().err
    assert "the checkpoint is of another model: its quantiles are [0.1, 0.5, 0.9], but [0.5] are asked for" in said
