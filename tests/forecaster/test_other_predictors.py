"""Closed forms and ensembles go the whole way that a network goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, L, T, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

NETWORK = {**SMALL["backbone"], "dropout": 0.0}
MEMBERS = ["ridge", NETWORK]
ENSEMBLE = {"kind": "ensemble", "members": MEMBERS, "weights": [0.25, 0.75]}
SIZES = {name: SMALL[name] for name in ("context_length", "prediction_length", "accelerator")}


def forecaster(backbone: Any, **more: Any) -> Forecaster:
    return Forecaster(backbone, **{**SIZES, "max_steps": 5, **more})


SEVERAL = {"kind": "ridge", "alpha": [1, 1000], "context_length": [24, L]}


@pytest.mark.parametrize("backbone", ["ridge", ENSEMBLE, SEVERAL], ids=["ridge", "ensemble", "several ridges"])
def test_the_whole_way(backbone: Any, tmp_path: Path) -> None:
    frame, name = frame_of(), "ensemble" if backbone is ENSEMBLE else "ridge"
    fitted = forecaster(backbone).fit(frame)
    forecast = fitted.predict()
    assert forecast.columns.tolist() == ["unique_id", "ds", "predictions"]
    assert np.isfinite(forecast["predictions"]).all()
    assert fitted.evaluate(frame_of(more=20)).index[0] == name
    assert len(fitted.cross_validate(frame_of({"a": 200}), windows=2, refit=True)) == 2 * T
    assert fitted.plot(forecast, ids="large").axes
    fitted.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(), forecast, rtol=1e-12)
    pd.testing.assert_frame_equal(loaded.evaluate(frame_of(more=20)), fitted.evaluate(frame_of(more=20)))
    pd.testing.assert_frame_equal(forecaster(backbone).fit(frame).predict(), forecast)


@pytest.mark.parametrize(
    ("backbone", "quantiles"),
    [
        (NETWORK, (0.1, 0.5, 0.9)),
        ("ridge", ()),
        ("seasonal_naive", ()),
        (ENSEMBLE, ()),
        ({"kind": "ensemble", "members": [NETWORK, "transformer"]}, (0.1, 0.5, 0.9)),
    ],
)
def test_quantiles_are_forecast_where_the_predictor_can(backbone: Any, quantiles: tuple[float, ...]) -> None:
    assert forecaster(backbone).arguments["quantiles"] == quantiles
    assert forecaster(backbone, quantiles=None).arguments["quantiles"] == ()


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("ridge", "predictor ridge forecasts points only: it takes no quantiles"),
        ("persistence", "predictor persistence forecasts points only: it takes no quantiles"),
        (ENSEMBLE, "member ridge of the ensemble forecasts points only: it takes no quantiles"),
    ],
)
def test_quantiles_of_points_are_refused_before_any_data(backbone: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        forecaster(backbone, quantiles=[0.1, 0.5, 0.9])
