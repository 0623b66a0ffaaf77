"""Forecasters of transformed targets: positive forecasts, saved and loaded, on real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special

import tsattn
from tests.forecaster.toys import SMALL, frame_of
from tsattn.data import FutureWindows, panel_from_frame, scaled_series
from tsattn.forecaster import Forecaster

QUICK: dict[str, Any] = {**SMALL, "max_steps": 4}


def test_quantiles_are_those_of_the_transformed_targets_taken_back(tmp_path: Path) -> None:
    frame = frame_of()
    forecaster = Forecaster(**QUICK, transform="box_cox", quantiles=[0.01, 0.5, 0.99]).fit(frame)
    forecast = forecaster.predict()
    scaler, fitted = forecaster.scaler, forecaster.fitted
    panel = panel_from_frame(frame)
    windows = FutureWindows(panel, scaled_series(panel, scaler), forecaster.task, scaler)
    with torch.no_grad():
        scaled = fitted.predictor(windows.__getitems__(range(4))).double().numpy()[:, :, 0]
    rates, means, scales = (
        np.asarray(part)[:, None] for part in (scaler.transform.series_lambdas, scaler.series_mean, scaler.series_scale)
    )
    expected = special.inv_boxcox(np.maximum(scaled * scales + means, -1 / rates), rates).reshape(-1, 3)
    np.testing.assert_allclose(forecast[["0.01", "0.5", "0.99"]], expected, rtol=1e-5, atol=1e-6)
    forecaster.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(), forecast)
    assert loaded.scaler == scaler
    assert loaded.arguments["transform"] == {"kind": "box_cox"}


@pytest.mark.parametrize(
    "backbone", ["ridge", "seasonal_naive", {"kind": "ensemble", "members": ["ridge", "persistence"]}]
)
def test_predictors_without_a_network_see_transformed_targets(backbone: Any) -> None:
    frame = frame_of({"one": 300})
    forecaster = Forecaster(backbone, context_length=48, prediction_length=12, transform="log", accelerator="cpu")
    plain = Forecaster("seasonal_naive", context_length=48, prediction_length=12, accelerator="cpu")
    forecast = (forecaster.fit(frame) if backbone != "seasonal_naive" else forecaster).predict(frame)
    assert (forecast["predictions"] > 0).all()
    if backbone == "seasonal_naive":
        np.testing.assert_allclose(forecast["predictions"], plain.predict(frame)["predictions"], rtol=1e-5)


def test_rolled_horizons_cross_validation_and_scores_in_units(tmp_path: Path) -> None:
    frame = frame_of()
    forecaster = Forecaster(**QUICK, transform="log").fit(frame, folder=tmp_path / "run")
    with pytest.warns(UserWarning, match="fed back"):
        assert (forecaster.predict(horizon=30)["0.1"] > 0).all()
    scores = forecaster.evaluate(pd.concat([frame, frame_of(more=60)]))
    plain = Forecaster(**QUICK).fit(frame).evaluate(pd.concat([frame, frame_of(more=60)]))
    for name in ("persistence", "seasonal naive (24 steps)"):
        pd.testing.assert_series_equal(scores.loc[name], plain.loc[name], rtol=1e-4)
    of_run = tsattn.load(tmp_path / "run")
    pd.testing.assert_frame_equal(of_run.predict(frame), forecaster.predict())
    assert of_run.arguments["transform"] == {"kind": "log"}


@pytest.mark.parametrize("transform", ["log", "box_cox"])
def test_further_training_keeps_the_scale_of_transformed_targets_unless_it_is_rescaled(transform: str) -> None:
    frame = frame_of({"a": 200, "b": 160})
    more = frame_of({"a": 200, "c": 200}, seed=5).assign(y=lambda one: 3 * one["y"])
    forecaster = Forecaster(**QUICK, transform=transform).fit(frame)
    before = forecaster.scaler
    kept = forecaster.fine_tune(more, max_steps=1).scaler
    assert (kept.ids, kept.series_mean[:2], kept.series_scale[:2]) == (("a", "b", "c"), *before_of(before))
    assert (forecaster.predict()["0.1"] > 0).all()
    rescaled = forecaster.fine_tune(more, max_steps=1, rescale=True).scaler
    assert rescaled.ids == ("a", "c")
    assert rescaled == Forecaster(**QUICK, transform=transform).fit(more).scaler


def before_of(scaler: Any) -> tuple[Any, Any]:
    return scaler.series_mean, scaler.series_scale
