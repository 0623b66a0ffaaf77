"""The options of a training reach it, whoever gives them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.training import ForecastingModule

QUICK = {**SMALL, "max_steps": 3}


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


@pytest.mark.parametrize(("option", "value"), [("loss", "huber"), ("mup", True), ("activation_checkpointing", True)])
def test_an_option_of_the_module_reaches_it(option: str, value: Any, trained: list[Any]) -> None:
    Forecaster(**QUICK, quantiles=None, **{option: value}).fit(frame_of({"a": 200}))
    assert getattr(trained[0][0], option) == value


def test_the_choices_of_an_optimizer_reach_it(trained: list[Any]) -> None:
    choices = {"learning_rate": 0.003, "weight_decay": 0.2, "warmup_steps": 2, "betas": [0.8, 0.9]}
    Forecaster(**QUICK, quantiles=None, **choices, schedule="constant").fit(frame_of({"a": 200}))
    module, trainer = trained[0]
    assert {name: getattr(module.optimization, name) for name in choices} == choices
    (optimizer,), (schedule,) = trainer.optimizers, trainer.lr_scheduler_configs
    assert [group["betas"] for group in optimizer.param_groups] == [(0.8, 0.9)] * 2
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    factor = schedule.scheduler.lr_lambdas[0]
    assert [factor(step) for step in (0, 1, 2, 3, 99)] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1, 1, 1]


def test_arguments_of_the_trainer_reach_it(trained: list[Any]) -> None:
    given = {"gradient_clip_val": 0.25, "accumulate_grad_batches": 2, "val_check_interval": 2}
    forecaster = Forecaster(**QUICK, trainer=given).fit(frame_of({"a": 200}))
    (_, trainer) = trained[0]
    assert (trainer.gradient_clip_val, trainer.accumulate_grad_batches, trainer.global_step) == (0.25, 2, 3)
    assert forecaster.result.experiment.trainer["val_check_interval"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mse"}, "loss mse trains a point forecast, not quantiles: give `--model.loss pinball`"),
        ({"loss": "cake", "quantiles": None}, "unknown loss 'cake'; valid: mse, mae, huber, frequency, pinball"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
        ({"warmup_steps": -1}, "warmup_steps must be at least 0"),
        ({"schedule": "linear"}, "schedule must be one of cosine, constant, not 'linear'"),
        ({"betas": [0.9, 1.0]}, r"betas must be two numbers of at least 0 and below 1, not \[0.9, 1.0\]"),
        ({"compile_mode": "fast"}, "compile_mode must be one of default"),
        ({"selection": "crps", "quantiles": None}, "weights are selected by crps only with quantiles"),
        ({"trainer": {"max_stepz": 3}}, "max_stepz"),
        ({"trainer": {"max_steps": 3}}, "max_steps is an argument of the Forecaster: give it beside trainer"),
        ({"trainer": {"accelerator": "cpu"}}, "accelerator is an argument of the Forecaster"),
        ({"trainer": {"limit_test_batches": 3}}, "limit_test_batches cannot be set"),
    ],
)
def test_an_option_that_is_not_valid_is_refused_before_any_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**{**QUICK, **options})


def test_options_change_what_is_trained_and_are_saved(tmp_path: Any) -> None:
    plain = Forecaster(**QUICK, quantiles=None).fit(frame_of({"a": 200}))
    other = Forecaster(**QUICK, quantiles=None, loss="mae", trainer={"gradient_clip_val": 0.1}).fit(
        frame_of({"a": 200})
    )
    assert not plain.predict()["predictions"].equals(other.predict()["predictions"])
    other.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    assert again.experiment == other.experiment
    pd.testing.assert_frame_equal(again.fit(frame_of({"a": 200})).predict(), other.predict())
