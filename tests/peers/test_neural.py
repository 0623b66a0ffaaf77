"""Networks of neuralforecast as predictors: what they are trained with, what is kept, the whole way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.peers.toys import L, T, toy_data, toy_frame, training
from tsattn import Forecaster
from tsattn.cli import main
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.peers.predictors import NeuralForecast
from tsattn.predictors import build_predictor
from tsattn.task import Output

pytestmark = pytest.mark.usefixtures("fake_peers")


def built(data: ForecastDataModule, levels: tuple[float, ...] = (), model: str = "Level", **arguments: Any) -> Any:
    predictor = build_predictor({"kind": "neuralforecast", "model": model, "arguments": arguments})
    assert data.task is not None
    predictor.build(data.task, Output(levels), empty=True)
    return predictor


def noted(tmp_path: Path, data: ForecastDataModule, how: Any, levels: tuple[float, ...] = (), **given: Any) -> Any:
    """What the model was made of and given."""
    built(data, levels, note=str(tmp_path / "note"), **given).fit(data, how)
    return json.loads((tmp_path / "note").read_text())


def test_it_is_trained_as_networks_of_our_own_are(tmp_path: Path) -> None:
    data = toy_data(batch_size=16)
    how = training({"max_steps": 40, "precision": "bf16-true"}, learning_rate=0.25, loss="huber", selection="mae")
    note = noted(tmp_path, data, how)
    assert {name: note[name] for name in ("h", "input_size", "random_seed")} == {
        **{"h": T, "input_size": L, "random_seed": 5}
    }
    assert (note["max_steps"], note["early_stop_patience_steps"]) == (40, -1)
    assert (note["loss"], note["valid_loss"], note["learning_rate"]) == ("HuberLoss", "MAE", 0.25)
    assert note["windows_batch_size"] == 16 * 2, "of each channel"
    assert (note["accelerator"], note["precision"], note["devices"]) == ("cpu", "bf16-true", 1)
    assert note["val_size"] == data.splits[0].val_end - data.splits[0].train_end
    assert note["rows"] == [data.splits[0].val_end] * 2, "no test row is read"


def test_without_a_length_it_has_that_of_our_own(tmp_path: Path) -> None:
    note = noted(tmp_path, toy_data(), training())
    assert (note["max_steps"], note["early_stop_patience_steps"]) == (400, 7)
    assert 400 % note["val_check_steps"] == 0


def test_its_own_arguments_come_first(tmp_path: Path) -> None:
    own = {"max_steps": 30, "learning_rate": 0.1, "loss": "MAE", "windows_batch_size": 4, "gradient_clip_val": 0.3}
    note = noted(tmp_path, toy_data(), training({"max_steps": 40}, loss="mse"), **own)
    found = {name: note[name] for name in own}
    assert found == own
    assert note["valid_loss"] == "MSE"
    assert note["early_stop_patience_steps"] == -1


def test_all_channels_go_to_a_model_of_several_series_together(tmp_path: Path) -> None:
    data = toy_data(batch_size=16)
    note = noted(tmp_path, data, training({"max_steps": 4}), model="Together")
    assert (note["n_series"], note["windows_batch_size"]) == (2, 16)
    frame = toy_frame(200, 1).rename(columns={"a": "y"}).rename_axis("ds").reset_index()
    many = toy_data(pd.concat([frame.assign(unique_id=name) for name in "ab"]))
    with pytest.raises(UserError, match=r"forecasts all channels of one series together, and the data have 2 series"):
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


def test_a_fit_to_all_rows_ends_at_the_length_that_validation_chose() -> None:
    data = toy_data()
    how = training({"max_steps": 9, "val_check_interval": 3})
    facts = built(data, best_at=6).fit(data, how)
    whole = data.with_all_rows()
    again = built(whole, best_at=6).fit(whole, how.at_length(facts))
    assert (again["best_step"], again["training"]["steps"]) == (6, 6)


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
        ({"max_time": "00:00:01:00"}, {}, "neuralforecast_Level is trained for so many steps: give max_steps or .*"),
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
    predictor = build_predictor({"kind": "neuralforecast", "model": "Level"})
    assert data.task is not None
    predictor.build(data.task)
    with pytest.raises(UserError, match=r"^neuralforecast_Level is not fitted yet$"):
        predictor(next(iter(data.eval_dataloader("val"))))
    assert predictor.num_parameters == 0


@pytest.mark.parametrize("model", ["../Level", ""])
def test_a_model_has_the_name_of_a_class(model: str) -> None:
    with pytest.raises(UserError, match=r"^model must be the name of a class of neuralforecast, not "):
        build_predictor({"kind": "neuralforecast", "model": model})


def test_only_the_worker_reads_what_a_fit_leaves() -> None:
    """The state is bytes of safetensors, whose header is all that is read here."""
    data = toy_data()
    predictor = built(data)
    predictor.fit(data, training({"max_steps": 3}))
    (fitted,) = predictor.state_dict().values()
    assert fitted.dtype == torch.uint8
    header = bytes(fitted.numpy()[8 : 8 + int.from_bytes(bytes(fitted.numpy()[:8]), "little")])
    assert set(json.loads(header)) == {"level", "__metadata__"}


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


def test_the_command_line_goes_the_whole_way(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], undrawn: None
) -> None:
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
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "forecast.csv")]) == 0
    assert len(pd.read_csv(tmp_path / "forecast.csv")) == 2 * 8
    assert main(["fit", *data, "--model.backbone", "{kind: neuralforecast, model: Nil}"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("valid: Level, Recursive, Together")


def test_a_state_moves_into_a_predictor_of_any_sort() -> None:
    data = toy_data()
    predictor = built(data)
    predictor.fit(data, training({"max_steps": 3}))
    for empty, assign in ((True, True), (False, False), (False, True)):
        again = NeuralForecast(model="Level")
        assert data.task is not None
        again.build(data.task, empty=empty)
        again.load_state_dict(predictor.state_dict(), assign=assign)
        assert torch.equal(again.fitted, predictor.fitted)
