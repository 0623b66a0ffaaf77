"""What weights do in a fit: 0 is as missing, a whole number as so many copies, and a common factor nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecaster.toys import SMALL, L, T, frame_of
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.evaluation.window_errors import quantile_loss
from tsattn.forecaster import Forecaster
from tsattn.scaler import Scaler
from tsattn.task import Task
from tsattn.training import ForecastingModule
from tsattn.training.losses import LOSSES, masked_loss

LEVELS = (0.1, 0.5, 0.9)
RIDGE: dict[str, Any] = {"backbone": "ridge", "context_length": L, "prediction_length": T, "accelerator": "cpu"}


def drawn(windows: int = 6, channels: int = 2, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    past, target = (torch.from_numpy(rng.standard_normal((windows, n, channels))).float() for n in (8, 3))
    return Batch(past=past, target=target)


@pytest.mark.parametrize("loss", [*LOSSES, "pinball"])
def test_the_loss_is_the_weighted_mean_over_targets_that_count(loss: str) -> None:
    rng = np.random.default_rng(1)
    target, levels = drawn().target, LEVELS if loss == "pinball" else ()
    forecast = torch.randn(*target.shape, len(levels)) if levels else torch.randn(target.shape)
    weight = torch.from_numpy(rng.integers(0, 3, target.shape)).float()
    observed = torch.from_numpy(rng.random(target.shape) < 0.8)
    single = (
        quantile_loss(forecast, target, levels).mean(-1) if levels else LOSSES[loss](forecast, target, reduction="none")
    )
    counts = (weight > 0) & observed
    expected = (single * weight)[counts].sum() / counts.sum()
    torch.testing.assert_close(masked_loss(loss, forecast, target, observed, levels, weight), expected)
    plain = masked_loss(loss, forecast, target, None, levels)
    torch.testing.assert_close(masked_loss(loss, forecast, target, None, levels, torch.ones_like(weight)), plain)
    assert masked_loss(loss, forecast, target, observed, levels, torch.zeros_like(weight)) == 0


def test_a_row_of_weight_0_gives_the_gradient_of_a_missing_one() -> None:
    batch = drawn()
    odd = torch.from_numpy(np.random.default_rng(2).random(batch.target.shape) < 0.3)
    spoilt = batch.target.masked_fill(odd, 1e6)
    torch.manual_seed(0)
    module = ForecastingModule("dlinear")
    module.build(Task("x", 8, 3, ("a", "b"), "h", 24), Scaler((0.0, 0.0), (1.0, 1.0)))
    module.log = lambda *args, **options: None
    module._trainer = type("OneProcess", (), {"world_size": 1})()
    losses, gradients = [], []
    for one in (
        replace(batch, target=spoilt, target_weight=(~odd).float()),
        replace(batch, target=spoilt, target_observed=~odd),
        replace(batch, target_observed=~odd, target_weight=torch.ones_like(spoilt)),
    ):
        module.zero_grad()
        loss = module.training_step(one, 0)
        loss.backward()
        losses.append(loss.detach())
        gradients.append([weight.grad.clone() for weight in module.parameters() if weight.grad is not None])
    for other in (1, 2):
        torch.testing.assert_close(losses[0], losses[other])
        torch.testing.assert_close(gradients[0], gradients[other])


@pytest.mark.parametrize("made", [RIDGE, {**SMALL, "max_steps": 3}], ids=["ridge", "network"])
def test_a_common_factor_changes_nothing_and_single_weights_do(made: dict[str, Any]) -> None:
    frame = frame_of({"a": 200, "b": 150})
    weights = [{"a": 1, "b": 4}, {"a": 0.5, "b": 2}, {"a": 1, "b": 1}]
    fits = [Forecaster(**made, data={"series_weights": one}).fit(frame) for one in weights]
    one, scaled, even = (fit.predict()["predictions"].to_numpy() for fit in fits)
    np.testing.assert_allclose(one, scaled, rtol=1e-6)
    assert np.abs(one - even).max() > 1e-4
    assert len({fit.result.key for fit in fits if fit.result is not None}) == 3


def test_no_score_is_weighted() -> None:
    """The errors of a forecast that no weight changes are those without weights."""
    frame = frame_of({"a": 200, "b": 150}).assign(w=np.random.default_rng(0).random(350))
    made = {**RIDGE, "backbone": {"kind": "window_mean"}, "val_rows": 20, "test_rows": 20}
    one = Forecaster(**made, data={"weight_column": "w"}).fit(frame)
    other = Forecaster(**made).fit(frame.drop(columns="w"))
    assert one.result.fit["validation_error"] == other.result.fit["validation_error"]
    pd.testing.assert_series_equal(one.result.scores.loc["window_mean"], other.result.scores.loc["window_mean"])
    pd.testing.assert_frame_equal(one.evaluate(frame), other.evaluate(frame.drop(columns="w")))

    sizes: dict[str, Any] = {"context_length": L, "prediction_length": T, "data": {"series_weights": {"a": 2}}}
    forecaster = Forecaster({"kind": "chronos", "weights": "a/model", "trained": "all"}, **sizes)
    with pytest.raises(UserError, match="weights: leave out weight_column, series_weights and row_weights"):
        forecaster.fit(frame_of({"a": 200}))
