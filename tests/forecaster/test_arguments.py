"""Arguments and options: refused before data are read, cloned, copied, and handed to the fit, loggers and callbacks."""

import copy
import importlib.util
import inspect
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.base import clone

import tsattn
from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import DataOptions, Forecaster, TrainingOptions
from tsattn.task import Output
from tsattn.training import ForecastingModule


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_length": 48.0}, "context_length must be a whole number, not 48.0"),
        ({"seed": 1 << 70}, "seed must be at most"),
        ({"learning_rate": "fast"}, "learning_rate must be a number above 0, not 'fast'"),
        ({"quantiles": 0.5}, r"quantiles must be a list of numbers, such as \[0.1, 0.5, 0.9\], not 0.5"),
        ({"target": 2.5}, "target must be the name of a column or a list of names, not 2.5"),
        ({"frequency": "cake"}, "cake. is not a frequency"),
        ({"backbone": "cake"}, "unknown predictor 'cake'; valid: transformer, patchtst, .*, ridge"),
        ({"backbone": 3}, "predictor must be one of transformer, patchtst, .*, or {kind: NAME, argument: value}, not"),
        ({"quantiles": [0.1, 0.9]}, "must include 0.5"),
        ({"scaling": "robust"}, "scaling must be one of"),
        ({"accelerator": "cake"}, "accelerator must be one of"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**{**SMALL, **options})


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_an_accelerator_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=f"accelerator {name} is not on this machine; valid are auto, cpu"):
        Forecaster(**{**SMALL, "accelerator": name})


def test_wrong_numbers_of_a_call_are_refused_before_a_frame_is_read(fitted: Forecaster) -> None:
    for name, call in (
        ("horizon", lambda value: fitted.predict("nowhere.csv", horizon=value)),
        ("windows", lambda value: fitted.cross_validate("nowhere.csv", windows=value)),
        ("step", lambda value: fitted.evaluate("nowhere.csv", step=value)),
    ):
        with pytest.raises(UserError, match=rf"{name} must be a whole number, not 1\.0"):
            call(1.0)
        with pytest.raises(UserError, match=f"{name} must be at least 1, not 0"):
            call(0)
    for three in (np.int64(3), np.array(3), torch.tensor(3)):
        assert fitted.predict(horizon=three).groupby("unique_id").size().eq(3).all()
    for other in (np.array([3]), torch.tensor(3.0), True):
        with pytest.raises(UserError, match="horizon must be a whole number, not "):
            fitted.predict(horizon=other)


def test_levels_are_rounded_to_what_they_mean() -> None:
    forecaster = Forecaster(**{**SMALL, "quantiles": np.arange(0.1, 0.95, 0.1)})
    levels = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert forecaster.arguments["quantiles"] == forecaster.experiment.output.quantiles == levels
    one_less = [1 - 0.9, 0.1 + 0.2, 1.1 - 0.6, 0.7]  # the median, too, is what it means
    assert Forecaster(**{**SMALL, "quantiles": one_less}).arguments["quantiles"] == (0.1, 0.3, 0.5, 0.7)
    with pytest.raises(UserError, match=r"quantiles must lie between 0 and 1, ends excluded, not 1e-12, 0\.5"):
        Forecaster(**{**SMALL, "quantiles": [1e-12, 0.5]})
    assert Output(torch.tensor([0.1, 0.5], dtype=torch.float64)).quantiles == (0.1, 0.5)


def test_another_default_dtype_is_refused_before_anything_is_trained() -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with pytest.raises(
            UserError, match=r"default dtype is torch\.float64, but networks are trained and forecast in"
        ):
            Forecaster(**SMALL).fit(frame_of())
    finally:
        torch.set_default_dtype(before)


def test_parameters_are_those_that_were_given(fitted: Forecaster) -> None:
    levels = np.array([0.1, 0.5, 0.9])
    forecaster = Forecaster("patchtst", quantiles=levels, learning_rate=np.float32(0.01))
    assert forecaster.get_params()["quantiles"] is levels
    assert [*forecaster.get_params()] == [*inspect.signature(Forecaster).parameters]
    assert fitted.get_params(deep=False) == fitted.get_params()


