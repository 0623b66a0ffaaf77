"""Forecasts of a fitted Forecaster: their rows, units, horizons and seeds."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecaster.toys import LENGTHS, SMALL, L, T, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_the_forecast_goes_on_after_each_series_in_its_units(fitted: Forecaster) -> None:
    forecast = fitted.predict()
    assert forecast.columns.tolist() == ["unique_id", "ds", "predictions", "0.1", "0.5", "0.9"]
    assert forecast["unique_id"].drop_duplicates().tolist() == sorted(LENGTHS)
    for number, (name, rows) in enumerate(LENGTHS.items()):
        part = forecast[forecast["unique_id"] == name]
        assert part["ds"].tolist() == pd.date_range("2024-01-01", periods=rows + T, freq="h")[rows:].tolist()
        assert part["predictions"].between(3 * 10.0**number, 7 * 10.0**number).all()
    assert (forecast["0.1"] <= forecast["0.5"]).all()
    assert (forecast["0.5"] <= forecast["0.9"]).all()
    assert forecast["predictions"].equals(forecast["0.5"].rename("predictions"))


def test_training_beats_persistence_and_the_mean(fitted: Forecaster) -> None:
    scores = fitted.evaluate(frame_of(more=60))
    assert scores.loc["patchtst_mlr", "MASE"] < scores.loc["persistence", "MASE"] / 2
    assert 0.5 < scores.loc["patchtst_mlr", "cover 80"] < 1


def test_a_longer_horizon_is_rolled_with_a_warning_and_a_shorter_one_cut(fitted: Forecaster) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        usual, short = fitted.predict(), fitted.predict(horizon=5)
    with pytest.warns(UserWarning, match="horizon 30 is longer than the 12 steps .* fed back"):
        long = fitted.predict(horizon=30)
    first = long.groupby("unique_id", sort=False).head(T).reset_index(drop=True)
    pd.testing.assert_frame_equal(first, usual)
    assert short.groupby("unique_id").size().eq(5).all()
    # the second stretch is the forecast from a history that ends with the medians of the first
    history = pd.concat([frame_of(), usual.rename(columns={"predictions": "y"})[["unique_id", "ds", "y"]]])
    second = fitted.predict(pd.concat([history[history["unique_id"] == name] for name in LENGTHS]))
    rolled = long.groupby("unique_id", sort=False).nth(list(range(T, 2 * T))).reset_index(drop=True)
    np.testing.assert_allclose(rolled["predictions"], second["predictions"], rtol=1e-4)


def test_batches_of_series_make_no_difference_and_come_one_by_one(fitted: Forecaster) -> None:
    whole, small = fitted.predict(), Forecaster(attention="mlr", **SMALL, data={"eval_batch_size": 3})
    small.fitted, small.series = fitted.fitted, fitted.series
    frames = [*small.predict_batches()]
    assert [frame["unique_id"].nunique() for frame in frames] == [3, 1]
    joined = pd.concat(frames, ignore_index=True)
    np.testing.assert_allclose(joined["predictions"], whole["predictions"], rtol=1e-4)
    pd.testing.assert_frame_equal(joined[["unique_id", "ds"]], whole[["unique_id", "ds"]])


def test_new_series_are_forecast_on_a_scale_of_their_own(fitted: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    stranger = frame_of({"stranger": 100}).assign(y=lambda frame: 1e6 + 1e3 * frame["y"])
    forecast = fitted.predict(stranger)
    assert "1 of 1 series not trained on" in caplog.text
    assert forecast["predictions"].between(1e6 + 3e3, 1e6 + 7e3).all()


def test_the_order_of_rows_changes_no_forecast() -> None:
    frame = frame_of()
    one, other = (
        Forecaster(attention="mlr", **{**SMALL, "max_steps": 12}).fit(rows)
        for rows in (frame, frame.sample(frac=1, random_state=0))
    )
    for name, weight in one.fitted.predictor.state_dict().items():
        assert torch.equal(weight, other.fitted.predictor.state_dict()[name]), name
    pd.testing.assert_frame_equal(one.predict(), other.predict())
    pd.testing.assert_frame_equal(one.predict(frame[::-1]), other.predict(frame))


def test_missing_values_and_gaps_do_not_spoil_the_forecast(fitted: Forecaster) -> None:
    holes = frame_of()
    holes.loc[[100, 230, 300], "y"] = np.nan
    holes = holes.drop(index=[180, 181, 350])
    forecast = fitted.predict(holes)
    assert forecast["predictions"].notna().all()
    np.testing.assert_allclose(forecast["predictions"], fitted.predict()["predictions"], rtol=0.1)


def test_series_that_are_all_too_short_are_refused() -> None:
    with pytest.raises(UserError, match="no series is long enough, not even the longest"):
        Forecaster(**SMALL).fit(frame_of({"a": 30, "b": 40}))


def test_series_without_rows_to_spare_train_without_validation(caplog: pytest.LogCaptureFixture) -> None:
    forecast = Forecaster(**{**SMALL, "max_steps": 3}).fit(frame_of({"a": L + T, "b": L + T})).predict()
    assert "no series has the rows to hold a part out" in caplog.text
    assert forecast["predictions"].notna().all()


def test_a_forecaster_shows_itself_in_a_line(fitted: Forecaster) -> None:
    assert repr(fitted) == (
        "Forecaster(patchtst, attention mlr, 48 -> 12 steps, quantiles 0.1 0.5 0.9, max_steps=30, accelerator='cpu', "
        "fitted on 4 series)"
    )
    plain = Forecaster("transformer", context_length=8, prediction_length=4, quantiles=None)
    assert repr(plain) == "Forecaster(transformer, attention standard, 8 -> 4 steps, point forecast, not fitted)"
    wide = Forecaster({**SMALL["backbone"], "num_layers": 2}, ["swa", "mlr"], context_length=L, prediction_length=T)
    assert "attention swa/mlr, " in repr(wide)
