"""Networks of neuralforecast and models of statsforecast as predictors, the whole way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.peers.toys import L, T, toy_data, toy_frame, training
from tests.toy_windows import toy_task, toy_windows
from tsattn import Forecaster, run
from tsattn.cli import main
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.peers.predictors import NeuralForecast
from tsattn.predictors import build_predictor
from tsattn.task import Output

pytestmark = pytest.mark.usefixtures("fake_peers")


def built(data: ForecastDataModule, levels: tuple[float, ...] = (), model: str = "Level", **arguments: Any) -> Any:
    predictor = build_predictor({"kind": "neuralforecast", "model": model, "arguments": arguments})
    predictor.build(data.task, Output(levels), empty=True)
    return predictor


def noted(tmp_path: Path, data: ForecastDataModule, how: Any, levels: tuple[float, ...] = (), **given: Any) -> Any:
    built(data, levels, note=str(tmp_path / "note"), **given).fit(data, how)
    return json.loads((tmp_path / "note").read_text())


def test_it_is_trained_as_networks_of_our_own_are_unless_its_arguments_say_otherwise(tmp_path: Path) -> None:
    data = toy_data(batch_size=16)
    how = training({"max_steps": 40, "precision": "bf16-true"}, learning_rate=0.25, loss="huber", selection="mae")
    note = noted(tmp_path, data, how)
    assert (note["h"], note["input_size"], note["random_seed"]) == (T, L, 5)
    assert (note["max_steps"], note["early_stop_patience_steps"]) == (40, -1)
    assert (note["loss"], note["valid_loss"], note["learning_rate"]) == ("HuberLoss", "MAE", 0.25)
    assert note["windows_batch_size"] == 16 * 2, "of each channel"
    assert (note["accelerator"], note["precision"], note["devices"]) == ("cpu", "bf16-true", 1)
    assert note["val_size"] == data.splits[0].val_end - data.splits[0].train_end
    assert note["rows"] == [data.splits[0].val_end] * 2, "no test row is read"
    note = noted(tmp_path, data, training())
    assert (note["max_steps"], note["early_stop_patience_steps"]) == (400, 7)
    assert 400 % note["val_check_steps"] == 0
    own = {"max_steps": 30, "learning_rate": 0.1, "loss": "MAE", "windows_batch_size": 4, "gradient_clip_val": 0.3}
    note = noted(tmp_path, data, training({"max_steps": 40}, loss="mse"), **own)
    assert {name: note[name] for name in own} == own
    assert (note["valid_loss"], note["early_stop_patience_steps"]) == ("MSE", -1)


def test_all_channels_go_to_a_model_of_several_series_together(tmp_path: Path) -> None:
    data = toy_data(batch_size=16)
    note = noted(tmp_path, data, training({"max_steps": 4}), model="Together")
    assert (note["n_series"], note["windows_batch_size"]) == (2, 16)
    frame = toy_frame(200, 1).rename(columns={"a": "y"}).rename_axis("ds").reset_index()
    many = toy_data(pd.concat([frame.assign(unique_id=name) for name in "ab"]))
    with pytest.raises(UserError, match=r"needs one series with all its channels, but the data has 2 series"):
        built(many, model="Together").fit(many, training({"max_steps": 4}))


@pytest.mark.parametrize("best_at", [3, 9])
def test_the_weights_of_the_least_validation_loss_are_kept(best_at: int) -> None:
    data = toy_data()
    how = training({"max_steps": 9, "val_check_interval": 3})
    predictor = built(data, best_at=best_at)
    facts = predictor.fit(data, how)
    assert facts["best_step"] == best_at
    assert facts["training"]["steps"] == 9
    assert facts["library"] == "neuralforecast 3.0"
    assert predictor.num_parameters == 1
    rows = data.series.values[: data.splits[0].train_end]
    (batch,) = data.eval_dataloader("val")
    expected = (batch.past[:, -1:] + rows.mean()).expand(-1, T, -1)
    torch.testing.assert_close(predictor(batch), expected, rtol=1e-5, atol=1e-5)
    whole = data.with_all_rows()
    again = built(whole, best_at=best_at).fit(whole, how.at_length(facts))
    assert (again["best_step"], again["training"]["steps"]) == (best_at, best_at)


def test_quantiles_that_cross_are_sorted() -> None:
    data = toy_data()
    predictor = built(data, (0.1, 0.5, 0.8))
    predictor.fit(data, training({"max_steps": 3}))
    (batch,) = data.eval_dataloader("val")
    made = predictor(batch)
    assert made.shape == (len(batch), T, 2, 3)
    assert (made.diff(dim=-1) > 0).all()
    torch.testing.assert_close(made[..., 2] - made[..., 0], torch.full_like(made[..., 0], 0.7))


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        ({}, {"mup": True}, "mup has no effect on neuralforecast_Level: leave it out"),
        ({}, {"compile_mode": "default"}, "compile_mode has no effect on neuralforecast_Level: leave it out"),
        ({"max_time": "00:00:01:00"}, {}, "neuralforecast_Level needs a number of steps: give max_steps or .*"),
        (
            {},
            {"loss": "frequency"},
            "neuralforecast_Level is trained by one of mse, mae, huber, pinball, not frequency",
        ),
        ({"devices": 2}, {}, "neuralforecast_Level is trained on one device: --trainer.devices must be 1, not 2"),
    ],
)
def test_what_it_cannot_be_trained_with_is_refused_before(trainer: Any, options: Any, message: str) -> None:
    data = toy_data()
    with pytest.raises(UserError, match=f"^{message}$"):
        built(data).check_fit(data, training(trainer, **options))


def test_what_was_not_fitted_does_not_forecast() -> None:
    data = toy_data()
    predictor = built(data)
    with pytest.raises(UserError, match=r"^neuralforecast_Level is not fitted yet$"):
        predictor(next(iter(data.eval_dataloader("val"))))
    assert predictor.num_parameters == 0
    with pytest.raises(UserError, match=r"^model must be the name of a class of neuralforecast, not "):
        build_predictor({"kind": "neuralforecast", "model": "../Level"})


def test_a_forecaster_goes_the_whole_way(tmp_path: Path) -> None:
    frame = toy_frame(300)
    peer = {"kind": "neuralforecast", "model": "Level"}
    forecaster = Forecaster(peer, context_length=L, prediction_length=T, max_steps=3, quantiles=None)
    made = forecaster.fit(frame).predict()
    assert np.isfinite(made["predictions"]).all()
    forecaster.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(), made)
    half = {"kind": "ensemble", "members": [peer, "persistence"], "seeds": 2}
    both = Forecaster(half, context_length=L, prediction_length=T, max_steps=3, quantiles=None).fit(frame).predict()
    last = frame.iloc[-1].to_numpy().repeat(T)
    np.testing.assert_allclose(both["predictions"], (made["predictions"] + last) / 2, rtol=1e-5)


def test_the_command_line_goes_the_whole_way(toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    data = ["--data", "CSVDataModule", "--data.path", str(toy_csv), "--data.context_length", "24"]
    data += ["--data.prediction_length", "8", "--trainer.max_steps", "3", "--trainer.accelerator", "cpu"]
    peer = ["--model.backbone", "{kind: neuralforecast, model: Level}"]
    assert main(["fit", *data, *peer, "--run", str(run), "--refit"]) == 0
    said = capsys.readouterr().out
    assert "neuralforecast_Level: 1 parameters, by neuralforecast 3.0" in said
    assert "training: 3 steps, validation every" in said
    assert "best checkpoint: step 3" in said
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["neuralforecast_Level"]["windows"] == metrics["test_windows"]
    assert metrics["refit"] == {"rows": "all", "steps": 3}
    assert metrics["validation_windows"] > 0
    assert main(["test", "--run", str(run)]) == 0
    assert main(["fit", *data, "--model.backbone", "{kind: neuralforecast, model: Nil}"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("valid: Level, Recursive, Together")


def test_a_state_moves_into_a_predictor_of_any_sort() -> None:
    data = toy_data()
    predictor = built(data)
    predictor.fit(data, training({"max_steps": 3}))
    assert predictor.fitted.dtype == torch.uint8, "bytes, which the worker alone reads"
    for empty, assign in ((True, True), (False, False), (False, True)):
        again = NeuralForecast(model="Level")
        again.build(data.task, empty=empty)
        again.load_state_dict(predictor.state_dict(), assign=assign)
        assert torch.equal(again.fitted, predictor.fitted)


def local(levels: tuple[float, ...] = (), C: int = 3, **more: Any) -> Any:
    predictor = build_predictor({"kind": "statsforecast", "model": "Mean", **more})
    predictor.build(toy_task(L, T, C), Output(levels))
    return predictor


def test_its_context_can_be_bounded_and_its_season_given() -> None:
    windows = toy_windows(toy_task(L, T, 3), 5)  # seasons of 6 steps
    predictor = local(context_length=7)
    assert predictor.context_length == 7
    made = predictor(windows)
    torch.testing.assert_close(made[:, 0], windows.past[:, -7:].mean(1), rtol=1e-6, atol=1e-6)
    with pytest.raises(UserError, match=r"^context_length must be at least 1, not 0$"):
        local(context_length=0)
    made = local(arguments={"seasons": 2})(windows)
    torch.testing.assert_close(made[:, 0], windows.past[:, -12:].mean(1), rtol=1e-6, atol=1e-6)
    made = local(arguments={"seasons": 2, "season_length": 5})(windows)
    torch.testing.assert_close(made[:, 0], windows.past[:, -10:].mean(1), rtol=1e-6, atol=1e-6)


def test_what_is_before_the_first_observed_value_is_left_out() -> None:
    windows = toy_windows(toy_task(L, T, 3), 4, gaps=True)
    made = local()(windows)
    for window, channel in np.ndindex(4, 3):
        seen = windows.past_observed[window, :, channel]
        first = int(seen.int().argmax()) if seen.any() else 0
        expected = windows.past[window, first:, channel].mean()
        torch.testing.assert_close(made[window, 0, channel], expected, rtol=1e-6, atol=1e-6)


def test_quantiles_are_the_ends_of_intervals() -> None:
    levels = (0.05, 0.1, 0.5, 0.9)
    windows = toy_windows(toy_task(L, T, 2), 3)
    made = local(levels, 2)(windows)
    middle = windows.past.mean(1)
    for number, offset in enumerate((-90, -80, 0, 80)):
        torch.testing.assert_close(made[:, 0, :, number], middle + offset, rtol=1e-6, atol=1e-5)


def test_a_window_that_cannot_be_fitted_is_said() -> None:
    windows = toy_windows(toy_task(L, T, 3), 2)
    windows.past[1, 3, 0] = 1e3
    with pytest.raises(UserError, match=r"^Mean of statsforecast failed on a window: a thousand is too much$"):
        local()(windows)


def test_it_needs_no_fit_and_goes_the_whole_way() -> None:
    frame = toy_frame(300)
    peer = {"kind": "statsforecast", "model": "Mean"}
    made = Forecaster(peer, context_length=L, prediction_length=T).predict(frame)  # nobody has called fit
    assert made.columns.tolist() == ["unique_id", "date", "predictions", "0.1", "0.5", "0.9"]
    np.testing.assert_allclose(made["predictions"][::T], frame[-L:].mean(), rtol=1e-5)
    result = run(
        {
            "data": {"class_path": "CO2DataModule", "init_args": {"context_length": 104, "prediction_length": 26}},
            "model": {"backbone": {**peer, "context_length": 52}},
        }
    )
    assert "statsforecast_Mean" in result.tables
    assert result.fit["parameters"] == 0
