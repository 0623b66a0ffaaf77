"""A split that is given: what is for testing is never trained on, and is what `evaluate` scores."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, T, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

QUICK = {**SMALL, "max_steps": 5}
TEST = 30
FRAME_LENGTHS = {"a": 200, "b": 160, "tiny": 20}
WAYS: dict[str, dict[str, Any]] = {
    "fractions": {"train_fraction": 0.7, "val_fraction": 0.15},
    "rows": {"val_rows": 20, "test_rows": TEST},
    "dates": {"val_from": "2024-01-06", "test_from": "2024-01-07"},
}


def first_test_rows(way: str, frame: pd.DataFrame) -> dict[str, int]:
    """For each series the first row for testing, found by hand."""
    rows = frame.groupby("unique_id")["ds"]
    if way == "dates":
        return rows.apply(lambda stamps: int((stamps < "2024-01-07").sum())).to_dict()
    if way == "rows":
        return rows.size().sub(TEST).clip(lower=0).to_dict()
    return rows.size().map(lambda count: int(0.7 * count) + int(0.15 * count)).to_dict()


@pytest.mark.parametrize("way", WAYS)
def test_rows_for_testing_change_no_weight_and_are_the_ones_that_are_scored(way: str) -> None:
    frame = frame_of({"a": 200, "b": 160})
    first = first_test_rows(way, frame)
    forecaster = Forecaster(**QUICK, **WAYS[way]).fit(frame)
    spoilt = frame.copy()
    is_test = spoilt.groupby("unique_id").cumcount() >= spoilt["unique_id"].map(first)
    spoilt.loc[is_test, "y"] = 100 * spoilt.loc[is_test, "y"] - 7
    other = Forecaster(**QUICK, **WAYS[way]).fit(spoilt)
    history = frame_of({"new": 100})
    pd.testing.assert_frame_equal(forecaster.predict(history), other.predict(history), check_exact=True)
    lengths = frame.groupby("unique_id").size()
    windows = sum(max(0, lengths[name] - first[name] - T + 1) for name in lengths.index)
    scores = forecaster.evaluate(frame)
    assert scores["windows"].eq(windows).all()
    # the same windows as the test of the run, with the same errors
    tested = forecaster.result.scores
    for name, of_run in (("MSE", "mse_original"), ("CRPS", "crps_original"), ("MASE", "mase")):
        expected = tested.loc["patchtst_standard", f"{of_run}_by_channel"]
        assert scores.loc["patchtst_standard", name] == pytest.approx(expected, rel=1e-5)


def test_cross_validation_trains_on_all_rows_before_an_origin_whatever_the_split() -> None:
    frame, sizes = frame_of({"a": 200}), {"context_length": 24, "prediction_length": T}
    one, other = (Forecaster("ridge", **sizes, **way).cross_validate(frame, windows=2) for way in ({}, WAYS["rows"]))
    pd.testing.assert_frame_equal(one, other)


def test_what_was_trained_on_is_known_of_a_saved_model(tmp_path: Path) -> None:
    frame = frame_of(FRAME_LENGTHS)
    forecaster = Forecaster(**QUICK, **WAYS["rows"]).fit(frame)
    forecaster.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.evaluate(frame), forecaster.evaluate(frame), rtol=1e-5)
    pd.testing.assert_frame_equal(loaded.predict(), forecaster.predict())
    more = frame_of(FRAME_LENGTHS, more=15)
    pd.testing.assert_frame_equal(loaded.evaluate(more), forecaster.evaluate(more), rtol=1e-5)


def test_a_series_that_was_not_trained_on_is_new() -> None:
    """It has rows for testing alone, so that it is scored after its first context, on a scale of its own."""
    frame = frame_of(FRAME_LENGTHS)
    forecaster = Forecaster(**QUICK, **WAYS["rows"]).fit(frame)
    assert sorted(forecaster.series.trained_until) == ["a", "b"]
    scores = forecaster.evaluate(frame[frame["unique_id"] == "tiny"])
    assert scores["windows"].eq(1).all()
    assert np.isfinite(scores["MAE"]).all()


def test_by_default_no_row_is_left_out_and_nothing_can_be_tested() -> None:
    frame = frame_of({"a": 200})
    forecaster = Forecaster(**QUICK).fit(frame)
    assert not forecaster.result.tables
    with pytest.raises(
        UserError, match=r"there is nothing to score: .*keep some from the fit \(val_rows=\.\.\., test_rows=\.\.\.\)"
    ):
        forecaster.evaluate(frame)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"val_rows": 20}, "a split needs both val_rows and test_rows"),
        ({"val_rows": -1, "test_rows": 5}, "val_rows must be at least 0, not -1"),
        ({**WAYS["rows"], **WAYS["dates"]}, "data is split in one way"),
        ({"val_from": "soon", "test_from": "later"}, "is not a date"),
        (
            {"val_from": "300", "test_from": "350"},
            "'300' is not a date; .*, or split data that count steps by val_rows",
        ),
    ],
)
def test_a_split_that_is_none_is_refused_before_any_data(split: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**QUICK, **split)


def test_a_refit_is_of_all_rows_at_the_length_that_validation_chose(tmp_path: Path) -> None:
    frame = frame_of({"a": 200, "b": 160})
    options = {**SMALL, "max_steps": 12, "trainer": {"val_check_interval": 4}, **WAYS["rows"]}
    plain = Forecaster(**options).fit(frame)
    forecaster = Forecaster(**options).fit(frame, refit=True)
    assert forecaster.fitted is forecaster.result.refitted
    weights = [one.predictor.state_dict() for one in (forecaster.result.fitted, plain.result.fitted)]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not forecaster.predict()["predictions"].equals(plain.predict()["predictions"])
    # its scale is that of all rows
    means = [frame.loc[frame["unique_id"] == name, "y"].mean() for name in "ab"]
    np.testing.assert_allclose(np.ravel(forecaster.scaler.series_mean), means, rtol=1e-6)
    with pytest.raises(UserError, match="there is nothing to score"):
        forecaster.evaluate(frame)
    forecaster.save(tmp_path / "model")
    with pytest.raises(UserError, match="there is nothing to score"):
        tsattn.load(tmp_path / "model").evaluate(frame)


def test_dates_may_be_objects() -> None:
    texts = {"val_from": "2024-01-06", "test_from": "2024-01-07"}
    written = Forecaster(**QUICK, **texts)
    for made in (pd.Timestamp, date.fromisoformat, datetime.fromisoformat):
        given = Forecaster(**QUICK, **{name: made(text) for name, text in texts.items()})
        fitted, expected = (one.fit(frame_of({"a": 200})) for one in (given, written))
        assert fitted.result.data.splits == expected.result.data.splits


@pytest.mark.parametrize(
    ("given", "trained", "backbone"),
    [({}, 200, "ridge"), ({"test_rows": 0}, 200, "patchtst"), ({"test_rows": 20}, 180, "ridge")],
)
def test_without_rows_for_validation_all_are_trained_on(
    given: dict[str, Any], trained: int, backbone: str, caplog: pytest.LogCaptureFixture
) -> None:
    days = pd.date_range("2024-01-01", periods=200)
    frame = pd.DataFrame({"ds": days, "x": np.sin(np.arange(200))})
    sizes = {"context_length": 12, "prediction_length": 4, "max_steps": 2, "quantiles": None}
    fitted = Forecaster(backbone, val_rows=0, **given, **sizes).fit(frame)
    assert "val_rows is 0: all rows" in caplog.text
    assert fitted.fitted.scaler.mean == pytest.approx([frame["x"][:trained].mean()])
    assert [*fitted.series.trained_until.values()] == [days[trained - 1]]
    assert fitted.predict()["ds"].tolist() == [*pd.date_range("2024-07-19", periods=4)]
