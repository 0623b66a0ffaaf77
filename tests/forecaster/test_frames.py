"""Frames of every kind, zone and place are read identically, and forecasts of that kind come out."""

import json
import logging
from pathlib import Path
from typing import Any

import dateutil.tz
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import tsattn
from tests.data.mapped.tables_to_map import ROLES, converted, full_frame, saved
from tests.forecaster.toys import SMALL, L, T, frame_of, promotions, set_in_json, zoned
from tsattn import load
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.task import UNKNOWN_ZONE, Task


def test_steps_are_counted_on(tmp_path: Path) -> None:
    wave = 5 + np.sin(2 * np.pi * np.arange(200) / 24)
    frame = pd.DataFrame({"a": wave, "b": 2 * wave})
    forecaster = Forecaster("seasonal_naive", prediction_length=T).fit(frame[:180])
    forecast = forecaster.predict()
    assert forecast["ds"].tolist() == 2 * [*range(180, 180 + T)]
    assert forecaster.cross_validate(frame, windows=2)["cutoff"].unique().tolist() == [199 - 2 * T, 199 - T]
    assert forecaster.evaluate(frame)["windows"].eq(20 - T + 1).all()
    forecaster.plot(forecast, history=frame).canvas.draw()
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(), forecast)
    with pytest.raises(UserError, match="has time stamps, but the training data has steps"):
        forecaster.predict(frame.set_axis(pd.date_range("2020", periods=200, freq="h")))
    described = {**SMALL, "backbone": {**SMALL["backbone"], "calendar": True}}
    with pytest.raises(UserError, match="need time stamps, but the series count steps"):
        Forecaster(**described).fit(frame)


def test_files_are_taken_where_frames_are(fitted: Forecaster, shops: Forecaster, tmp_path: Path) -> None:
    frame, new = frame_of(), frame_of(more=20)
    frame.to_csv(tmp_path / "past.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    once = Forecaster(**{**SMALL, "max_steps": 2})
    pd.testing.assert_frame_equal(once.fit(str(tmp_path / "past.csv")).predict(), once.fit(frame).predict())
    pd.testing.assert_frame_equal(fitted.predict(tmp_path / "past.csv"), fitted.predict(frame))
    pd.testing.assert_frame_equal(fitted.evaluate(tmp_path / "new.parquet"), fitted.evaluate(new))
    assert fitted.plot(fitted.predict(), history=tmp_path / "past.csv").axes
    whole = promotions(400)
    past, future = (whole[part] for part in (whole["ds"] < "2024-01-15", whole["ds"] >= "2024-01-15"))
    future = future.drop(columns=["y", "region"])
    future.to_csv(tmp_path / "future.csv", index=False)
    found = shops.predict(past, future=tmp_path / "future.csv")
    pd.testing.assert_frame_equal(found, shops.predict(past, future=future))
    with pytest.raises(UserError, match=r"nowhere.csv does not exist"):
        fitted.predict("nowhere.csv")


def test_a_time_zone_on_one_side_only_is_refused(tmp_path: Path) -> None:
    berlin, plain = zoned("Europe/Berlin", frame_of()), zoned(None, frame_of())
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(berlin)
    forecaster.save(tmp_path / "model")
    for other in (forecaster, tsattn.load(tmp_path / "model")):
        for call in (other.predict, other.evaluate, lambda frame, other=other: other.plot(berlin, history=frame)):
            with pytest.raises(UserError, match="has no time zone, but the training data has time zone Europe/Berl"):
                call(plain)
    with pytest.raises(UserError, match="the frame has time zone Europe/Berlin, but the training data has no time"):
        forecaster.fit(plain).predict(berlin)


def test_ids_may_be_text_that_were_numbers(caplog: pytest.LogCaptureFixture) -> None:
    numbers = {"small": 1, "large": 2, "late": 3, "short": 40}
    frame, new = (part.replace({"unique_id": numbers}) for part in (frame_of(), frame_of(more=20)))
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    caplog.clear()
    forecast = forecaster.predict(frame.astype({"unique_id": str}))
    assert "the ids differ from those of the training only by type: '1' is read as 1" in caplog.messages
    assert forecast["unique_id"].unique().tolist() == ["1", "2", "3", "40"], "as they were given"
    pd.testing.assert_frame_equal(forecast.astype({"unique_id": int}), forecaster.predict())
    pd.testing.assert_frame_equal(forecaster.evaluate(new.astype({"unique_id": str})), forecaster.evaluate(new))


@pytest.mark.parametrize("numbers", [(1, 2), (1.0, 2.0)])
def test_rows_of_the_fit_are_not_scored_beside_a_new_series(numbers: tuple[float, float]) -> None:
    """Whether ids are numbers or text, and whether all are known."""
    lengths = dict.fromkeys(("small", "large", "new"), 90)
    frame, new = frame_of(lengths), frame_of(lengths, more=T)
    ids = dict(zip(("small", "large"), numbers, strict=True))
    both = pd.concat([frame, new])
    fitted = Forecaster(**{**SMALL, "max_steps": 2}).fit(
        frame[frame["unique_id"] != "new"].assign(unique_id=lambda part: part["unique_id"].map(ids))
    )
    texts = both.assign(unique_id=both["unique_id"].map({"small": "1", "large": "2", "new": "new"}))
    windows = fitted.evaluate(texts, by="series").xs("persistence", level=0)["windows"]
    assert windows.loc[["1", "2"]].tolist() == [1, 1]
    assert windows.loc["new"] > 1


NAIVE: dict[str, Any] = {"backbone": "seasonal_naive", "prediction_length": T}
FRAME = frame_of({"a": 100, "b": 80})


def naive(**options: Any) -> Forecaster:
    return Forecaster(**{**NAIVE, **options})


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    forecast: pd.DataFrame = naive().predict(FRAME)
    return forecast


def test_periods_come_back_as_periods(tmp_path: Path) -> None:
    months = pd.period_range("2010-01", periods=120, freq="M")
    wave = 5 + np.sin(2 * np.pi * np.arange(120) / 12)
    series = pd.Series(wave, index=months, name="sales")
    forecaster = naive(prediction_length=6).fit(series)
    forecast = forecaster.predict()
    assert forecast["ds"].dtype == pd.PeriodDtype("M")
    assert forecast["ds"].tolist() == [*pd.period_range("2020-01", periods=6, freq="M")]
    checked = forecaster.cross_validate(series, windows=2)
    assert checked["cutoff"].unique().tolist() == [pd.Period("2018-12", "M"), pd.Period("2019-06", "M")]
    assert forecaster.plot(checked, history=series).axes
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(), forecast)
    # time stamps in, time stamps out; periods in a column count, too
    stamps = again.predict(series.set_axis(months.to_timestamp()))
    assert stamps["ds"].tolist() == [*forecast["ds"].dt.to_timestamp()]
    long = pd.DataFrame({"unique_id": "x", "ds": months, "y": wave})
    assert next(naive(prediction_length=2).predict_batches(long))["ds"].dtype == pd.PeriodDtype("M")


