"""Losses, the LightningModule, the figure and the frame of a forecast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from tests.baseline_scores import baseline_scores
from tests.wide_panels import wide_panel
from tsattn.data import CO2DataModule, CSVDataModule
from tsattn.errors import UserError
from tsattn.evaluation import measure
from tsattn.figures import plot_test_forecasts
from tsattn.forecaster import future_frame
from tsattn.optim import adamw, rate_schedule
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, Task
from tsattn.training import ForecastingModule
from tsattn.training.losses import LOSSES, masked_loss

SMALL = {"kind": "transformer", "d_model": 16, "num_heads": 2}


def trainer(tmp_path: Path, **more: object) -> Trainer:
    options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(default_root_dir=tmp_path, **{**options, "max_epochs": 1, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_leave_out_what_is_not_observed(name: str) -> None:
    forecast, target = torch.randn(2, 6, 3), torch.randn(2, 6, 3)
    observed = torch.rand(2, 6, 3) > 0.4
    loss = masked_loss(name, forecast, torch.where(observed, target, 1e3), observed)
    torch.testing.assert_close(loss, LOSSES[name](forecast[observed], target[observed]))
    everything = torch.ones_like(observed)
    torch.testing.assert_close(
        masked_loss(name, forecast, target, everything), masked_loss(name, forecast, target, None)
    )
    assert masked_loss(name, forecast, target, ~everything) == 0


def test_a_checkpoint_loads_as_plain_data_with_its_task(toy_csv: Path, tmp_path: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    model = ForecastingModule({**SMALL, "attention": {"kind": "mlr", "ranks": [4, 4]}})
    fitted = trainer(tmp_path)
    fitted.fit(model, data)
    fitted.save_checkpoint(tmp_path / "model.ckpt")
    torch.load(tmp_path / "model.ckpt", weights_only=True)
    loaded = ForecastingModule.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert (loaded.task, loaded.scaler, loaded.output) == (model.task, model.scaler, model.output)
    assert isinstance(loaded.task, Task)
    assert loaded.task.channels == ("wave", "drift")
    batch = next(iter(data.test_dataloader()))
    assert torch.equal(loaded.eval()(batch), model.eval()(batch))


def test_training_learns_the_wave(toy_csv: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    model = ForecastingModule({**SMALL, "num_layers": 1, "linear_path": "none"}, learning_rate=1e-2, warmup_steps=5)
    fitted = trainer(tmp_path, max_epochs=6)
    fitted.fit(model, data)
    (metrics,) = fitted.test(model, data, verbose=False)
    assert metrics["test_windows"] == 109
    assert metrics["test_mse_scaled"] < 0.5 * baseline_scores(data)["persistence"]["mse_scaled"]


def test_the_ridge_of_training_windows_is_where_training_starts(toy_csv: Path, tmp_path: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    model = ForecastingModule({**SMALL, "linear_path": "ridge"}, learning_rate=1e-9)
    fitted = trainer(tmp_path, max_steps=1)
    fitted.fit(model, data)
    (metrics,) = fitted.test(model, data, verbose=False)
    assert metrics["test_mse_scaled"] < 0.2 * baseline_scores(data)["persistence"]["mse_scaled"]


def test_forecasts_come_back_in_original_units(toy_csv: Path, tmp_path: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    model = ForecastingModule(SMALL)
    fitted = trainer(tmp_path)
    fitted.fit(model, data)
    (forecast,) = fitted.predict(model, data)  # type: ignore[misc]
    assert forecast.shape == (1, 12, 2)
    assert 6 < forecast[..., 0].min() < forecast[..., 0].max() < 14


def test_a_module_without_datamodule_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="learns its sizes from a datamodule"):
        trainer(tmp_path).fit(ForecastingModule(SMALL), train_dataloaders=[torch.zeros(1)])


def test_missing_weeks_are_never_scored() -> None:
    data = CO2DataModule()
    data.setup("fit")
    frame = data.load_frame()
    observed = frame.co2.notna().to_numpy()
    origins = data.splits[0].origins("train", 1, 52)
    expected = sum(int(observed[start : start + 52].sum()) for start in origins)
    table = measure(
        lambda batch: batch.target,
        data.eval_dataloader("train", 1),
        units=data.scaler.units(),
        levels=(),
        ids=data.panel.ids,
        channels=data.panel.channels,
    )
    assert table.frame()["count"].sum() == expected < 52 * len(origins)
    assert table.scores()["mae_original"] == 0


def test_the_figure_shows_windows_and_channels(toy_csv: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    data.setup("fit")
    predictor = NetworkPredictor(SMALL)
    predictor.build(data.task)
    figure = plot_test_forecasts(predictor, data, "title", num_windows=2, num_channels=5)
    assert len(figure.axes) == 2 * 2
    assert figure.axes[0].get_ylabel() == "wave"
    observed, forecast = figure.axes[0].lines[:2]
    assert (len(observed.get_ydata()), len(forecast.get_ydata())) == (24 + 12, 1 + 12)
    np.testing.assert_allclose(observed.get_ydata(), data.panel.values[456:492, 0], rtol=1e-5)
    assert forecast.get_ydata()[0] == observed.get_ydata()[23], "it begins at the last observed step"


@pytest.mark.parametrize(
    ("frequency", "last"), [("h", "2020-02-28 23:00"), ("W-SAT", "2020-02-29"), ("MS", "2020-12-01")]
)
def test_future_time_stamps_follow_the_calendar(frequency: str, last: str) -> None:
    task = Task("toy", 4, 3, ("a", "b"), frequency, 1)
    rows = pd.date_range(end=last, periods=4, freq=frequency, name="day")
    panel = wide_panel(pd.DataFrame({"a": 1.0, "b": 2.0}, index=rows), "toy")
    frame = future_frame([torch.arange(6.0).view(1, 3, 2)], task, Output(), panel)
    assert frame.unique_id.tolist() == ["a"] * 3 + ["b"] * 3
    assert frame.predictions.tolist() == [0, 2, 4, 1, 3, 5]
    assert frame.day[:3].tolist() == pd.date_range(last, periods=4, freq=frequency)[1:].tolist()


def test_warm_up_then_cosine() -> None:
    layer = torch.nn.Linear(3, 3)
    optimizer = adamw([layer], learning_rate=1.0, weight_decay=0.1)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    schedule = rate_schedule(optimizer, warmup_steps=4, total_steps=20)
    rates = []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[:4] == sorted(rates[:4])
    assert max(rates) == rates[4] == 1.0
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)
    constant = rate_schedule(optimizer, warmup_steps=4, total_steps=20, schedule="constant")
    assert [constant.lr_lambdas[0](step) for step in (1, 4, 5, 19, 100)] == [0.4, 1, 1, 1, 1]
