"""Mistakes that users found: forecasts that were silently wrong, and models that were lost."""

from pathlib import Path
from typing import Any

import dateutil.tz
import numpy as np
import pandas as pd
import pytest

from tsattn import Forecaster, UserError, load
from tsattn.experiments import running

POINTS: dict[str, Any] = {"prediction_length": 4, "context_length": 8, "quantiles": None}


def frame_of(values: Any, name: Any = "a", **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"unique_id": name, "ds": pd.date_range("2024-01-01", periods=len(values)), "y": values, **columns}
    )


def noise(*ids: Any, rows: int = 100) -> pd.DataFrame:
    made = np.random.default_rng(1).normal(size=(len(ids), rows)) * np.arange(1, len(ids) + 1)[:, None] ** 2
    return pd.concat([frame_of(values, name) for name, values in zip(ids, made, strict=True)])


def test_a_calibrated_model_is_refitted_on_all_rows_too() -> None:
    frame = frame_of(np.r_[np.tile([1.0, 5.0], 90), np.tile([1.0, 1.0, 5.0, 5.0], 10)])
    how = {**POINTS, "val_rows": 20, "test_rows": 20}
    early, late = (Forecaster("ridge", **how).fit(frame, refit=one).predict()["predictions"] for one in (False, True))
    calibrated = Forecaster("ridge", **how, calibrate=True).fit(frame, refit=True)
    np.testing.assert_allclose(calibrated.predict()["predictions"], late, atol=0.01)
    assert abs(early - late).max() > 1


def test_a_refit_learns_categories_of_later_rows() -> None:
    model = Forecaster("patchtst", **POINTS, past_covariates=["kind"], max_steps=1)
    model.fit(frame_of(np.arange(120) % 7.0, kind=["x", "y"] * 56 + ["z"] * 8), refit=True)
    assert model.task.covariate_categories == (("x", "y", "z"),)


def test_a_frame_that_changes_later_changes_no_fitted_forecaster() -> None:
    frame = noise("a")
    model = Forecaster("ridge", **POINTS).fit(frame)
    before = model.predict()
    frame.loc[95:, "y"] = 500.0
    pd.testing.assert_frame_equal(model.predict(), before)


@pytest.mark.parametrize(("first", "then", "rescale"), [("ab", "bc", True), ((1, 2), ("1", "2", "3"), False)])
def test_what_was_trained_further_is_saved_and_loaded(first: Any, then: Any, rescale: bool, tmp_path: Path) -> None:
    model = Forecaster("dlinear", **POINTS, max_steps=2).fit(noise(*first))
    model.fine_tune(noise(*then), rescale=rescale).save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(), model.predict())


def test_a_zone_without_a_name_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    frame = noise("a")
    model = Forecaster("ridge", **POINTS).fit(
        frame.assign(ds=frame["ds"].dt.tz_localize(dateutil.tz.tzoffset("X", 7200)))
    )
    with pytest.raises(UserError, match=r"the time zone tzoffset.* has no name to save it by: give the model times in"):
        model.save(tmp_path / "model")
    assert not [*tmp_path.iterdir()]


def test_rolling_forecasts_are_calibrated_without_a_level() -> None:
    model = Forecaster("tiny", context_length=60, prediction_length=3, calibrate=True)
    rolled = model.cross_validate(noise("a"), windows=1)["0.9"]
    pd.testing.assert_series_equal(rolled, model.fit(noise("a")[:-3]).predict()["0.9"])


def test_a_second_model_that_calibrates_starts_from_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a further training have seen the windows that calibrate."""
    starts, fit = list[Any](), running.fitted_again
    monkeypatch.setattr(running, "fitted_again", lambda *given: starts.append(given[2].start) or fit(*given))
    model = Forecaster("dlinear", prediction_length=4, context_length=8, calibrate=True, max_steps=1)
    model.fit(noise("a", rows=40)).fine_tune(noise("a", rows=40))
    assert starts == [None, None]


def test_a_test_part_without_a_value_is_refused_before_the_training() -> None:
    frame = frame_of(np.r_[np.ones(90), np.full(10, np.nan)])
    with pytest.raises(UserError, match="all target values of the test part are missing: choose another split"):
        Forecaster("patchtst", **POINTS, val_rows=10, test_rows=10, max_steps=10**9).fit(frame)


def test_a_ridge_of_an_exact_pattern_needs_no_penalty() -> None:
    model = Forecaster({"kind": "ridge", "penalty": 1e-6}, **POINTS, val_rows=60, test_rows=0)
    forecast = model.fit(frame_of(np.tile([1.0, 5.0], 150))).predict()["predictions"]
    np.testing.assert_allclose(forecast, [1, 5, 1, 5], atol=1e-4)


def test_calibrated_intervals_belong_to_their_series_if_ids_come_as_text() -> None:
    frame = noise(1.5, 2.0, 3.0, rows=500)
    model = Forecaster("ridge", prediction_length=3, context_length=8, calibrate=True, val_rows=140, test_rows=0).fit(
        frame
    )
    as_text = frame.assign(unique_id=frame["unique_id"].map({1.5: "1.5", 2.0: "2", 3.0: "3"}))
    numbers, texts = (model.predict(one, level=80).drop(columns="unique_id") for one in (frame, as_text))
    pd.testing.assert_frame_equal(numbers, texts)