def test_a_table_of_arrow_comes_back_as_one(expected: pd.DataFrame) -> None:
    pa = pytest.importorskip("pyarrow")
    forecast = naive().predict(pa.Table.from_pandas(FRAME))
    assert isinstance(forecast, pa.Table)
    pd.testing.assert_frame_equal(forecast.to_pandas(), expected, check_dtype=False)


def test_frames_of_polars_come_back_as_such_lazy_or_not(expected: pd.DataFrame, tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.from_pandas(FRAME)
    for given in (frame, frame.lazy(), frame.with_columns(pl.col("unique_id").cast(pl.Categorical))):
        forecast = naive().predict(given)
        assert isinstance(forecast, pl.DataFrame)
        pd.testing.assert_frame_equal(forecast.to_pandas(), expected, check_dtype=False)
    fitted = naive().fit(frame.lazy())
    forecast = fitted.predict()
    assert isinstance(forecast, pl.DataFrame)
    assert isinstance(fitted.cross_validate(frame, windows=1), pl.DataFrame)
    assert fitted.plot(forecast).axes
    fitted.save(tmp_path / "model")
    assert tsattn.load(tmp_path / "model").predict().equals(forecast)
    with_sky = pl.from_pandas(FRAME.assign(sky=np.where(FRAME["y"] > 5, "sun", "rain")))
    options = {**SMALL, "max_steps": 2, "future_covariates": ["sky"]}
    of_polars = Forecaster(**options).fit(with_sky[:-T].lazy())
    known = with_sky[-T:].select("unique_id", "ds", "sky").filter(pl.col("unique_id") == "b")
    only = of_polars.predict(with_sky[:-T].filter(pl.col("unique_id") == "b"), future=known.lazy())
    assert only.height == T


def test_dates_come_back_as_dates(tmp_path: Path) -> None:
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    days = frame_of({"a": 90, "b": 80})
    days["ds"] = pd.Timestamp("2024") + pd.to_timedelta(days.groupby("unique_id").cumcount(), "D")
    dated = pl.from_pandas(days).with_columns(pl.col("ds").cast(pl.Date))
    fitted = naive().fit(dated)
    fitted.save(tmp_path / "model")
    for forecast in (fitted.predict(), fitted.predict(dated.lazy()), tsattn.load(tmp_path / "model").predict()):
        assert forecast.schema["ds"] == pl.Date
    assert pa.types.is_date(fitted.predict(dated.to_arrow()).schema.field("ds").type)
    times = fitted.cross_validate(dated, windows=1).schema
    assert pl.Datetime not in {kind.base_type() for kind in times.values()}
    assert naive().predict(dated.with_columns(pl.col("ds").cast(pl.Datetime))).schema["ds"] != pl.Date


def test_a_lazy_frame_is_computed_of_the_columns_that_are_named() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.from_pandas(FRAME).with_columns(bad=pl.lit([1.0]))
    lazy = frame.lazy().with_columns(pl.col("bad").map_batches(lambda column: 1 / 0, return_dtype=pl.Float64))
    assert len(naive(target="y").predict(lazy)) == len(naive().predict(lazy))
    wide = pl.from_pandas(FRAME.query("unique_id == 'a'").drop(columns="unique_id"))
    fitted = naive().fit(wide)
    assert fitted.predict(wide.with_columns(other=1.0).lazy()).equals(fitted.predict())  # not a target of the training
    with pytest.raises(UserError, match=r"has no target column yy \(did you mean y\?\)"):
        naive(target="yy").predict(lazy)

    def fail(frame: Any) -> Any:
        raise AssertionError("computed")

    schema = {"unique_id": pl.String, "ds": pl.Datetime, "y": pl.Float64}
    lazy = pl.LazyFrame(schema=schema).map_batches(fail, schema=schema)
    with pytest.raises(UserError, match=r"the frame cannot be computed: .*computed"):
        naive().predict(lazy)


def test_monthly_weekdays_with_gaps_are_read_again() -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2001", periods=160, freq="WOM-2TUE"), "y": np.arange(160.0)})
    fitted = naive().fit(frame.drop(index=[20, 21, 50]))
    assert fitted.predict(frame).equals(fitted.predict())


TINY: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2, "patch_len": 4, "stride": 4}
SIZES: dict[str, Any] = {"context_length": 12, "prediction_length": 6, "max_steps": 3, "accelerator": "cpu"}
COLUMNS: dict[str, Any] = {"target": ["y", "z"], **ROLES}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return full_frame()