def test_a_clone_is_equal_and_not_fitted(fitted: Forecaster) -> None:
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    assert other.fitted is None
    assert fitted.fitted is not None
    frame = frame_of({"a": 200})
    one = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    pd.testing.assert_frame_equal(clone(one).fit(frame).predict(), one.predict())


def test_other_parameters_make_it_one_that_is_not_fitted() -> None:
    forecaster = Forecaster("seasonal_naive", prediction_length=12)
    assert forecaster.set_params(prediction_length=24) is forecaster
    assert forecaster.arguments["prediction_length"] == 24
    for wrong, message in (
        (
            {"prediction_lenght": 3},
            "a Forecaster has no argument 'prediction_lenght' .did you mean prediction_length..; valid are backbone, ",
        ),
        ({"prediction_length": 0}, "prediction_length must be at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            forecaster.set_params(**wrong)
        assert forecaster.get_params()["prediction_length"] == 24


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_forecasts_the_same(copied: Any, fitted: Forecaster) -> None:
    other = copied(fitted)
    pd.testing.assert_frame_equal(other.predict(), fitted.predict())
    assert repr(other) == repr(fitted)
    other.fit(frame_of({"a": 200}))
    assert "fitted on 4 series" in repr(fitted)


QUICK: dict[str, Any] = {**SMALL, "max_steps": 3, "quantiles": None}
FRAME = frame_of({"a": 200})


class Counted(Callback):
    """Counts steps, of all of its kind."""

    total = 0

    def __init__(self) -> None:
        self.steps = 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *of_the_step: Any) -> None:
        self.steps += 1
        Counted.total += 1


DESCRIBED = {"class_path": f"{__name__}.Counted"}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Module and Trainer of each training."""
    seen: list[Any] = []
    start = ForecastingModule.on_fit_start

    def noted(module: ForecastingModule) -> None:
        seen.append((module, module.trainer))
        start(module)

    monkeypatch.setattr(ForecastingModule, "on_fit_start", noted)
    return seen


def test_options_of_a_group_are_the_same_however_they_are_given() -> None:
    flat = Forecaster(**QUICK, target="y", training={"weight_decay": 0.2}, data={"batch_size": 8})
    training = {"max_steps": 3, "weight_decay": 0.2, "accelerator": "cpu"}
    rest = {name: value for name, value in QUICK.items() if name not in training}
    in_groups = Forecaster(**rest, data={"batch_size": 8, "target": "y"}, training=training)
    data = DataOptions(batch_size=8, target="y", eval_batch_size=256)
    made = Forecaster(**rest, data=data, training=TrainingOptions(**training))
    assert flat.experiment == in_groups.experiment == made.experiment
    assert flat.arguments == in_groups.arguments == made.arguments
    assert Forecaster(**flat.arguments).experiment == flat.experiment
    assert "data={'batch_size': 8}, max_steps=3, accelerator='cpu', training={'weight_decay': 0.2}" in repr(flat)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": {"batch_sise": 3}}, r"data has no option 'batch_sise' \(did you mean batch_size\?\); valid are id_c"),
        ({"training": {"weight": 3}}, r"training has no option 'weight' \(did you mean weight_decay\?\); valid are "),
        ({"data": 3}, r"data must be DataOptions\(...\) or a dictionary, not 3"),
        ({"training": DataOptions()}, r"training must be TrainingOptions\(...\) or a dictionary, not DataOptions"),
        ({"seed": 4, "training": {"seed": 3}}, "seed is given twice, as an argument and in training"),
        ({"target": "x", "data": DataOptions(target="y")}, "target is given twice, as an argument and in data"),
        ({"data": {"batch_size": True}}, "batch_size must be a whole number, not True"),
        ({"loss": "mse", "quantiles": "auto"}, "loss mse trains a point forecast, not quantiles: give loss p"),
        ({"loss": "cake"}, "unknown loss 'cake'; valid: mse, mae, huber, frequency, pinball"),
        ({"training": {"weight_decay": -1.0}}, "weight_decay must be at least 0"),
        ({"training": {"weight_decay": None}}, "weight_decay must be at least 0, not None"),
        ({"training": {"betas": None}}, "betas must be two numbers of at least 0 and below 1"),
        ({"training": {"min_delta": None}}, "min_delta must be a number of at least 0, not None"),
        ({"training": {"compile_mode": "fast"}}, "compile_mode must be one of default"),
        ({"training": {"patience": 0}}, "patience must be at least 1 validation, not 0"),
        ({"training": {"min_delta": -1.0}}, "min_delta must be a number of at least 0"),
        ({"training": {"trainer": {"max_stepz": 3}}}, "max_stepz"),
        ({"training": {"trainer": {"max_steps": 3}}}, "max_steps is an option of training: give it there instead of"),
        (
            {"training": {"logger": "cake"}},
            "logger must be one of csv, tensorboard, wandb, mlflow, or a Lightning logger, not 'cake'",
        ),
        ({"training": {"callbacks": [print]}}, "callbacks must be Lightning objects, or have a class_path"),
        ({"training": {"callbacks": [Counted()], "trainer": {"callbacks": []}}}, "callbacks is given twice"),
        ({"training": {"callbacks": ["NoSuchCallback"]}}, "NoSuchCallback"),
        ({"backbone": "ridge", "training": {"checkpoints": "x"}}, "save_top_k need a single network, not ridge"),
    ],
)
def test_an_option_that_is_not_valid_is_refused_before_any_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**{**QUICK, **options})


def test_options_reach_module_optimizer_and_trainer(trained: list[Any]) -> None:
    choices = {"learning_rate": 0.003, "weight_decay": 0.2, "warmup_steps": 2, "betas": [0.8, 0.9]}
    given = {"gradient_clip_val": 0.25, "accumulate_grad_batches": 2, "val_check_interval": 2}
    others = {"schedule": "constant", "mup": True, "activation_checkpointing": True, "trainer": given}
    forecaster = Forecaster(**QUICK, loss="huber", training={**choices, **others}).fit(FRAME)
    module, trainer = trained[0]
    assert (module.loss, module.mup, module.activation_checkpointing) == ("huber", True, True)
    assert {name: getattr(module.optimization, name) for name in choices} == choices
    (optimizer,), (schedule,) = trainer.optimizers, trainer.lr_scheduler_configs
    assert {group["betas"] for group in optimizer.param_groups} == {(0.8, 0.9)}
    factor = schedule.scheduler.lr_lambdas[0]
    assert [factor(step) for step in (0, 1, 2, 3, 99)] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1, 1, 1]
    assert (trainer.gradient_clip_val, trainer.accumulate_grad_batches, trainer.global_step) == (0.25, 2, 3)
    assert forecaster.result.experiment.trainer["val_check_interval"] == 2


def steps_of(forecaster: Forecaster) -> int:
    return int(forecaster.result.fit["training"]["steps"])


def test_patience_ends_a_training_whose_error_does_not_come_down() -> None:
    often: dict[str, Any] = {**QUICK, "max_steps": 12}
    trainer = {"val_check_interval": 2}
    assert steps_of(Forecaster(**often, training={"trainer": trainer}).fit(FRAME)) == 12
    # no error comes down by so much: the first is the least, and two more end it
    forecaster = Forecaster(**often, training={"patience": 2, "min_delta": 1e6, "trainer": trainer}).fit(FRAME)
    assert steps_of(forecaster) == 6
    again = Forecaster.of(forecaster.result).arguments["training"]
    assert (again["patience"], again["min_delta"]) == (2, 1e6)


def test_a_logger_whose_package_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one, *of: None if one == "wandb" else find(one, *of))
    with pytest.raises(UserError, match="logger wandb needs a package that is not installed: pip install wandb"):
        Forecaster(**QUICK, training={"logger": "wandb"}).fit(FRAME)


def test_a_logger_and_callbacks_that_are_objects_see_the_fit_and_are_not_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger, counted = CSVLogger(tmp_path, name="mine", version=""), Counted()
    kept = ModelCheckpoint(tmp_path / "own", filename="mine_{step}", every_n_train_steps=1, save_top_k=-1)
    before, trainer = Counted.total, {"log_every_n_steps": 1, "val_check_interval": 2}
    training = {"logger": logger, "callbacks": [counted, DESCRIBED, kept], "trainer": trainer}
    forecaster = Forecaster(**QUICK, training=training).fit(FRAME)
    assert (tmp_path / "mine" / "metrics.csv").exists()
    assert counted.steps == 3
    assert Counted.total - before == 6
    files = {path.name for path in (tmp_path / "own").iterdir()}
    assert {f"mine_step={step}.ckpt" for step in (1, 2, 3)} <= files
    plain = Forecaster(**QUICK, training={"trainer": {"val_check_interval": 2}}).fit(FRAME)
    pd.testing.assert_frame_equal(forecaster.predict(), plain.predict())
    forecaster.save(tmp_path / "model")
    assert "callbacks and loggers given as objects are not saved: " in caplog.text
    assert tsattn.load(tmp_path / "model").arguments["training"]["callbacks"] == [DESCRIBED]
    forecaster.cross_validate(FRAME, windows=1)
    assert counted.steps == 3, "models that are trained aside have copies"
    assert Counted.total - before == 12


def test_a_callback_begins_each_training_in_the_state_that_it_was_given_in() -> None:
    def forecaster(**options: Any) -> Forecaster:
        stop = EarlyStopping("val_mse_scaled", patience=1, min_delta=1e6)  # ends at the second validation
        training = {"callbacks": [stop], "trainer": {"val_check_interval": 2}}
        return Forecaster(**{**QUICK, "max_steps": 8, "training": training, **options})

    single = forecaster()
    assert [steps_of(single.fit(FRAME)) for _ in range(2)] == [4, 4]
    assert steps_of(single.set_params(learning_rate=0.01).fit(FRAME)) == 4
    ensemble = forecaster(backbone={"kind": "ensemble", "members": ["dlinear"], "seeds": 2}).fit(FRAME)
    assert [fit["training"]["steps"] for fit in ensemble.result.fit["members"][0]] == [4, 4]


class Watched(Callback):
    seen: ClassVar[list[Callback]] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        Watched.seen.append(self)


def test_a_calibration_and_a_refit_have_callbacks_of_their_own() -> None:
    training = {"callbacks": [{"class_path": f"{__name__}.Watched"}]}
    short = {"context_length": 12, "prediction_length": 4, "calibrate": True, "training": training}
    Forecaster(**{**QUICK, **short}).fit(frame_of({"one": 60}), refit=True)
    assert len(Watched.seen) == len({*map(id, Watched.seen)}) == 3


def test_a_forecaster_of_a_result_has_all_that_decides_its_training() -> None:
    trainer = {"gradient_clip_val": None, "limit_train_batches": 3}
    forecaster = Forecaster(**QUICK, training={"callbacks": [DESCRIBED], "trainer": trainer}).fit(FRAME)
    again = Forecaster.of(forecaster.result)
    assert again.experiment.trainer == forecaster.result.experiment.trainer
    assert again.experiment.trainer["gradient_clip_val"] is None
    pd.testing.assert_frame_equal(again.fit(FRAME).predict(), forecaster.predict())


def test_a_bar_counts_steps_and_shows_what_chooses_the_weights(capsys: pytest.CaptureFixture[str]) -> None:
    Forecaster(**SMALL, training={"progress": True}).fit(FRAME)
    shown = capsys.readouterr().err
    assert "30/30" in shown
    assert "val_crps_scaled=" in shown
    assert "Epoch" not in shown
    Forecaster(**QUICK).fit(FRAME)
    assert capsys.readouterr().err == ""
