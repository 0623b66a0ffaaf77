"""Theta and exponential smoothing against statsmodels, on series with known answers, and where they give way."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from statsmodels.tsa.exponential_smoothing.ets import ETSModel
from statsmodels.tsa.forecasting.theta import ThetaModel

from tsattn import Forecaster, load
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors.local_models import ETS, LocalModel, Theta, filled
from tsattn.task import Output, Task

MODELS = (Theta(), ETS())
both = pytest.mark.parametrize("model", MODELS, ids=["theta", "ets"])
NOISE = np.random.default_rng(0).normal(size=400)
STEPS = np.arange(160)
WAVE = np.sin(2 * np.pi * STEPS / 12)


def monthly(rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    steps = np.arange(rows)
    wave = 1 + 0.2 * np.sin(2 * np.pi * steps / 12)
    return (100 + steps) * wave * np.exp(0.03 * rng.normal(size=rows))


@pytest.mark.parametrize("rows", [25, 90, 150])
def test_theta_is_that_of_statsmodels(rows: int) -> None:
    series = monthly(rows)
    expected = ThetaModel(series, period=12).fit().forecast(18)
    np.testing.assert_allclose(Theta().forecast_series(series, 12, 18).mean, expected, rtol=1e-4)


@pytest.mark.parametrize("rows", [40, 150])
def test_ets_is_a_form_of_statsmodels(rows: int) -> None:
    series = monthly(rows)
    forms: Any = [
        {"error": "mul" if seasonal == "mul" else "add", "trend": trend, "damped_trend": damped, "seasonal": seasonal}
        for seasonal in (None, "add", "mul")
        for trend, damped in ((None, False), ("add", False), ("add", True))
    ]
    scaled = series / series.mean()
    fits = [
        ETSModel(scaled, **form, seasonal_periods=form["seasonal"] and 12, initialization_method="heuristic").fit(
            disp=False, maxiter=100
        )
        for form in forms
    ]
    forecast = ETS().forecast_series(series, 12, 18).mean
    differences = [np.abs(fit.forecast(18) * series.mean() / forecast - 1).max() for fit in fits]
    chosen = int(np.argmin(differences))
    assert differences[chosen] < 1e-9
    if rows == 150:
        assert forms[chosen]["seasonal"] == "mul"


def test_the_intervals_of_additive_forms_are_the_exact_ones_of_statsmodels() -> None:
    walk = NOISE[:200].cumsum() - 50  # below 0 at some places, so that no season is a factor
    series = walk + 8 * np.sin(2 * np.pi * np.arange(200) / 12)
    found = ETS().forecast_series(series, 12, 12)
    unit = np.abs(series).mean()
    model = ETSModel(pd.Series(series / unit), seasonal="add", seasonal_periods=12, initialization_method="heuristic")
    fit = model.fit(disp=False, maxiter=100)
    np.testing.assert_allclose(found.mean, fit.forecast(12).to_numpy() * unit, rtol=1e-9)
    exact = fit.get_prediction(start=200, end=211, method="exact").forecast_variance
    ratio = found.deviation / unit / np.sqrt(np.asarray(exact))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)  # ours counts what its parameters take of the freedom
    assert 1 < ratio[0] < 1.1


@both
def test_a_line_goes_on(model: LocalModel) -> None:
    line = 3.0 + 0.5 * STEPS[:60]
    found = model.forecast_series(line, 1, 10)
    share = 1.0 if isinstance(model, ETS) else 0.5  # of theta's trend, which starts from the last level
    np.testing.assert_allclose(np.diff(found.mean), 0.5 * share, rtol=1e-3)
    assert found.mean[0] == pytest.approx(line[-1] + 0.5, abs=0.3)


@both
@pytest.mark.parametrize("is_product", [False, True])
def test_a_season_comes_again(model: LocalModel, is_product: bool) -> None:
    series = 50 * (1 + 0.3 * WAVE) if is_product else 20 * WAVE
    series = series + 0.01 * NOISE[:160]
    found = model.forecast_series(series, 12, 24)
    np.testing.assert_allclose(found.mean, np.resize(series[-24:], 24), atol=1.0)
    assert len(set(np.sign(np.diff(model.forecast_series(series[:20], 12, 24).mean)))) == 1, "two seasons at least"


@both
def test_intervals_hold_their_share_of_what_follows_a_walk(model: LocalModel) -> None:
    inside = []
    for seed in range(60):
        walk = np.random.default_rng(seed).normal(size=90).cumsum()
        found = model.forecast_series(walk[:80], 1, 10)
        inside.append(np.abs(walk[80:] - found.mean) <= norm.ppf(0.9) * found.deviation)
    assert 0.7 < np.mean(inside) < 0.9


@both
def test_no_series_is_too_hard(model: LocalModel) -> None:
    rng = np.random.default_rng(3)
    for rows in (0, 1, 2, 3, 5, 9, 10, 11, 13, 24, 25, 40):
        hard = {
            "constant": np.full(rows, 7.25),
            "walk": rng.normal(size=rows).cumsum(),
            "rare": (rng.random(rows) < 0.1).astype(float),
            "huge": 1e200 * rng.random(rows),
            "tiny": 1e-200 * rng.random(rows),
            "jump": np.where(np.arange(rows) < rows - 1, 1.0, 1e9),
            "zeros and one": np.eye(1, rows, rows // 2)[0] if rows else np.zeros(0),
        }
        for name, series in hard.items():
            found = model.forecast_series(series, 12, 5)
            assert np.isfinite(found.mean).all(), (name, rows)
            assert (found.deviation >= 0).all(), (name, rows)
            if name == "constant" and rows:
                assert found.mean.tolist() == [7.25] * 5
                assert not found.deviation.any()


def test_what_is_missing_lies_between_its_neighbours_of_any_season() -> None:
    series = 0.1 * STEPS + 5 * WAVE
    known = np.ones(160, bool)
    known[[0, 1, 30, 31, 32, 33, 100, 159]] = False
    whole = filled(np.where(known, series, 1e9), known, 12)
    assert len(whole) == 158
    np.testing.assert_allclose(whole, series[2:], atol=0.7)
    np.testing.assert_array_equal(whole[known[2:]], series[2:][known[2:]])
    line = filled(np.array([9.0, 1.0, 9.0, 3.0, 9.0]), np.array([False, True, False, True, False]), 12)
    assert line.tolist() == [1.0, 2.0, 3.0, 3.0]
    assert not len(filled(np.zeros(3), np.zeros(3, bool), 12))


@pytest.mark.parametrize("kind", ["theta", "ets"])
def test_a_window_is_forecast_channel_by_channel_from_its_observed_rows(kind: str) -> None:
    predictor = build_predictor({"kind": kind, "context_length": 60})
    predictor.build(Task("toy", 24, 6, ("a", "b"), "MS", 12), Output((0.1, 0.5, 0.9)))
    past = torch.from_numpy(np.stack([monthly(60), monthly(60, 1)], -1))[None]
    seen = torch.ones(1, 60, 2, dtype=torch.bool)
    seen[:, :20, 1] = False
    forecast = predictor(Batch(past.masked_fill(~seen, 0.0), past_observed=seen))
    assert forecast.shape == (1, 6, 2, 3)
    for channel, series in enumerate((monthly(60), monthly(60, 1)[20:])):
        alone = predictor.forecast_series(series, 12, 6)
        np.testing.assert_allclose(forecast[0, :, channel, 1], alone.mean, rtol=1e-12)
        assert (forecast[0, :, channel].diff(dim=-1) > 0).all()
    longer = predictor.forecast_to(Batch(past.masked_fill(~seen, 0.0), past_observed=seen), 20)
    torch.testing.assert_close(longer[:, :6], forecast)
    own = build_predictor({"kind": kind, "context_length": 60, "season_length": 1})
    own.build(Task("toy", 24, 6, ("a", "b"), "MS", 12))
    plain = own(Batch(past))[0, :, 0]
    np.testing.assert_allclose(plain, own.forecast_series(monthly(60), 1, 6).mean, rtol=1e-12)


def short_frame(rows: int = 60) -> pd.DataFrame:
    return pd.DataFrame({"y": monthly(rows)}, index=pd.date_range("2015-01-01", periods=rows, freq="MS", name="ds"))


def test_a_forecaster_without_a_fit_says_what_the_model_does(tmp_path: Path) -> None:
    frame = short_frame()
    forecast = Forecaster("ets", prediction_length=8).predict(frame)
    alone = ETS().forecast_series(frame["y"].to_numpy(), 12, 8).mean
    np.testing.assert_allclose(forecast["predictions"], alone, rtol=1e-5)
    fitted = Forecaster("theta", prediction_length=8).fit(frame)
    fitted.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(), fitted.predict())
    named = Forecaster("theta", prediction_length=8, context_length=24).predict(frame)
    pd.testing.assert_frame_equal(named, Forecaster("theta", prediction_length=8).predict(frame[-24:]))


def test_a_member_of_an_ensemble_reads_more_rows_than_the_others() -> None:
    frame = short_frame(96)
    members = ["ridge", "theta", "ets"]
    mixed = Forecaster({"kind": "ensemble", "members": members}, context_length="auto", prediction_length=6).fit(frame)
    forecast = mixed.predict()["predictions"]
    local = [model.forecast_series(frame["y"].to_numpy(), 12, 6).mean for model in MODELS]
    ridge = Forecaster("ridge", prediction_length=6).fit(frame)
    expected = (ridge.predict()["predictions"] + local[0] + local[1]) / 3
    np.testing.assert_allclose(forecast, expected, rtol=1e-4)


@both
@pytest.mark.parametrize("is_walk", [False, True])
def test_intervals_hold_their_share_whatever_is_missing(model: LocalModel, is_walk: bool) -> None:
    """Of rows missing at the end, all steps lie further ahead; rows within tell less than they would."""
    inside: dict[str, list[Any]] = {"end": [], "within": []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        series = rng.normal(size=110)
        series = series.cumsum() if is_walk else series
        end, within = np.arange(100) < 80, rng.random(100) < 0.6
        for name, known in (("end", end), ("within", within)):
            given = np.where(known, series[:100], 1e9)
            found = model.forecast_series(given, 1, 10, known)
            assert found.mean.shape == found.deviation.shape == (10,)
            assert found.freedom < known.sum()
            inside[name].append(np.abs(series[100:] - found.mean) <= norm.ppf(0.9) * found.deviation)
    assert 0.65 < np.mean(inside["end"]) < 0.95
    assert 0.6 < np.mean(inside["within"]) < 0.97


@both
def test_what_is_missing_at_the_end_is_forecast(model: LocalModel) -> None:
    series = monthly(60)
    found = model.forecast_series(series, 12, 6, np.arange(60) < 50)
    longer = model.forecast_series(series[:50], 12, 16)
    np.testing.assert_array_equal(found.mean, longer.mean[10:])
    np.testing.assert_array_equal(found.deviation, longer.deviation[10:])


@pytest.mark.parametrize("kind", ["theta", "ets"])
def test_a_season_longer_than_the_series_is_none(kind: str) -> None:
    frame = short_frame()
    frame.iloc[[20, 21], 0] = np.nan
    forecasts = [
        Forecaster({"kind": kind, "season_length": season}, prediction_length=6).predict(frame) for season in (10**6, 1)
    ]
    pd.testing.assert_frame_equal(*forecasts)
    with pytest.raises(UserError, match="season_length must be at most 1000000, not 1000000000000"):
        Forecaster({"kind": kind, "season_length": 10**12}, prediction_length=6).predict(frame)