def test_fits_forecasts_and_scores_are_the_same(frame: pd.DataFrame, tmp_path: Path) -> None:
    folder, quantiles = tmp_path / "sales", [0.1, 0.5, 0.9]
    assert converted(saved(frame, tmp_path / "t.parquet"), folder, **COLUMNS).is_mapped
    one = Forecaster(TINY, quantiles=quantiles, **SIZES, **COLUMNS).fit(frame)
    other = Forecaster(TINY, quantiles=quantiles, **SIZES).fit(folder)  # whose columns need not be named
    assert other.series.panel.is_mapped
    expected = one.predict()
    for forecast in (other.predict(), one.predict(folder), other.predict(frame)):
        pd.testing.assert_frame_equal(forecast, expected)
    future = frame[frame["p"].eq(3.0)][["unique_id", "ds", "f", "g"]]
    future = future.assign(f=future["f"] + 1)
    changed = one.predict(future=future)
    assert not changed["predictions"].equals(expected["predictions"])
    pd.testing.assert_frame_equal(other.predict(future=future), changed)
    pd.testing.assert_frame_equal(other.predict(folder, future=future), changed)
    other.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(), expected)
    later = frame.assign(ds=frame["ds"] + pd.Timedelta(200, "h"))
    converted(saved(later, tmp_path / "later.parquet"), tmp_path / "later", **COLUMNS)
    for table in (later, tmp_path / "later"):
        by = {"by": "series", "step": 7}
        pd.testing.assert_frame_equal(other.evaluate(table, **by), one.evaluate(later, **by), rtol=1e-6)
    with pytest.raises(UserError, match="there is nothing to score"):
        other.evaluate(folder)


BERLIN, TOKYO = "Europe/Berlin", "Asia/Tokyo"


def in_zone(frame: pd.DataFrame, zone: str | None) -> pd.DataFrame:
    """The same instants; with None, without a zone."""
    return frame.assign(ds=frame["ds"].dt.tz_convert(zone) if zone else frame["ds"].dt.tz_localize(None))


@pytest.fixture(scope="module")
def local() -> pd.DataFrame:
    frame = frame_of()
    return frame.assign(ds=frame["ds"].dt.tz_localize(BERLIN))


