"""Frames of every kind come in, and forecasts of that kind come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, T, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

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
    forecaster = Forecaster(
        {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2},
        **{"context_length": 24, "prediction_length": 6, "quantiles": None, "max_steps": 2, "accelerator": "cpu"},
    ).fit(series)
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
    column = naive(prediction_length=2).predict(long)
    assert column["ds"].tolist() == [pd.Period("2020-01", "M"), pd.Period("2020-02", "M")]
    assert next(naive(prediction_length=2).predict_batches(long))["ds"].dtype == pd.PeriodDtype("M")


@pytest.mark.parametrize("long", [False, True])
def test_time_may_be_the_index_or_a_column(long: bool, expected: pd.DataFrame) -> None:
    if long:
        pd.testing.assert_frame_equal(naive().predict(FRAME.set_index("ds")), expected)
        pd.testing.assert_frame_equal(naive().predict(FRAME.set_index(["unique_id", "ds"])), expected)
        steps = FRAME.assign(ds=FRAME.groupby("unique_id").cumcount())
        assert naive(frequency=1).predict(steps)["ds"].tolist() == [*range(100, 100 + T), *range(80, 80 + T)]
    else:
        wide = FRAME.pivot_table(index="ds", columns="unique_id", values="y")
        one = naive().predict(wide)
        pd.testing.assert_frame_equal(one, naive().predict(wide.reset_index()))
        numbered = naive().predict(wide.set_axis(np.arange(7, 107)))
        assert numbered["ds"].tolist()[:T] == [*range(107, 107 + T)]


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
    fitted = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame.lazy())
    forecast = fitted.predict()
    assert isinstance(forecast, pl.DataFrame)
    assert isinstance(fitted.cross_validate(frame, windows=1), pl.DataFrame)
    assert fitted.plot(forecast).axes
    fitted.save(tmp_path / "model")
    assert tsattn.load(tmp_path / "model").predict().equals(forecast)
    with_sky = FRAME.assign(sky=np.where(FRAME["y"] > 5, "sun", "rain"))
    options = {**SMALL, "max_steps": 2, "future_covariates": ["sky"]}
    of_polars = Forecaster(**options).fit(pl.from_pandas(with_sky)[:-T].lazy())
    known = pl.from_pandas(with_sky)[-T:].select("unique_id", "ds", "sky").filter(pl.col("unique_id") == "b")
    only = of_polars.predict(pl.from_pandas(with_sky)[:-T].filter(pl.col("unique_id") == "b"), future=known.lazy())
    assert only.height == T


def test_dates_come_back_as_dates(tmp_path: Path) -> None:
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    days = frame_of({"a": 90, "b": 80})
    days["ds"] = pd.Timestamp("2024") + pd.to_timedelta(days.groupby("unique_id").cumcount(), "D")
    dated = pl.from_pandas(days).with_columns(pl.col("ds").cast(pl.Date))
    fitted = Forecaster(**{**SMALL, "max_steps": 2}).fit(dated)
    fitted.save(tmp_path / "model")
    for forecast in (fitted.predict(), fitted.predict(dated.lazy()), tsattn.load(tmp_path / "model").predict()):
        assert forecast.schema["ds"] == pl.Date
    table = fitted.predict(dated.to_arrow())
    assert pa.types.is_date(table.schema.field("ds").type)
    assert fitted.plot(fitted.predict()).axes
    times = fitted.cross_validate(dated, windows=1).schema
    assert {name: kind for name, kind in times.items() if kind in (pl.Date, pl.Datetime)}.keys() >= {"ds"}
    assert pl.Datetime not in {kind.base_type() for kind in times.values()}
    assert naive().predict(dated.with_columns(pl.col("ds").cast(pl.Datetime))).schema["ds"] != pl.Date


def test_the_columns_of_a_lazy_frame_are_checked_before_it_is_computed() -> None:
    pl = pytest.importorskip("polars")

    def fail(frame: Any) -> Any:
        raise AssertionError("computed")

    schema = {"unique_id": pl.String, "ds": pl.Datetime, "y": pl.Float64, "z": pl.List(pl.Float64)}
    lazy = pl.LazyFrame(schema=schema).map_batches(fail, schema=schema)
    for options, message in (
        ({"target": "demand"}, "the frame has no target column demand; its columns are unique_id, ds, y, z"),
        ({"future_covariates": ["price"]}, "the frame has no future covariate column price"),
        ({"target": "z"}, r"column z of the frame holds List\(Float64\), not single values"),
        ({"time_column": "when"}, "the frame has no time column when"),
    ):
        with pytest.raises(UserError, match=message):
            naive(**options).predict(lazy)
    with pytest.raises(UserError, match=r"the frame cannot be computed: .*computed"):
        naive().predict(lazy)


def test_a_library_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from tsattn.forecaster.frames import FrameKind

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="the series were frames of polars, which is not installed here"):
        FrameKind("polars").give(pd.DataFrame({"a": [1]}))


def test_periods_beside_a_column_of_time_are_not_the_time() -> None:
    months = pd.period_range("2020-01", periods=len(FRAME), freq="M")
    forecast = naive().predict(FRAME.set_axis(months))
    pd.testing.assert_frame_equal(forecast, naive().predict(FRAME))
