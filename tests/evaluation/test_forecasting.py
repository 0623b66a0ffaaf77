"""Losses, the LightningModule, the figure and the frame of a forecast."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer

from tests.baseline_scores import baseline_scores
from tsattn.data import CO2DataModule, CSVDataModule
from tsattn.errors import UserError
from tsattn.evaluation import measure
from tsattn.layers.optim import adamw, rate_schedule
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


def test_the_ridge_of_training_windows_is_where_training_starts(toy_csv: Path, tmp_path: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    model = ForecastingModule({**SMALL, "linear_path": "ridge"}, learning_rate=1e-9)
    fitted = trainer(tmp_path, max_steps=1)
    fitted.fit(model, data)
    (metrics,) = fitted.test(model, data, verbose=False)
    assert metrics["test_mse_scaled"] < 0.2 * baseline_scores(data)["persistence"]["mse_scaled"]


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
