"""Covariates and categories: known ahead or not, in the frame or beside it."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.forecaster.toys import L, T, promotions
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_the_future_of_a_covariate_moves_the_forecast(shops: Forecaster) -> None:
    forecast = shops.predict()
    truth = promotions(400).groupby("unique_id", sort=False).nth(list(range(380, 380 + T))).reset_index(drop=True)
    assert forecast["ds"].tolist() == truth["ds"].tolist()
    error = (forecast["predictions"] - truth["y"]).abs() / truth["y"]
    assert error.mean() < 0.1, "without the promotions it is about 0.2"


def test_a_frame_of_future_values_takes_the_place_of_rows_after_the_target(shops: Forecaster) -> None:
    whole = promotions(400)
    past = whole[whole["ds"] < whole["ds"].max() - pd.Timedelta(days=19)]
    future = whole[whole["ds"] >= whole["ds"].max() - pd.Timedelta(days=19)].drop(columns=["y", "region"])
    expected = shops.predict()
    pd.testing.assert_frame_equal(shops.predict(past, future=future), expected)
    none = future.assign(promotion=0.0)
    assert (shops.predict(past, future=none)["predictions"] <= expected["predictions"] + 0.5).all()
    # the fitted series, with another future
    calm = shops.predict(future=none)
    np.testing.assert_allclose(calm["predictions"], shops.predict(past, future=none)["predictions"], rtol=1e-5)


def test_a_future_covariate_that_stops_early_is_refused_with_the_series_and_step(shops: Forecaster) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said of a forecast that is not made
        with pytest.raises(UserError) as caught:
            shops.predict(horizon=24)
    message = str(caught.value)
    assert "promotion stops early" in message
    assert "north" in message
    assert "step 21 of the 24" in message


def test_a_new_series_of_an_unseen_category_has_the_mean_of_the_learnt_ones(
    shops: Forecaster, caplog: pytest.LogCaptureFixture
) -> None:
    frame = promotions(400)
    frame.loc[frame["ds"] >= frame["ds"].max() - pd.Timedelta(days=19), "y"] = np.nan
    new = frame[frame["unique_id"] == "north"].assign(unique_id="west")
    added = pd.concat([frame, new.assign(region="w"), new.assign(unique_id="east", region=None)])
    forecast = shops.predict(added).set_index("unique_id")["predictions"]
    told = [message for message in caplog.messages if "not seen" in message]
    assert told == [
        "the frame: static column region: series east has category missing, series west has category w, not seen in "
        "training: the mean of the learnt categories takes the place"
    ]
    expected = shops.predict().set_index("unique_id")["predictions"]
    for known in ("north", "south"):
        np.testing.assert_allclose(forecast[known], expected[known], rtol=1e-5)
    # by hand: the vector of the first region is set to the mean of both
    table = shops.fitted.predictor.backbone.covariates.static[0].weight
    before = table.detach().clone()
    with torch.no_grad():
        table.copy_(before.mean(0).expand_as(before))
    try:
        mean = shops.predict().set_index("unique_id")["predictions"]["north"]
    finally:
        with torch.no_grad():
            table.copy_(before)
    for unseen in ("west", "east"):
        np.testing.assert_allclose(forecast[unseen], mean, rtol=1e-5)
    assert np.abs(forecast["west"].to_numpy() - expected["north"].to_numpy()).max() > 1e-3


def test_without_any_future_that_is_said(shops: Forecaster) -> None:
    with pytest.raises(UserError, match="`promotion` has no values for the next 12 steps; pass them with"):
        shops.predict(promotions(380))


def test_a_future_without_the_covariate_names_its_role(shops: Forecaster) -> None:
    future = promotions(400).drop(columns="promotion")
    with pytest.raises(UserError, match="future values has no future covariate column promotion"):
        shops.predict(promotions(380), future=future)


def test_a_future_may_hold_other_series(shops: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    frame, whole = promotions(380), promotions(400)
    future = whole[whole["ds"] > frame["ds"].max()][["unique_id", "ds", "promotion"]]
    south = frame[frame["unique_id"] == "south"]
    forecast = shops.predict(south, future=future)
    expected = shops.predict(frame, future=future)
    expected = expected[expected["unique_id"] == "south"].reset_index(drop=True)
    pd.testing.assert_frame_equal(forecast, expected, rtol=1e-4)
    assert caplog.messages == ["the frame of future values: left out 1 series that the frame has not got: 'north'"]


def test_an_unseen_category_of_a_saved_or_exported_model_is_the_mean_too(shops: Forecaster, tmp_path: Path) -> None:
    frame = promotions(400)
    frame.loc[frame["ds"] >= frame["ds"].max() - pd.Timedelta(days=19), "y"] = np.nan
    north = frame[frame["unique_id"] == "north"].assign(region="w").reset_index(drop=True)
    expected = shops.predict(north)
    assert not expected.equals(shops.predict().query("unique_id == 'north'"))
    shops.save(tmp_path / "model")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model").predict(north), expected)
    facts = shops.export(tmp_path / "model.pt2")
    columns = {"context": north["y"][380 - L : 380], "future_covariates": north["promotion"][380 - L : 380 + T]}
    given = {name: torch.tensor(column.to_numpy())[None, :, None] for name, column in columns.items()}
    given |= {"static": torch.tensor([[-1]]), "series": torch.tensor([0])}
    assert given.keys() == facts["inputs"].keys()
    made = torch.export.load(tmp_path / "model.pt2").module()(**given)
    np.testing.assert_allclose(made[0, :, 0], expected[["0.1", "0.5", "0.9"]], rtol=1e-4)
