"""The library API: frames in, frames out."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import tsattn
from tests.conftest import REAL_ROOT
from tsattn.data import panel_from_frame
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

L, T = 48, 12
SMALL: dict[str, Any] = {
    "backbone": {"kind": "patchtst", "d_model": 16, "num_layers": 1, "num_heads": 2, "patch_len": 8},
    "context_length": L,
    "prediction_length": T,
    "max_steps": 30,
    "accelerator": "cpu",
}
LENGTHS = {"small": 260, "large": 200, "late": 150, "short": 40}


def frame_of(lengths: dict[str, int] = LENGTHS, more: int = 0, seed: int = 0) -> pd.DataFrame:
    """Hourly daily waves, each ten times the one before; with `more`, the rows behind those of the same seed."""
    parts = []
    for number, (name, rows) in enumerate(lengths.items()):
        rng = np.random.default_rng([seed, number])
        hours = np.arange(rows + more)
        wave = 10.0**number * (5 + np.sin(2 * np.pi * hours / 24) + 0.1 * rng.standard_normal(1000)[: len(hours)])
        stamps = pd.date_range("2024-01-01", periods=len(hours), freq="h")
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": wave})[rows if more else 0 :])
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(attention="mlr", **SMALL).fit(frame_of())


def test_the_issue_example_runs(tmp_path: Path) -> None:
    """Fit, predict, other history and horizon, cross-validate, evaluate, plot, save, load."""
    df = frame_of()
    f = tsattn.Forecaster(**SMALL, attention="mlr", quantiles=[0.1, 0.5, 0.9])
    f.fit(df)
    fc = f.predict()
    short = f.predict(df).groupby("unique_id", sort=False).head(6).reset_index(drop=True)
    pd.testing.assert_frame_equal(f.predict(df, horizon=6), short)
    assert len(f.cross_validate(df, windows=2)) == 2 * len(fc)
    assert f.evaluate(frame_of(more=30)).loc["patchtst_mlr", "windows"] == 4 * (30 - T + 1)
    assert isinstance(f.plot(fc, ids=["large"]), Figure)
    f.save(tmp_path / "model_dir")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model_dir").predict(), fc)


def test_the_forecast_goes_on_behind_each_series_in_its_units(fitted: Forecaster) -> None:
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


def test_one_seed_gives_one_forecast_and_leaves_the_random_state(fitted: Forecaster) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    again = Forecaster(attention="mlr", **SMALL).fit(frame_of())
    assert torch.equal(torch.get_rng_state(), before)
    pd.testing.assert_frame_equal(again.predict(), fitted.predict())
    other = Forecaster(attention="mlr", **SMALL, seed=2).fit(frame_of())
    assert not other.predict()["predictions"].equals(fitted.predict()["predictions"])


def test_training_beats_persistence_and_the_mean(fitted: Forecaster) -> None:
    scores = fitted.evaluate(frame_of(more=60))
    assert scores.loc["patchtst_mlr", "mase_by_channel"] < scores.loc["persistence", "mase_by_channel"] / 2
    assert 0.5 < scores.loc["patchtst_mlr", "coverage_80_by_channel"] < 1


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


def test_a_horizon_below_one_is_refused(fitted: Forecaster) -> None:
    with pytest.raises(UserError, match="horizon must be at least 1, not 0"):
        fitted.predict(horizon=0)


def test_batches_of_series_make_no_difference_and_come_one_by_one(fitted: Forecaster) -> None:
    whole = fitted.predict()
    size = fitted.arguments["eval_batch_size"]
    try:
        fitted.arguments["eval_batch_size"] = 3
        frames = [*fitted.predict_batches()]
    finally:
        fitted.arguments["eval_batch_size"] = size
    assert [frame["unique_id"].nunique() for frame in frames] == [3, 1]
    joined = pd.concat(frames, ignore_index=True)
    np.testing.assert_allclose(joined["predictions"], whole["predictions"], rtol=1e-4)
    pd.testing.assert_frame_equal(joined[["unique_id", "ds"]], whole[["unique_id", "ds"]])


def test_new_series_are_forecast_on_a_scale_of_their_own(fitted: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    stranger = frame_of({"stranger": 100}).assign(y=lambda frame: 1e6 + 1e3 * frame["y"])
    forecast = fitted.predict(stranger)
    assert "1 of 1 series were not trained on" in caplog.text
    assert forecast["predictions"].between(1e6 + 3e3, 1e6 + 7e3).all()


@pytest.mark.parametrize("wide", [False, True])
def test_names_types_and_zones_of_the_frame_are_kept(wide: bool) -> None:
    stamps = pd.date_range("2024-03-30", periods=120, freq="h", tz="Europe/Berlin")  # over a change of clocks
    values = 5 + np.sin(2 * np.pi * np.arange(120) / 24)
    if wide:
        frame = pd.DataFrame({"when": stamps, "a": values, "b": 2 * values})
        names = {"time_column": "when"}
    else:
        rows = [pd.DataFrame({"item_id": n, "timestamp": stamps, "target": n * values}) for n in (7, 3)]
        frame, names = pd.concat(rows), {}
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, quantiles=(), **names).fit(frame)
    forecast = forecaster.predict()
    expected = ["unique_id", "when"] if wide else ["item_id", "timestamp"]
    assert forecast.columns.tolist() == [*expected, "predictions"]
    assert forecast[expected[0]].drop_duplicates().tolist() == (["a", "b"] if wide else [3, 7])
    first = forecast[expected[1]].iloc[0]
    assert first == stamps[-1] + pd.Timedelta(hours=1)
    assert str(first.tz) == "Europe/Berlin"


@pytest.mark.parametrize("name", ["date", "when", None])
def test_the_time_of_a_wide_frame_keeps_its_name_all_the_way(name: str | None, tmp_path: Path) -> None:
    hours = pd.date_range("2024-01-01", periods=150, freq="h", name=name)
    frame = pd.DataFrame({"a": np.sin(np.arange(150) / 4), "b": np.arange(150.0)}, index=hours)
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame[:-T])
    forecast = forecaster.predict()
    assert forecast.columns[:2].tolist() == ["unique_id", name or "ds"]
    assert forecast[name or "ds"].tolist() == [*hours[-T:]] * 2
    checked = forecaster.cross_validate(frame, windows=2)
    assert checked.columns[:3].tolist() == ["unique_id", name or "ds", "cutoff"]
    assert forecaster.evaluate(frame)["windows"].tolist() == [1] * 3
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(), forecast)
    for drawn in (forecast, checked):
        assert [ax.get_ylabel() for ax in forecaster.plot(drawn, history=frame).axes] == ["a", "b"]
    other = forecaster.predict(frame.rename_axis("hour"))
    assert other.columns[1] == "hour"
    with pytest.raises(UserError, match="it has no column"):
        forecaster.plot(other)
    assert forecaster.plot(other, history=frame.rename_axis("hour")).axes


def test_the_order_of_rows_changes_no_forecast() -> None:
    frame = frame_of()
    one, other = (
        Forecaster(attention="mlr", **{**SMALL, "max_steps": 12}).fit(rows)
        for rows in (frame, frame.sample(frac=1, random_state=0))
    )
    assert one.model is not None
    assert other.model is not None
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name]), name
    pd.testing.assert_frame_equal(one.predict(), other.predict())
    pd.testing.assert_frame_equal(one.predict(frame[::-1]), other.predict(frame))


def test_steps_are_counted_on(tmp_path: Path) -> None:
    wave = 5 + np.sin(2 * np.pi * np.arange(200) / 24)
    frame = pd.DataFrame({"a": wave, "b": 2 * wave})
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame[:180])
    forecast = forecaster.predict()
    assert forecast["ds"].tolist() == 2 * [*range(180, 180 + T)]
    assert forecaster.cross_validate(frame, windows=2)["cutoff"].unique().tolist() == [199 - 2 * T, 199 - T]
    assert forecaster.evaluate(frame)["windows"].tolist() == [20 - T + 1] * 3
    forecaster.plot(forecast, history=frame).canvas.draw()
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(), forecast)
    assert again.predict(frame)["ds"].iloc[0] == 200
    dates = frame.set_axis(pd.date_range("2020", periods=200, freq="h"))
    with pytest.raises(UserError, match="has time stamps, what the model was fitted on steps"):
        forecaster.predict(dates)
    for backbone in (
        {"calendar": True},
        {"attention": {"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["week", "day"]}}},
    ):
        described = {**SMALL, "max_steps": 2, "backbone": {**SMALL["backbone"], **backbone}}
        with pytest.raises(UserError, match="need time stamps, and the series count steps"):
            Forecaster(**described).fit(frame)


def test_text_is_read_as_it_is_said_to_be_written(tmp_path: Path) -> None:
    frame = frame_of({"b": 150, "a": 120})
    text = frame.assign(ds=frame["ds"].dt.strftime("%d.%m.%y %H:%M"))
    text.to_csv(tmp_path / "mine.csv", sep=";", decimal=",", encoding="utf-16", index=False)
    told = {"separator": ";", "decimal": ",", "encoding": "utf-16", "date_format": "%d.%m.%y %H:%M"}
    small = {**SMALL, "max_steps": 2}
    expected = Forecaster(**small).fit(frame).predict()
    forecaster = Forecaster(**small, **told).fit(tmp_path / "mine.csv")
    pd.testing.assert_frame_equal(forecaster.predict(), expected, check_dtype=False)
    pd.testing.assert_frame_equal(forecaster.predict(text), expected, check_dtype=False)
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(str(tmp_path / "mine.csv")), expected, check_dtype=False)


def test_a_frame_that_goes_on_much_later_is_scored_though_half_of_it_is_filled() -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame_of({"a": 200}))
    later = frame_of({"a": 1000})[900:]
    assert forecaster.evaluate(later)["windows"].iloc[0] > 0
    with pytest.raises(UserError, match=r"max_filled 0\.5 allows"):
        forecaster.predict(pd.concat([frame_of({"a": 200}), later]))


def test_a_frame_of_polars_or_pyarrow_gives_the_same(fitted: Forecaster) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.Table.from_pandas(frame_of())
    np.testing.assert_allclose(fitted.predict(table)["predictions"], fitted.predict(frame_of())["predictions"])


def test_missing_values_and_gaps_do_not_spoil_the_forecast(fitted: Forecaster) -> None:
    holes = frame_of()
    holes.loc[[100, 230, 300], "y"] = np.nan
    holes = holes.drop(index=[180, 181, 350])
    forecast = fitted.predict(holes)
    assert forecast["predictions"].notna().all()
    np.testing.assert_allclose(forecast["predictions"], fitted.predict()["predictions"], rtol=0.1)


# covariates


def promotions(rows: int, seed: int = 0) -> pd.DataFrame:
    """Two shops whose sales jump with a promotion that is known ahead; one shop is twice the other."""
    parts = []
    for number, shop in enumerate(["north", "south"]):
        rng = np.random.default_rng([seed, number])
        promotion = (rng.random(rows) < 0.3).astype(float)
        sales = (number + 1) * (10 + 5 * promotion + 0.1 * rng.standard_normal(rows))
        stamps = pd.date_range("2023-01-01", periods=rows, freq="D")
        parts.append(
            pd.DataFrame({"unique_id": shop, "ds": stamps, "y": sales, "promotion": promotion, "region": shop[0]})
        )
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def shops() -> Forecaster:
    columns = {"future_covariates": ["promotion"], "static": ["region"]}
    frame = promotions(400)
    # the promotions of the last 20 days are known, the sales are not
    frame.loc[frame["ds"] >= frame["ds"].max() - pd.Timedelta(days=19), "y"] = np.nan
    return Forecaster(**{**SMALL, "max_steps": 200}, **columns).fit(frame)


def test_the_future_of_a_covariate_moves_the_forecast(shops: Forecaster) -> None:
    forecast = shops.predict()
    truth = promotions(400).groupby("unique_id", sort=False).nth(list(range(380, 380 + T))).reset_index(drop=True)
    assert forecast["ds"].tolist() == truth["ds"].tolist()
    error = (forecast["predictions"] - truth["y"]).abs() / truth["y"]
    assert error.mean() < 0.1, "without the promotions it is about 0.2"


def test_a_frame_of_future_values_takes_the_place_of_rows_behind_the_target(shops: Forecaster) -> None:
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


def test_an_unknown_category_and_a_missing_column_are_refused(shops: Forecaster) -> None:
    frame = promotions(100)
    with pytest.raises(UserError, match=r"series north has category w, which was not seen in training; valid are n, s"):
        shops.predict(frame.assign(region="w"), future=None)
    with pytest.raises(UserError, match="no static column region"):
        shops.predict(frame.drop(columns="region"))


def test_a_column_that_nobody_named_is_said_to_be_unused(fitted: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    fitted.predict(frame_of().assign(weather=1.0))
    assert "the frame: column weather is not used" in caplog.text


def test_without_any_future_that_is_said(shops: Forecaster) -> None:
    with pytest.raises(UserError, match="no future values of promotion were given; give one for each of the 12 steps"):
        shops.predict(promotions(380))


def test_a_future_without_the_covariate_names_its_role(shops: Forecaster) -> None:
    future = promotions(400).drop(columns="promotion")
    with pytest.raises(UserError, match="future values has no future covariate column promotion"):
        shops.predict(promotions(380), future=future)


def test_rows_ahead_need_not_repeat_the_category(shops: Forecaster) -> None:
    frame = promotions(400)
    ahead = frame["ds"] > frame["ds"].max() - pd.Timedelta(days=20)
    frame.loc[ahead, ["y", "region"]] = np.nan
    pd.testing.assert_frame_equal(shops.predict(frame), shops.predict())


def test_a_future_may_hold_other_series(shops: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    frame, whole = promotions(380), promotions(400)
    future = whole[whole["ds"] > frame["ds"].max()][["unique_id", "ds", "promotion"]]
    south = frame[frame["unique_id"] == "south"]
    forecast = shops.predict(south, future=future)
    expected = shops.predict(frame, future=future)
    expected = expected[expected["unique_id"] == "south"].reset_index(drop=True)
    pd.testing.assert_frame_equal(forecast, expected, rtol=1e-4)
    assert caplog.messages == [
        "the frame of future values: left out 1 series that the frame has not got: 'north'",
    ]


# where frames come from, and what is said of them


def test_files_are_taken_where_frames_are(fitted: Forecaster, shops: Forecaster, tmp_path: Path) -> None:
    frame, new = frame_of(), frame_of(more=20)
    frame.to_csv(tmp_path / "past.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    once = Forecaster(**{**SMALL, "max_steps": 2})
    expected = once.fit(frame).predict()
    pd.testing.assert_frame_equal(once.fit(str(tmp_path / "past.csv")).predict(), expected)
    pd.testing.assert_frame_equal(fitted.predict(tmp_path / "past.csv"), fitted.predict(frame))
    pd.testing.assert_frame_equal(fitted.evaluate(tmp_path / "new.parquet"), fitted.evaluate(new))
    assert len(once.cross_validate(tmp_path / "past.csv", windows=1)) == 4 * T
    assert fitted.plot(fitted.predict(), history=tmp_path / "past.csv").axes
    whole = promotions(400)
    whole[whole["ds"] >= "2024-01-15"].drop(columns=["y", "region"]).to_csv(tmp_path / "future.csv", index=False)
    past = whole[whole["ds"] < "2024-01-15"]
    future = pd.read_csv(tmp_path / "future.csv", parse_dates=["ds"])
    pd.testing.assert_frame_equal(
        shops.predict(past, future=tmp_path / "future.csv"), shops.predict(past, future=future)
    )
    with pytest.raises(UserError, match=r"nowhere.csv is not there"):
        fitted.predict("nowhere.csv")
    (tmp_path / "past.csv").write_text("unique_id,ds,y\na,2020-01-01,1\na,2020-01-02,x\n")
    with pytest.raises(UserError, match=r"past.csv, line 3: x in column y is not a number"):
        fitted.predict(tmp_path / "past.csv")


def test_a_pandas_series_is_a_frame_of_one_column() -> None:
    column = frame_of({"a": 200}).set_index("ds")["y"]
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(column.rename("sales"))
    assert forecaster.predict(column.rename("sales"))["unique_id"].unique().tolist() == ["sales"]
    assert Forecaster(**{**SMALL, "max_steps": 2}).fit(column.rename(None)).predict()["unique_id"].eq("y").all()


def test_what_is_done_to_a_frame_is_said_once_for_each_frame(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    frame, new = frame_of().assign(city="x"), frame_of(more=20).assign(city="x")
    frame.loc[[100, 230], "y"] = np.nan
    new.loc[1, "y"] = np.nan
    read = [
        "the frame: column city is not used (covariates are used if they are named)",
        "the frame: 2 of 650 values are missing; they are masked, never scored",
    ]
    short = f"1 of 4 series have fewer rows than context_length {L}; their contexts are padded"
    forecaster = Forecaster(**{**SMALL, "max_steps": 2})

    def said(call: Any) -> list[str]:
        caplog.clear()
        call()
        return caplog.messages

    assert said(lambda: forecaster.fit(frame))[:2] == read
    forecast = forecaster.predict()
    assert said(forecaster.predict) == []
    assert said(lambda: forecaster.predict(frame)) == [*read, short]
    assert said(lambda: forecaster.plot(forecast)) == []
    assert said(lambda: forecaster.plot(forecast, history=frame)) == []
    assert said(lambda: forecaster.save(tmp_path / "model")) == []
    assert said(lambda: tsattn.load(tmp_path / "model").predict()) == []
    assert said(lambda: forecaster.evaluate(new)) == [
        read[0],
        "the frame: 1 of 80 values are missing; they are masked, never scored",
    ]
    validation = said(lambda: forecaster.cross_validate(frame, windows=3, refit=True))
    assert validation[:2] == read
    assert len(set(validation)) == len(validation)


def zoned(zone: str | None, frame: pd.DataFrame, frequency: str = "h") -> pd.DataFrame:
    """With time stamps from 2024 on, by the clock of a zone."""
    rows = frame.groupby("unique_id").cumcount()
    stamps = pd.date_range("2024-03-25", periods=rows.max() + 1, freq=frequency, tz=zone)
    return frame.assign(ds=stamps[rows.to_numpy()])


@pytest.mark.parametrize("frequency", ["h", "D"])
def test_another_time_zone_is_converted_to_that_of_the_fit(frequency: str) -> None:
    frame = zoned("Europe/Berlin", frame_of(), frequency)
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    utc = frame.assign(ds=frame["ds"].dt.tz_convert("UTC"))
    forecast = forecaster.predict(utc)
    pd.testing.assert_frame_equal(forecast, forecaster.predict(frame))
    assert str(forecast["ds"].dt.tz) == "Europe/Berlin"
    drawn = [forecaster.plot(forecast.assign(ds=stamps), history=utc) for stamps in (forecast["ds"], utc_of(forecast))]
    for line, same in zip(*(figure.axes[0].lines for figure in drawn), strict=True):
        assert list(line.get_xdata()) == list(same.get_xdata())
    with pytest.raises(UserError, match="the forecast has no time zone, the history time zone Europe/Berlin"):
        forecaster.plot(forecast.assign(ds=forecast["ds"].dt.tz_localize(None)))


def utc_of(forecast: pd.DataFrame) -> pd.Series:
    return forecast["ds"].dt.tz_convert("UTC")


def test_a_time_zone_on_one_side_only_is_refused(tmp_path: Path) -> None:
    berlin, plain = zoned("Europe/Berlin", frame_of()), zoned(None, frame_of())
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(berlin)
    forecaster.save(tmp_path / "model")
    for other in (forecaster, tsattn.load(tmp_path / "model")):
        for call in (other.predict, other.evaluate, lambda frame, other=other: other.plot(berlin, history=frame)):
            with pytest.raises(UserError, match="has no time zone, what the model was fitted on time zone Europe/Berl"):
                call(plain)
    with pytest.raises(UserError, match="the frame has time zone Europe/Berlin, what the model was fitted on no time"):
        forecaster.fit(plain).predict(berlin)


def test_ids_may_be_text_that_were_numbers(caplog: pytest.LogCaptureFixture) -> None:
    numbers = {"small": 1, "large": 2, "late": 3, "short": 40}
    frame, new = (part.replace({"unique_id": numbers}) for part in (frame_of(), frame_of(more=20)))
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    expected, scores = forecaster.predict(), forecaster.evaluate(new)
    caplog.clear()
    forecast = forecaster.predict(frame.astype({"unique_id": str}))
    assert "the ids are not those trained on, but their text is: '1' is taken for 1" in caplog.messages
    assert forecast["unique_id"].unique().tolist() == ["1", "2", "3", "40"], "as they were given"
    pd.testing.assert_frame_equal(forecast.drop(columns="unique_id"), expected.drop(columns="unique_id"))
    pd.testing.assert_frame_equal(forecaster.evaluate(new.astype({"unique_id": str})), scores)
    caplog.clear()
    some = frame.astype({"unique_id": str}).replace({"unique_id": {"1": "new"}})
    forecaster.predict(some)
    assert caplog.messages[0] == (
        "4 of 4 series were not trained on; each is scaled by the rows given of it (the ids of 3 were trained on as "
        "numbers, or as text)"
    )


def test_a_bar_counts_steps_and_shows_what_chooses_the_weights(capsys: pytest.CaptureFixture[str]) -> None:
    Forecaster(**SMALL, progress=True).fit(frame_of())
    shown = capsys.readouterr().err
    assert "30/30" in shown
    assert "val_crps=" in shown
    assert "Epoch" not in shown
    Forecaster(**SMALL).fit(frame_of())
    assert capsys.readouterr().err == ""


def test_a_forecaster_shows_itself_in_a_line(fitted: Forecaster) -> None:
    assert repr(fitted) == (
        "Forecaster(patchtst, attention mlr, 48 -> 12 steps, quantiles 0.1 0.5 0.9, fitted on 4 series)"
    )
    plain = Forecaster("transformer", context_length=8, prediction_length=4, quantiles=None)
    assert repr(plain) == "Forecaster(transformer, attention standard, 8 -> 4 steps, point forecast, not fitted)"
    wide = Forecaster({**SMALL["backbone"], "num_layers": 2}, ["swa", "mlr"], context_length=L, prediction_length=T)
    assert "attention swa/mlr, " in repr(wide)


# cross-validation and evaluation


def test_a_point_counts_as_all_of_its_quantiles(fitted: Forecaster) -> None:
    """Of levels that lie evenly around the median, WQL is WAPE and CRPS is MAE."""
    scores = fitted.evaluate(frame_of(more=30))
    points = scores.drop(index="patchtst_mlr")
    np.testing.assert_allclose(points["wql_by_channel"], points["wape_by_channel"], rtol=1e-12)
    np.testing.assert_allclose(points["crps_original_by_channel"], points["mae_original_by_channel"], rtol=1e-12)
    assert points["coverage_80_by_channel"].isna().all()
    uneven = Forecaster(**{**SMALL, "max_steps": 2}, quantiles=[0.5, 0.9]).fit(frame_of({"a": 200}))
    new = frame_of({"a": 200}, more=T)
    error = new["y"].to_numpy() - frame_of({"a": 200})["y"].iloc[-1]
    loss = [2 * np.maximum(level * error, (level - 1) * error) for level in (0.5, 0.9)]
    assert uneven.evaluate(new).loc["persistence", "crps_original_by_channel"] == pytest.approx(np.mean(loss), rel=1e-5)


def test_cross_validation_pairs_forecasts_with_what_came() -> None:
    frame = frame_of({"a": 200, "b": 150})
    result = Forecaster(**{**SMALL, "max_steps": 5}).cross_validate(frame, windows=3, step=7)
    assert result.columns.tolist() == ["unique_id", "ds", "cutoff", "predictions", "0.1", "0.5", "0.9", "y"]
    assert len(result) == 3 * 2 * T
    truth = frame.set_index(["unique_id", "ds"])["y"]
    found = truth.loc[pd.MultiIndex.from_frame(result[["unique_id", "ds"]])].to_numpy()
    np.testing.assert_array_equal(result["y"], found)
    ends = frame.groupby("unique_id")["ds"].max()
    for (name, cutoff), part in result.groupby(["unique_id", "cutoff"]):
        hours = [(ends[name] - cutoff) / pd.Timedelta(hours=1)]
        assert hours[0] in (T, T + 7, T + 14)
        assert part["ds"].tolist() == pd.date_range(cutoff, periods=T + 1, freq="h")[1:].tolist()


@pytest.mark.parametrize("refit", [False, True])
def test_cross_validation_never_sees_what_comes(refit: bool) -> None:
    frame = frame_of({"a": 200, "b": 160})
    forecaster = Forecaster(**{**SMALL, "max_steps": 5})
    honest = forecaster.cross_validate(frame, windows=2, refit=refit)
    first = honest["cutoff"].groupby(honest["unique_id"]).min()
    changed = frame.copy()
    behind = changed["ds"] > changed["unique_id"].map(first)
    changed.loc[behind, "y"] = changed.loc[behind, "y"] * 100 - 7
    spoilt = forecaster.cross_validate(changed, windows=2, refit=refit)
    is_first = honest["cutoff"] == honest["unique_id"].map(first)
    assert is_first.sum() == 2 * T
    np.testing.assert_array_equal(spoilt.loc[is_first, "predictions"], honest.loc[is_first, "predictions"])
    assert not spoilt.loc[~is_first, "predictions"].equals(honest.loc[~is_first, "predictions"])


def test_cross_validation_says_which_windows_are_short(caplog: pytest.LogCaptureFixture) -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2})
    result = forecaster.cross_validate(frame_of({"a": 200, "b": 2 * T}), windows=2)
    assert "window 1 of 2 has 1 of 2 series" in caplog.text
    assert result.groupby("unique_id")["cutoff"].nunique().to_dict() == {"a": 2, "b": 1}
    with pytest.raises(UserError, match=r"no series is long enough for 20 windows: the longest has 50 rows, but 241"):
        forecaster.cross_validate(frame_of({"a": 50}), windows=20)
    assert forecaster.model is None, "cross-validation leaves the forecaster as it is"


def test_evaluation_scores_only_what_was_not_fitted(fitted: Forecaster) -> None:
    """A frame with the fitted rows in it and one without them give the same scores."""
    new = frame_of(more=30)
    both = pd.concat([frame_of(), new]).sort_values(["unique_id", "ds"])
    alone, together = fitted.evaluate(new), fitted.evaluate(both)
    pd.testing.assert_frame_equal(alone, together.loc[alone.index], rtol=1e-4)
    with pytest.raises(UserError, match=r"nothing to score: no series has 12 rows .* behind those that were fitted"):
        fitted.evaluate(frame_of())


def test_evaluation_equals_the_metrics_by_hand(fitted: Forecaster) -> None:
    new = frame_of(more=T).sort_values(["unique_id", "ds"], ignore_index=True)
    scores = fitted.evaluate(new)
    forecast = fitted.predict()
    error = forecast["predictions"] - new["y"]
    row = scores.loc["patchtst_mlr"]
    assert row["windows"] == 4
    assert row["mse_original_by_channel"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert row["mae_original_by_channel"] == pytest.approx(error.abs().mean(), rel=1e-5)
    assert row["wape_by_channel"] == pytest.approx(error.abs().sum() / new["y"].abs().sum(), rel=1e-5)
    inside = (forecast["0.1"] <= new["y"]) & (new["y"] <= forecast["0.9"])
    assert row["coverage_80_by_channel"] == pytest.approx(inside.mean())
    history = frame_of()
    scale = history.groupby("unique_id", sort=False)["y"].apply(lambda y: (y - y.shift(24)).abs().mean())
    assert row["mase_by_channel"] == pytest.approx((error.abs() / new["unique_id"].map(scale)).mean(), rel=1e-5)
    persistence = new["y"] - new["unique_id"].map(history.groupby("unique_id")["y"].last())
    assert scores.loc["persistence", "mae_original_by_channel"] == pytest.approx(persistence.abs().mean(), rel=1e-5)


def test_strangers_are_scored_behind_their_first_context(fitted: Forecaster) -> None:
    scores = fitted.evaluate(frame_of({"stranger": 100}, seed=5), step=10)
    assert scores["windows"].tolist() == [len(range(L, 100 - T + 1, 10))] * 3


def test_the_scale_of_strangers_knows_nothing_that_is_scored(fitted: Forecaster) -> None:
    frame = frame_of({"stranger": L + T}, seed=5)
    changed = frame.assign(y=frame["y"].where(frame.index < L, 1e6))
    contexts: list[torch.Tensor] = []
    assert fitted.model is not None
    hook = fitted.model.register_forward_hook(lambda _, inputs, __: contexts.append(inputs[0].past))
    for table in (frame, changed):
        fitted.evaluate(table)
    hook.remove()
    torch.testing.assert_close(*contexts, rtol=0, atol=0)


# saving


@pytest.fixture
def saved(fitted: Forecaster, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_forecasts_and_scores_the_same(fitted: Forecaster, saved: Path) -> None:
    loaded = tsattn.load(saved)
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())
    pd.testing.assert_frame_equal(loaded.predict(frame_of()), fitted.predict(frame_of()))
    pd.testing.assert_frame_equal(loaded.evaluate(frame_of(more=20)), fitted.evaluate(frame_of(more=20)))
    assert sorted(path.name for path in saved.iterdir()) == [
        "forecaster.json",
        "history.safetensors",
        "model.safetensors",
    ]
    assert list(saved.parent.iterdir()) == [saved], "nothing is left beside the folder"


def test_covariates_and_categories_are_saved(shops: Forecaster, tmp_path: Path) -> None:
    shops.save(tmp_path / "model")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model").predict(), shops.predict())


def test_a_folder_is_not_overwritten_unasked(fitted: Forecaster, saved: Path) -> None:
    with pytest.raises(UserError, match="exists already"):
        fitted.save(saved)
    fitted.save(saved, overwrite=True)
    stranger = saved.parent / "thesis"
    stranger.mkdir()
    (stranger / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not the folder of a saved model; it is not overwritten"):
        fitted.save(stranger, overwrite=True)
    assert (stranger / "thesis.tex").exists()


def spoil_json(folder: Path) -> None:
    (folder / "forecaster.json").write_text("{")


def set_in_json(folder: Path, **fields: Any) -> None:
    path = folder / "forecaster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "forecaster.json").unlink(), "not the folder of a saved model: it has no forecaster"),
        (spoil_json, "damaged: forecaster.json cannot be read"),
        (lambda folder: set_in_json(folder, format="cake"), "not the folder of a model that tsattn has saved"),
        (
            lambda folder: set_in_json(folder, version=99),
            "is of format 99, which a newer tsattn wrote; this one reads formats up to 2",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "damaged: .*model.safetensors"),
        (lambda folder: flip_byte(folder / "model.safetensors"), "model.safetensors is not the file that was saved"),
        (lambda folder: flip_byte(folder / "history.safetensors"), "history.safetensors is not the file that"),
        (lambda folder: set_in_json(folder, task={"data": "x"}), "damaged"),
        (lambda folder: set_in_json(folder, sha256={"../../etc/passwd": "0"}), "damaged"),
    ],
)
def test_an_unknown_or_damaged_folder_is_refused(saved: Path, spoil: Any, message: str) -> None:
    spoil(saved)
    with pytest.raises(UserError, match=message) as caught:
        tsattn.load(saved)
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not there"):
        tsattn.load(tmp_path / "nowhere")


def test_nothing_in_a_folder_is_a_pickle(saved: Path) -> None:
    for path in saved.iterdir():
        content = path.read_bytes()
        assert not content.startswith((b"PK", b"\x80")), path.name


# mistakes


def test_before_fit_everything_says_so(tmp_path: Path) -> None:
    forecaster = Forecaster(**SMALL)
    calls = [
        forecaster.predict,
        lambda: forecaster.evaluate(frame_of()),
        lambda: forecaster.plot(frame_of()),
        lambda: forecaster.save(tmp_path / "x"),
    ]
    for call in calls:
        with pytest.raises(UserError, match="not fitted yet"):
            call()
    assert not (tmp_path / "x").exists()


def test_a_file_or_a_number_is_no_folder(fitted: Forecaster, tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("no")
    with pytest.raises(UserError, match=r"model.txt is a file, not a folder; valid is a folder"):
        tsattn.load(tmp_path / "model.txt")
    for call in (fitted.save, tsattn.load):
        with pytest.raises(UserError, match="the folder must be a path, not 3"):
            call(3)


def test_a_tilde_is_the_home_of_the_user(fitted: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    fitted.save("~/model")
    assert (tmp_path / "model" / "forecaster.json").exists()
    assert repr(tsattn.load("~/model")) == repr(fitted)


def test_an_accelerator_that_is_not_there_is_replaced_where_a_model_is_loaded(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    arguments = json.loads((saved / "forecaster.json").read_text())["arguments"]
    set_in_json(saved, arguments={**arguments, "accelerator": "mps"})
    assert tsattn.load(saved).arguments["accelerator"] == "auto"
    assert caplog.messages == [f"{saved}: accelerator mps is not on this machine; auto takes its place"]
    set_in_json(saved, arguments={**arguments, "flavour": "cake"})
    with pytest.raises(UserError, match=r"damaged: .*flavour"):
        tsattn.load(saved)


def test_arguments_are_kept_as_plain_data(tmp_path: Path) -> None:
    names = {"id_column": 0, "time_column": np.int64(1), "target": 2}
    numbers = {"context_length": np.int64(L), "max_steps": np.int32(2), "learning_rate": np.float32(1e-3)}
    levels = {"quantiles": np.array([0.25, 0.5, 0.75])}
    frame = frame_of({"a": 200}).set_axis([0, 1, 2], axis=1)
    forecaster = Forecaster(**{**SMALL, **names, **numbers, **levels}).fit(frame)
    assert forecaster.predict().columns.tolist() == ["0", "1", "predictions", "0.25", "0.5", "0.75"]
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model").predict(frame), forecaster.predict(frame))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_length": 48.0}, "context_length must be a whole number, not 48.0"),
        ({"prediction_length": "12"}, "prediction_length must be a whole number, not '12'"),
        ({"max_steps": 1e3}, "max_steps must be a whole number, not 1000.0"),
        ({"batch_size": True}, "batch_size must be a whole number, not True"),
        ({"eval_batch_size": None}, "eval_batch_size must be a whole number, not None"),
        ({"seed": None}, "seed must be a whole number, not None"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"seed": 1 << 70}, "seed must be at most"),
        ({"learning_rate": "fast"}, "learning_rate must be a number above 0, not 'fast'"),
        ({"learning_rate": float("inf")}, "learning_rate must be a number above 0, not inf"),
        ({"quantiles": 0.5}, r"quantiles must be a list of numbers, such as \[0.1, 0.5, 0.9\], not 0.5"),
        ({"quantiles": ["0.5"]}, "quantiles must be a list of numbers"),
        ({"quantiles": "0.5"}, "quantiles must be a list of numbers"),
        ({"target": 2.5}, "target must be the name of a column or a list of names, not 2.5"),
        ({"id_column": ["a"]}, "id_column must be the name of a column, not"),
        ({"frequency": 2.5}, "frequency must be a text such as h, D or MS, or for steps a whole number, not 2.5"),
        ({"frequency": "cake"}, "cake. is not a frequency"),
        ({"backbone": "cake"}, "unknown backbone"),
        ({"attention": "cake"}, "unknown attention"),
        ({"context_length": 0}, "context_length must be at least 1"),
        ({"quantiles": [0.1, 0.9]}, "must include 0.5"),
        ({"scaling": "robust"}, "scaling must be one of"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"accelerator": "cake"}, "accelerator must be one of"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**{**SMALL, **options})


@pytest.mark.parametrize("name", ["gpu", "cuda", "mps"])
def test_an_accelerator_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=f"accelerator {name} is not on this machine; valid are auto, cpu"):
        Forecaster(**{**SMALL, "accelerator": name})


def test_wrong_numbers_of_a_call_are_refused_before_a_frame_is_read(fitted: Forecaster) -> None:
    calls = {
        "horizon": lambda value: fitted.predict("nowhere.csv", horizon=value),
        "windows": lambda value: fitted.cross_validate("nowhere.csv", windows=value),
        "step": lambda value: fitted.cross_validate("nowhere.csv", step=value),
    }
    for name, call in {**calls, "step ": lambda value: fitted.evaluate("nowhere.csv", step=value)}.items():
        for value in (1.0, "3", True):
            with pytest.raises(UserError, match=f"{name.strip()} must be a whole number, not {value!r}"):
                call(value)
        with pytest.raises(UserError, match=f"{name.strip()} must be at least 1, not 0"):
            call(0)
    assert fitted.predict(horizon=np.int64(3)).groupby("unique_id").size().eq(3).all()


def test_series_that_are_all_too_short_are_refused() -> None:
    with pytest.raises(UserError, match="no series is long enough, not even the longest"):
        Forecaster(**SMALL).fit(frame_of({"a": 30, "b": 40}))


def test_series_without_rows_to_spare_train_without_validation(caplog: pytest.LogCaptureFixture) -> None:
    forecast = Forecaster(**{**SMALL, "max_steps": 3}).fit(frame_of({"a": L + T, "b": L + T})).predict()
    assert "no series has the rows to hold a part out" in caplog.text
    assert forecast["predictions"].notna().all()


def test_figures_show_history_forecast_and_bands(fitted: Forecaster) -> None:
    figure = fitted.plot(fitted.predict(), ids=["short", "small"])
    assert [ax.get_ylabel() for ax in figure.axes] == ["short", "small"]
    for ax in figure.axes:
        history, forecast = ax.lines[:2]
        assert len(forecast.get_xdata()) == T
        assert history.get_xdata()[-1] < forecast.get_xdata()[0]
        assert len(ax.collections) == 1, "one band for 0.1 to 0.9"
    with pytest.raises(UserError, match="no forecast of nobody; valid are large, late, short, small"):
        fitted.plot(fitted.predict(), ids=["nobody"])


def entries(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_figures_need_no_list_no_order_and_no_list_of_ids(fitted: Forecaster) -> None:
    forecast = fitted.predict()
    figure = fitted.plot(forecast, ids="large")
    assert [ax.get_ylabel() for ax in figure.axes] == ["large"]
    assert entries(figure) == ["observed", "median", "80 % interval"]
    other = fitted.plot(forecast[forecast.columns[::-1]].sample(frac=1, random_state=0).sort_index(), ids="large")
    for line, same in zip(figure.axes[0].lines, other.axes[0].lines, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), same.get_ydata())
    for empty, message in ((forecast[:0], "the forecast has no rows"), (forecast.drop(columns="0.1"), "no column 0.1")):
        with pytest.raises(UserError, match=message):
            fitted.plot(empty)
    with pytest.raises(UserError, match="no id to draw"):
        fitted.plot(forecast, ids=[])


def test_figures_of_point_forecasts_have_no_band() -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, quantiles=None).fit(frame_of({"a": 200}))
    figure = forecaster.plot(forecaster.predict())
    assert entries(figure) == ["observed", "forecast"]
    assert not figure.axes[0].collections


def test_monthly_figures_are_drawn_without_warnings() -> None:
    stamps = pd.date_range("2015-01-01", periods=90, freq="MS")
    frame = pd.DataFrame({"ds": stamps, "sold": 10 + np.sin(np.arange(90) / 2)})
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    forecast = forecaster.predict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = forecaster.plot(forecast)
        figure.canvas.draw()
    assert [ax.get_ylabel() for ax in figure.axes] == ["sold"]


def test_figures_show_what_came_where_the_history_has_it(fitted: Forecaster) -> None:
    forecast = fitted.predict()
    whole = pd.concat([frame_of(), frame_of(more=T)])
    figure = fitted.plot(forecast, ids="small", history=whole.sort_values(["unique_id", "ds"]))
    observed = figure.axes[0].lines[0]
    came = frame_of(more=T)
    np.testing.assert_allclose(observed.get_ydata()[-T:], came.loc[came["unique_id"] == "small", "y"])
    stranger = fitted.predict(frame_of({"stranger": 100}))
    with pytest.raises(UserError, match="the history has no series stranger; give the frame that was forecast from"):
        fitted.plot(stranger)
    assert fitted.plot(stranger, history=frame_of({"stranger": 100})).axes


def test_figures_of_a_cross_validation_show_each_origin() -> None:
    frame = frame_of({"a": 200})
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    figure = forecaster.plot(forecaster.cross_validate(frame, windows=3))
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == T]
    assert len(lines) == 3
    assert len(figure.axes[0].collections) == 3
    assert entries(figure) == ["observed", "median", "80 % interval"]


def test_a_run_of_the_command_line_is_loaded(toy_csv: Path, toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    from tsattn.cli import main

    sizes = ["--data.context_length=48", "--data.prediction_length=12", "--model.backbone.d_model=16"]
    small = ["--model.backbone.num_heads=2", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    run = str(tmp_path / "run")
    assert main(["fit", "--data=CSVDataModule", f"--data.path={toy_csv}", *sizes, *small, f"--run={run}"]) == 0
    assert main(["predict", f"--run={run}"]) == 0
    forecaster = tsattn.load(run)
    written = pd.read_csv(tmp_path / "run" / "forecast.csv")
    forecast = forecaster.predict(toy_frame.reset_index())
    np.testing.assert_allclose(forecast["predictions"], written["predictions"], rtol=1e-5)
    for call in (forecaster.predict, lambda: forecaster.plot(forecast)):
        with pytest.raises(UserError, match="give a frame"):
            call()


def run_of(path: Path, *words: str) -> str:
    """The folder of a run on this file."""
    from tsattn.cli import main

    sizes = [f"--data.context_length={L}", f"--data.prediction_length={T}", "--model.backbone.d_model=16"]
    small = ["--model.backbone.num_heads=2", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    run = str(path.with_suffix(".run"))
    assert main(["fit", "--data=CSVDataModule", f"--data.path={path}", *sizes, *small, *words, f"--run={run}"]) == 0
    assert main(["predict", f"--run={run}"]) == 0
    return run


def test_a_run_knows_the_columns_that_it_was_told_of(tmp_path: Path) -> None:
    long = frame_of().set_axis(["shop", "hour", "sold"], axis=1).assign(note="text")
    long.to_csv(tmp_path / "long.csv", index=False)
    run = run_of(tmp_path / "long.csv", "--data.id_column=shop", "--data.time_column=hour", "--data.target=sold")
    forecaster = tsattn.load(run)
    forecast = forecaster.predict(long)
    assert forecast.columns[:2].tolist() == ["shop", "hour"]
    np.testing.assert_allclose(forecast["predictions"], pd.read_csv(f"{run}/forecast.csv")["predictions"], rtol=1e-5)
    assert forecaster.columns["target"] == ("sold",)


def test_a_run_on_some_columns_of_a_wide_file_forecasts_these(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    wide = toy_frame.assign(note="text", other=1.0).rename_axis("when")
    wide.to_csv(tmp_path / "wide.csv")
    run = run_of(tmp_path / "wide.csv", "--data.time_column=when", "--data.target=[drift, wave]")
    forecast = tsattn.load(run).predict(wide.reset_index())
    assert forecast["unique_id"].unique().tolist() == ["drift", "wave"]
    np.testing.assert_allclose(forecast["predictions"], pd.read_csv(f"{run}/forecast.csv")["predictions"], rtol=1e-5)


def test_a_run_does_not_know_its_rows(toy_csv: Path, toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    forecaster = tsattn.load(run_of(toy_csv))
    frame = toy_frame.reset_index()
    with pytest.warns(UserWarning, match="does not know which rows it was trained on: rows of the frame may be among"):
        scores = forecaster.evaluate(frame)
    assert scores["windows"].eq(600 - L - T + 1).all()
    forecaster.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["forecaster.json", "model.safetensors"]
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(frame), forecaster.predict(frame))
    with pytest.raises(UserError, match="give a frame"):
        loaded.predict()


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "frequency", "options"),
    [
        (
            "vic_electricity.csv",
            "30min",
            {"time_column": "Time", "target": "Demand", "future_covariates": ["Temperature", "Holiday"]},
        ),
        ("national_illness.csv", "W-TUE", {"past_covariates": ["NUM. OF PROVIDERS"]}),
        ("exchange_rate.csv", "D", {}),
        ("ETTh1.csv", "h", {"target": "OT", "past_covariates": ["HUFL", "MUFL"]}),
    ],
)
def test_the_whole_way_on_real_files(
    file: str, frequency: str, options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Gaps, covariates, quantiles, horizons, cross-validation, evaluation, figures and saving; the end is held out."""
    assert REAL_ROOT is not None
    table = pd.read_csv(Path(REAL_ROOT) / file, nrows=460)
    if file.startswith("vic"):
        table = table.drop(columns="Date")
    past, future = table[:400].copy(), table[400:]
    time_name = options.get("time_column", "date")
    past = past.drop(index=[150, 151])  # a gap in time
    target = options.get("target", past.columns[-1])
    past.loc[200, target] = np.nan
    panel = panel_from_frame(past, **options)
    assert panel.frequency == frequency
    assert "filled 2 missing time stamps" in caplog.text
    assert "values are missing" in caplog.text

    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, attention="mlr", **options).fit(past)
    known = {"future": future[[time_name, *options["future_covariates"]]]} if "future_covariates" in options else {}
    forecast = forecaster.predict(**known)
    channels = len(panel.channels)
    assert len(forecast) == T * channels
    assert forecast[time_name].iloc[0] == pd.Timestamp(future[time_name].iloc[0])
    assert forecast[time_name].tolist()[:T] == pd.to_datetime(future[time_name][:T]).tolist()
    assert (forecast["0.1"] <= forecast["0.5"]).all()
    assert (forecast["0.5"] <= forecast["0.9"]).all()
    # in original units: between the extremes that were seen, and as much again
    low, high = np.nanmin(panel.values), np.nanmax(panel.values)
    assert forecast["predictions"].between(2 * low - high, 2 * high - low).all()
    with pytest.warns(UserWarning, match="horizon 30 is longer"):
        assert len(forecaster.predict(horizon=30, **known)) == 30 * channels
    assert len(forecaster.predict(horizon=5, **known)) == 5 * channels

    scores = forecaster.evaluate(table)
    assert scores["windows"].eq(60 - T + 1).all(), "only what comes behind the fitted rows"
    scored = ["mse_original", "mae_original", "rmse_original", "smape", "wape", "wql", "crps_original"]
    assert np.isfinite(scores.loc["patchtst_mlr", [f"{name}_by_channel" for name in scored]]).all()
    validated = forecaster.cross_validate(past, windows=2)
    assert len(validated) == 2 * T * channels
    assert validated["cutoff"].nunique() == 2
    assert len(forecaster.plot(forecast, history=table).axes) == min(6, channels)
    forecaster.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model").predict(**known)
    np.testing.assert_allclose(loaded["predictions"], forecast["predictions"], rtol=1e-5)


def test_logging_is_by_the_logger_of_the_package(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tsattn"):
        Forecaster(**{**SMALL, "max_steps": 2}).fit(frame_of().drop(index=[5]))
    assert {record.name for record in caplog.records} == {"tsattn"}
