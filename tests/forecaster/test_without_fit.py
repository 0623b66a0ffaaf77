"""Predictors without a training: they answer without a fit or go the whole way that a network goes."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, L, T, frame_of
from tsattn.data import FrameDataModule
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

SHORT = {"long": 100, "season": 24, "few": 5, "one": 1}


def repeated(values: np.ndarray[Any, Any], season: int, horizon: int) -> np.ndarray[Any, Any]:
    """The last season of `(rows, ...)` values again and again; a shorter series has its last value before it."""
    last = values[-season:]
    before = np.full((season - len(last), *last.shape[1:]), last[-1])
    padded = np.concatenate([before, last])
    return padded[np.arange(horizon) % season]


@pytest.mark.parametrize(
    ("kind", "season", "horizon"), [("seasonal_naive", 24, None), ("persistence", 1, 5), ("seasonal_naive", 24, 30)]
)
@pytest.mark.filterwarnings("ignore:horizon 30 is longer")
def test_short_series_are_forecast_at_once(kind: str, season: int, horizon: int | None) -> None:
    frame = frame_of(SHORT)
    forecast = Forecaster(kind, prediction_length=T).predict(frame, horizon=horizon)
    for name, part in forecast.groupby("unique_id"):
        values = frame.loc[frame["unique_id"] == name, "y"].to_numpy()
        np.testing.assert_allclose(part["predictions"], repeated(values, season, horizon or T), rtol=1e-5)
    assert forecast.columns.tolist() == ["unique_id", "ds", "predictions"]


@pytest.mark.parametrize("wide", [False, True])
def test_they_are_scored_at_once_as_by_hand(wide: bool) -> None:
    frame = frame_of({"a": 90, "b": 90})
    values = frame.pivot_table(index="ds", columns="unique_id", values="y")
    scores = Forecaster("seasonal_naive", context_length=L, prediction_length=T).evaluate(values if wide else frame)
    errors = []
    for origin in range(L, 90 - T + 1):
        past, came = values.to_numpy()[:origin], values.to_numpy()[origin : origin + T]
        errors.append(np.abs(repeated(past, 24, T) - came))
    assert scores.index.tolist() == ["seasonal_naive", "seasonal naive (24 steps)", "persistence"]
    assert scores["windows"].tolist() == [len(errors) * (1 if wide else 2)] * 3
    expected = np.mean(errors)
    assert scores["MAE"].iloc[:2].tolist() == pytest.approx([expected, expected], rel=1e-5)


def test_a_season_that_no_series_holds_is_refused_and_told(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    walk = pd.DataFrame({"ds": pd.date_range("2024", periods=300, freq="min"), "y": rng.normal(size=300).cumsum()})
    scores = Forecaster("persistence", context_length=L, prediction_length=T).evaluate(walk)
    assert (
        "seasonal naive (1440 steps): 1 of 1 series are shorter than a season, and get their last value" in caplog.text
    )
    naive = Forecaster("seasonal_naive", context_length=L, prediction_length=T)
    assert naive.evaluate(walk)["MSE"].tolist() == pytest.approx(scores["MSE"].iloc[[0, 0, 0]].tolist())
    with pytest.raises(UserError, match=r'valid: 1 to \d+; give a shorter `--data.season_length` .*data=\{"season_'):
        naive.fit(walk)


def test_steps_have_the_season_that_is_given(tmp_path: Path) -> None:
    """A naive forecast, the baseline and MASE read it, also after the model is saved."""
    values = frame_of({"a": 90})["y"].to_numpy()
    frame = pd.DataFrame({"ds": np.arange(90), "y": values})
    options = {"context_length": 30, "prediction_length": T}
    assert not np.ptp(Forecaster("seasonal_naive", **options).predict(frame)["predictions"])
    seasonal = Forecaster("seasonal_naive", **options, data={"season_length": 24})
    np.testing.assert_allclose(seasonal.predict(frame)["predictions"], repeated(values, 24, T), rtol=1e-5)
    model = Forecaster("ridge", **options, data={"season_length": 24}).fit(frame[:60])
    model.save(tmp_path / "model")
    for one in (model, tsattn.load(tmp_path / "model")):
        assert one.task.season_length == 24
        scores = one.evaluate(frame)
        assert scores.index.tolist() == ["ridge", "seasonal naive (24 steps)", "persistence"]
        scale = np.abs(values[24:60] - values[:36]).mean()
        assert scores["MASE"].tolist() == pytest.approx((scores["MAE"] / scale).tolist(), rel=1e-4)
    with pytest.raises(UserError, match="season_length must be at least 1, not 0"):
        Forecaster(data={"season_length": 0})
    with pytest.raises(UserError, match="season_length must be at most 1000000, not 1000000000000"):
        Forecaster(data={"season_length": 10**12})
    with pytest.raises(UserError, match=r"give data=\{'season_length': \.\.\.\}"):
        Forecaster().set_params(season_length=24)


def test_without_a_frame_they_ask_for_one() -> None:
    with pytest.raises(UserError, match="seasonal_naive needs no fit, but it needs series to forecast: give a frame"):
        Forecaster("seasonal_naive").predict()


NETWORK = SMALL["backbone"]
FITTED: dict[str, Any] = {
    "network": NETWORK,
    "ridge": "ridge",
    "ensemble": {"kind": "ensemble", "members": ["ridge", NETWORK], "weights": [0.25, 0.75]},
}


@pytest.mark.parametrize("kind", FITTED)
def test_what_needs_a_fit_says_so(kind: str, tmp_path: Any) -> None:
    forecaster = Forecaster(**{**SMALL, "backbone": FITTED[kind]})
    calls = [
        forecaster.predict,
        lambda: forecaster.predict(frame_of()),
        lambda: forecaster.evaluate(frame_of()),
        lambda: forecaster.plot(frame_of()),
        lambda: forecaster.save(tmp_path / "x"),
    ]
    for call in calls:
        with pytest.raises(UserError, match="the forecaster is not fitted yet: call fit"):
            call()
    assert not (tmp_path / "x").exists()


WEEK = (120.0, 99.0, 30.0, 0.1, 1 / 3, 1e-7, 0.0)
HOLES: dict[str, Any] = {
    "none": [],
    "last row": [139],
    "last Sundays": [125, 132, 139],
    "last weeks": [*range(119, 140)],
    "a fifth": np.random.default_rng(0).choice(np.arange(7, 140), 28, replace=False),
}
NAIVE: dict[str, Any] = {
    "seasonal_naive": "seasonal_naive",
    "persistence": "persistence",
    "ensemble of one": {"kind": "ensemble", "members": ["seasonal_naive"]},
    "calibrated": "seasonal_naive",
    "log1p": "seasonal_naive",
}


def weeks(holes: Any, *, rows: bool = False) -> pd.DataFrame:
    """Twenty identical weeks of two series, and one that makes their scale, with values or rows missing."""
    days = pd.date_range("2024-01-01", periods=140)
    parts = [pd.DataFrame({"unique_id": name, "ds": days, "y": np.tile(WEEK, 20)}) for name in "ab"]
    for part in parts:
        part.loc[holes, "y"] = np.nan
    large = pd.DataFrame({"unique_id": "large", "ds": days, "y": 1e4 * np.arange(140.0)})
    return pd.concat([*(part.dropna() if rows else part for part in parts), large], ignore_index=True)


def forecaster(name: str) -> Forecaster:
    more: dict[str, Any] = {"log1p": {"transform": "log1p"}, "calibrated": {"calibrate": True}}.get(name, {})
    return Forecaster(NAIVE[name], context_length=7, prediction_length=5, **more)


@pytest.mark.parametrize(
    ("name", "holes"),
    [*(("seasonal_naive", holes) for holes in HOLES), *((name, "last weeks") for name in [*NAIVE][1:])],
)
@pytest.mark.filterwarnings("ignore:horizon 10 is longer")
def test_the_last_known_value_of_a_place_in_the_season_is_repeated_exactly(
    name: str, holes: str, tmp_path: Path
) -> None:
    frame, model = weeks(HOLES[holes]), forecaster(name)
    known = np.delete(np.tile(WEEK, 20), HOLES[holes])
    expected = [known[-1]] * 10 if name == "persistence" else [*WEEK, *WEEK[:3]]
    if name == "calibrated":
        forecast = model.fit(frame).predict(frame, horizon=10, level=[80])
        model.save(tmp_path / "model")
        again = tsattn.load(tmp_path / "model").predict(horizon=10, level=[80])
        pd.testing.assert_frame_equal(again, forecast, check_exact=True)
        assert forecast["0.1"].le(forecast["predictions"]).all()
        assert forecast["0.9"].ge(forecast["predictions"]).all()
    else:
        forecast = model.predict(frame, horizon=10)
    for series in "ab":
        assert forecast.loc[forecast["unique_id"] == series, "predictions"].tolist() == expected


def test_identical_weeks_have_no_error_however_many_days_are_missing() -> None:
    frame = weeks(HOLES["a fifth"], rows=True)
    sizes: dict[str, Any] = {"context_length": 7, "prediction_length": 7, "frequency": "D"}
    model = Forecaster({"kind": "ensemble", "members": ["seasonal_naive"]}, **sizes)
    errors = model.evaluate(frame, by="series")["MAE"]
    for name in ("ensemble", "seasonal naive (7 steps)"):
        assert errors[name][["a", "b"]].tolist() == [0.0, 0.0]
    validated = model.cross_validate(frame, windows=4)
    some = validated[validated["unique_id"] != "large"].dropna()
    assert len(some) > 30
    assert some["predictions"].tolist() == some["y"].tolist()


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (pd.offsets.CustomBusinessDay(), "C"),
        (pd.Timedelta("1h"), "h"),
        (timedelta(hours=36), "36h"),
        ("PT15M", "15min"),
    ],
)
def test_frequencies_may_be_offsets_and_lengths_of_time(given: Any, same: str) -> None:
    stamps = pd.date_range("2001-01-01", periods=66, freq=same)
    frame = pd.DataFrame({"ds": stamps[:60].to_numpy(), "x": np.arange(60.0)})
    forecaster = Forecaster("persistence", prediction_length=6, frequency=given)
    assert forecaster.arguments["frequency"] == same
    assert forecaster.predict(frame)["ds"].tolist() == stamps[60:].tolist()
    assert FrameDataModule(frame, frequency=given).source.reader.frequency == same


def test_an_offset_whose_name_does_not_say_all_of_it_is_refused() -> None:
    for offset in (pd.offsets.CustomBusinessDay(holidays=["2024-01-01"]), pd.offsets.BusinessHour(start="10:00")):
        with pytest.raises(UserError, match="cannot be written as text with its holidays, hours or parts; give a text"):
            Forecaster("persistence", frequency=offset)


SURE_NETWORK = {**SMALL["backbone"], "dropout": 0.0}
MEMBERS = ["ridge", SURE_NETWORK]
ENSEMBLE = {"kind": "ensemble", "members": MEMBERS, "weights": [0.25, 0.75]}
SIZES = {name: SMALL[name] for name in ("context_length", "prediction_length", "accelerator")}


def five_steps(backbone: Any, **more: Any) -> Forecaster:
    return Forecaster(backbone, **{**SIZES, "max_steps": 5, **more})


SEVERAL = {"kind": "ridge", "penalty": 10.0}


@pytest.mark.parametrize("backbone", [ENSEMBLE, SEVERAL], ids=["ensemble", "several ridges"])
def test_the_whole_way(backbone: Any, tmp_path: Path) -> None:
    frame, name = frame_of(), "ensemble" if backbone is ENSEMBLE else "ridge"
    fitted = five_steps(backbone).fit(frame)
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
    pd.testing.assert_frame_equal(five_steps(backbone).fit(frame).predict(), forecast)


def test_quantiles_are_forecast_where_the_predictor_can() -> None:
    networks = {"kind": "ensemble", "members": [SURE_NETWORK, "transformer"]}
    for backbone, quantiles in ((networks, (0.1, 0.5, 0.9)), ("seasonal_naive", ()), (ENSEMBLE, ())):
        assert five_steps(backbone).arguments["quantiles"] == quantiles
        assert five_steps(backbone, quantiles=None).arguments["quantiles"] == ()