@pytest.fixture(scope="module")
def run(local: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zones")
    local.to_parquet(folder / "local.parquet", index=False)
    sizes = {"context_length": L, "prediction_length": T}
    small = {"d_model": 16, "num_heads": 2, "num_layers": 1, "calendar": True}
    content = {
        "data": {"class_path": "CSVDataModule", "init_args": {"path": str(folder / "local.parquet"), **sizes}},
        "model": {"backbone": {"kind": "transformer", **small}, "learning_rate": 0.01},
        "trainer": {"max_steps": 10, "accelerator": "cpu"},
    }
    tsattn.run(content, folder / "run")
    return folder / "run"


def values(forecast: pd.DataFrame) -> NDArray[np.float64]:
    return forecast["predictions"].to_numpy(np.float64)


def test_instants_in_another_zone_have_the_same_forecasts(run: Path, local: pd.DataFrame, tmp_path: Path) -> None:
    loaded = tsattn.load(run)
    expected, other = loaded.predict(local), loaded.predict(in_zone(local, TOKYO))
    np.testing.assert_array_equal(values(other), values(expected))
    assert (other["ds"] == expected["ds"]).all()
    assert str(other["ds"].dt.tz) == BERLIN
    by_the_same_clock = local.assign(ds=local["ds"].dt.tz_localize(None).dt.tz_localize(TOKYO))
    assert not np.allclose(values(loaded.predict(by_the_same_clock)), values(expected)), "the hour of the day counts"
    loaded.save(tmp_path / "model")
    saved = tsattn.load(tmp_path / "model")
    np.testing.assert_array_equal(values(saved.predict(in_zone(local, TOKYO))), values(expected))


def test_days_of_another_zone_are_no_days_of_this_one(local: pd.DataFrame) -> None:
    rows = local.groupby("unique_id").cumcount()
    days = local.assign(ds=pd.date_range("2023-06-01", periods=rows.max() + 1, tz=BERLIN)[rows.to_numpy()])
    naive = Forecaster("seasonal_naive", prediction_length=T).fit(days)
    utc = days.assign(ds=days["ds"].dt.tz_localize(None).dt.tz_localize("UTC"))
    with pytest.raises(
        UserError, match=r"days that begin at midnight in UTC, but .* is in Europe/Berlin, where this is no"
    ):
        naive.predict(utc)
    instants = naive.predict(days.assign(ds=days["ds"].dt.tz_convert("UTC")))
    pd.testing.assert_frame_equal(instants, naive.predict(days))


def test_zones_without_a_name_that_leads_back_to_them_are_taken(local: pd.DataFrame) -> None:
    frame = local.assign(ds=local["ds"].dt.tz_convert(dateutil.tz.tzoffset(None, 7200)))
    fitted = Forecaster("seasonal_naive", prediction_length=T).fit(frame)
    forecast = fitted.predict()
    assert (fitted.predict(frame)["ds"] == forecast["ds"]).all()
    assert (fitted.predict(local)["ds"] == forecast["ds"]).all()


def test_a_model_whose_zone_was_not_kept_takes_stamps_as_they_are_and_says_so(
    run: Path, local: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = tsattn.load(run)
    loaded.save(tmp_path / "model")
    task = json.loads((tmp_path / "model" / "forecaster.json").read_text())["task"]
    assert task["time_zone"] == BERLIN
    set_in_json(tmp_path / "model", task={**task, "time_zone": UNKNOWN_ZONE})
    old = tsattn.load(tmp_path / "model")
    with caplog.at_level(logging.WARNING, "tsattn"):
        forecast = old.predict(in_zone(local, "UTC"))
    says = [one.getMessage() for one in caplog.records if "zone of the saved model is unknown" in one.getMessage()]
    assert len(says) == 1
    assert says[0].endswith("time stamps are read in their own time zone, UTC, as if it were the same")
    assert str(forecast["ds"].dt.tz) == "UTC"
    np.testing.assert_array_equal(values(old.predict(local)), values(loaded.predict(local)))


def test_a_task_agrees_with_one_whose_zone_is_not_known() -> None:
    sizes: dict[str, Any] = {"data": "mine", "context_length": 8, "prediction_length": 2, "channels": ("y",)}
    berlin, tokyo, unknown = (
        Task(**sizes, frequency="h", season_length=24, time_zone=zone) for zone in (BERLIN, TOKYO, UNKNOWN_ZONE)
    )
    assert berlin.agrees_with(unknown)
    assert unknown.agrees_with(berlin)
    assert not berlin.agrees_with(tokyo)
    assert not unknown.agrees_with(Task(**sizes, frequency="D", season_length=24, time_zone=BERLIN))
    assert Task.from_dict(berlin.to_dict()) == berlin
