"""Models of statsforecast as predictors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.peers.toys import L, T, toy_data, toy_frame, training
from tests.toy_windows import toy_task, toy_windows
from tsattn import Forecaster, run
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.task import Output

pytestmark = pytest.mark.usefixtures("fake_peers")


def built(levels: tuple[float, ...] = (), C: int = 3, **more: Any) -> Any:
    predictor = build_predictor({"kind": "statsforecast", "model": "Mean", **more})
    predictor.build(toy_task(L, T, C), Output(levels))
    return predictor


def test_each_channel_of_each_window_is_fitted_by_itself() -> None:
    windows = toy_windows(toy_task(L, T, 3), 5)
    made = built()(windows)
    torch.testing.assert_close(made, windows.past.mean(1, keepdim=True).expand(-1, T, -1), rtol=1e-6, atol=1e-6)


def test_its_context_can_be_bounded() -> None:
    windows = toy_windows(toy_task(L, T, 3), 5)
    predictor = built(context_length=7)
    assert predictor.context_length == 7
    made = predictor(windows)
    torch.testing.assert_close(made[:, 0], windows.past[:, -7:].mean(1), rtol=1e-6, atol=1e-6)
    with pytest.raises(UserError, match=r"^context_length must be at least 1, not 0$"):
        built(context_length=0)


def test_its_season_is_that_of_the_task_unless_it_is_given() -> None:
    windows = toy_windows(toy_task(L, T, 3), 2)  # seasons of 6 steps
    made = built(arguments={"seasons": 2})(windows)
    torch.testing.assert_close(made[:, 0], windows.past[:, -12:].mean(1), rtol=1e-6, atol=1e-6)
    made = built(arguments={"seasons": 2, "season_length": 5})(windows)
    torch.testing.assert_close(made[:, 0], windows.past[:, -10:].mean(1), rtol=1e-6, atol=1e-6)


def test_what_is_before_the_first_observed_value_is_left_out() -> None:
    windows = toy_windows(toy_task(L, T, 3), 4, gaps=True)
    assert windows.past_observed is not None
    made = built()(windows)
    for window in range(4):
        for channel in range(3):
            seen = windows.past_observed[window, :, channel]
            first = int(seen.int().argmax()) if seen.any() else 0
            expected = windows.past[window, first:, channel].mean()
            torch.testing.assert_close(made[window, 0, channel], expected, rtol=1e-6, atol=1e-6)


def test_quantiles_are_the_ends_of_intervals() -> None:
    levels = (0.05, 0.1, 0.5, 0.9)
    windows = toy_windows(toy_task(L, T, 2), 3)
    made = built(levels, 2)(windows)
    middle = windows.past.mean(1)
    for number, offset in enumerate((-90, -80, 0, 80)):
        torch.testing.assert_close(made[:, 0, :, number], middle + offset, rtol=1e-6, atol=1e-5)


def test_a_window_that_cannot_be_fitted_is_said() -> None:
    windows = toy_windows(toy_task(L, T, 3), 2)
    windows.past[1, 3, 0] = 1e3
    with pytest.raises(UserError, match=r"^Mean of statsforecast failed on a window: a thousand is too much$"):
        built()(windows)


def test_a_wrong_model_is_refused_before_anything_is_forecast() -> None:
    data = toy_data()
    predictor = build_predictor("statsforecast")
    assert data.task is not None
    predictor.build(data.task)
    with pytest.raises(UserError, match=r"^statsforecast has no model 'AutoETS'; valid: Mean$"):
        predictor.check_fit(data, training())


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
