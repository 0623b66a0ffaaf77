"""Forecasts of a fitted Forecaster: their rows, units, horizons, seeds and figures."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special

import tsattn
from tests.forecaster.toys import LENGTHS, SMALL, L, T, frame_of
from tsattn.data import FutureWindows, panel_from_frame, scaled_series
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
    assert "1 of 1 series were not in the training" in caplog.text
    assert forecast["predictions"].between(1e6 + 3e3, 1e6 + 7e3).all()


def test_series_without_rows_to_spare_train_without_validation(caplog: pytest.LogCaptureFixture) -> None:
    forecast = Forecaster(**{**SMALL, "max_steps": 3}).fit(frame_of({"a": L + T, "b": L + T})).predict()
    assert "no series is long enough for validation rows" in caplog.text
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


def test_figures_show_history_forecast_and_bands(fitted: Forecaster) -> None:
    figure = fitted.plot(fitted.predict(), ids=["short", "small"])
    assert [ax.get_ylabel() for ax in figure.axes] == ["short", "small"]
    for ax in figure.axes:
        history, forecast = ax.lines[:2]
        assert len(forecast.get_xdata()) == 1 + T
        assert history.get_xdata()[-1] == forecast.get_xdata()[0], "it begins at the last observed step"
        assert history.get_ydata()[-1] == forecast.get_ydata()[0]
        assert len(ax.collections) == 1, "one band for 0.1 to 0.9"
    with pytest.raises(UserError, match="no forecast of nobody; valid are large, late, short, small"):
        fitted.plot(fitted.predict(), ids=["nobody"])


def test_figures_show_what_came_where_the_history_has_it(fitted: Forecaster) -> None:
    came = frame_of(more=T)
    whole = pd.concat([frame_of(), came]).sort_values(["unique_id", "ds"])
    observed = fitted.plot(fitted.predict(), ids="small", history=whole).axes[0].lines[0]
    np.testing.assert_allclose(observed.get_ydata()[-T:], came.loc[came["unique_id"] == "small", "y"])
    with pytest.raises(UserError, match="the history has no series stranger; give the frame before the forecast"):
        fitted.plot(fitted.predict(frame_of({"stranger": 100})))


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


def test_further_training_keeps_the_scale_of_transformed_targets_unless_it_is_rescaled() -> None:
    frame = frame_of({"a": 200, "b": 160})
    more = frame_of({"a": 200, "c": 200}, seed=5).assign(y=lambda one: 3 * one["y"])
    forecaster = Forecaster(**QUICK, transform="box_cox").fit(frame)
    before = forecaster.scaler
    kept = forecaster.fine_tune(more, max_steps=1).scaler
    assert (kept.ids, kept.series_mean[:2], kept.series_scale[:2]) == (
        ("a", "b", "c"),
        before.series_mean,
        before.series_scale,
    )
    assert (forecaster.predict()["0.1"] > 0).all()
    rescaled = forecaster.fine_tune(more, max_steps=1, rescale=True).scaler
    assert rescaled.ids == ("a", "c")
    assert rescaled == Forecaster(**QUICK, transform="box_cox").fit(more).scaler
