"""A split that is given, and the context where nobody names one."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, T, frame_of
from tsattn import load
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.forecaster.fitting import CONTEXTS

QUICK = {**SMALL, "max_steps": 5}
TEST = 30
FRAME_LENGTHS = {"a": 200, "b": 160, "tiny": 20}
WAYS: dict[str, dict[str, Any]] = {
    "fractions": {"data": {"train_fraction": 0.7, "val_fraction": 0.15}},
    "rows": {"val_rows": 20, "test_rows": TEST},
    "dates": {"data": {"val_from": "2024-01-06", "test_from": "2024-01-07"}},
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


def test_a_series_that_was_not_trained_on_is_new() -> None:
    """It has rows for testing alone, so that it is scored after its first context, on a scale of its own."""
    frame = frame_of(FRAME_LENGTHS)
    forecaster = Forecaster(**QUICK, **WAYS["rows"]).fit(frame)
    assert sorted(forecaster.series.trained_until) == ["a", "b"]
    scores = forecaster.evaluate(frame[frame["unique_id"] == "tiny"])
    assert scores["windows"].eq(1).all()
    assert np.isfinite(scores["MAE"]).all()


def test_series_that_ended_long_before_a_split_do_not_hinder_the_ridge_of_the_others() -> None:
    parts = [frame_of({f"old{number}": 500}) for number in range(3)]
    new = frame_of({"new": 80}).assign(ds=lambda rows: rows["ds"] + pd.Timedelta(480, "h"))
    day = {"val_from": "2024-01-22 12:00", "test_from": "2024-01-23 06:00"}
    for context in (24, "auto"):
        ridge = Forecaster("ridge", context_length=context, prediction_length=7, data=day).fit(pd.concat([*parts, new]))
        assert ridge.task.context_length <= 36


def test_by_default_no_row_is_left_out_and_nothing_can_be_tested() -> None:
    frame = frame_of({"a": 200})
    forecaster = Forecaster(**QUICK).fit(frame)
    assert not forecaster.result.tables
    with pytest.raises(
        UserError, match=r"there is nothing to score: .*hold rows out \(val_rows=\.\.\., test_rows=\.\.\.\)"
    ):
        forecaster.evaluate(frame)


def test_after_a_refit_there_is_nothing_to_score(tmp_path: Path) -> None:
    frame = frame_of({"a": 200, "b": 160})
    options = {**SMALL, "max_steps": 4, "training": {"trainer": {"val_check_interval": 2}}, **WAYS["rows"]}
    forecaster = Forecaster(**options).fit(frame, refit=True)
    assert forecaster.fitted is forecaster.result.refitted
    # its scale is that of all rows
    means = [frame.loc[frame["unique_id"] == name, "y"].mean() for name in "ab"]
    np.testing.assert_allclose(np.ravel(forecaster.scaler.series_mean), means, rtol=1e-6)
    forecaster.save(tmp_path / "model")
    for one in (forecaster, tsattn.load(tmp_path / "model")):
        with pytest.raises(UserError, match="there is nothing to score"):
            one.evaluate(frame)


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


TINY = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1}


def seasonal(rows: int, season: int, seed: int = 0) -> pd.DataFrame:
    """A noisy series that repeats a random season."""
    generator = np.random.default_rng(seed)
    pattern = generator.normal(size=season)
    values = np.tile(pattern, rows // season + 1)[:rows] + 0.3 * generator.normal(size=rows)
    return pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=rows, freq="h"), "y": values})


def test_it_is_the_context_of_the_best_ridge_on_validation() -> None:
    frame = seasonal(900, 70)
    chosen = Forecaster(TINY, prediction_length=6, max_steps=1).fit(frame).task.context_length
    errors = {}
    for length in (24, 48, 96, 192):  # at most a quarter of 810 rows for training
        for penalty in (1.0, 10.0, 100.0, 1000.0):
            ridge = Forecaster({"kind": "ridge", "penalty": penalty}, context_length=length, prediction_length=6)
            result = ridge.fit(frame).result
            errors[length, penalty] = result.fit["validation_error"]
    assert chosen == min(errors, key=lambda pair: errors[pair])[0]
    assert chosen > 70  # less does not hold a season


def test_short_series_have_the_shortest_and_too_short_ones_are_refused() -> None:
    forecaster = Forecaster(TINY, prediction_length=4, max_steps=1)
    assert forecaster.fit(seasonal(90, 7)).task.context_length == CONTEXTS[0]
    with pytest.raises(UserError, match="24 "):
        forecaster.fit(seasonal(26, 7))


def test_of_several_series_the_usual_length_bounds_it() -> None:
    long = seasonal(2000, 70).assign(unique_id="long")
    short = [seasonal(200, 70, seed=seed).assign(unique_id=f"short {seed}") for seed in (1, 2)]
    alone = Forecaster(TINY, prediction_length=6, max_steps=1).fit(long).task.context_length
    together = Forecaster(TINY, prediction_length=6, max_steps=1)
    assert alone > together.fit(pd.concat([long, *short], ignore_index=True)).task.context_length <= 180 / 4


def test_it_is_saved_and_loaded_and_chosen_anew_for_other_series(tmp_path: Path) -> None:
    frame = seasonal(900, 70)
    forecaster = Forecaster(TINY, prediction_length=6, max_steps=1).fit(frame)
    forecaster.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert loaded.arguments["context_length"] == "auto"
    assert loaded.task.context_length == forecaster.task.context_length
    pd.testing.assert_frame_equal(loaded.predict(), forecaster.predict())
    folds = forecaster.cross_validate(frame.iloc[:130], windows=1)
    assert len(folds) == 6


@pytest.mark.parametrize(("rows", "horizon"), [(200, 96), (361, 336), (767, 336)])
def test_a_horizon_that_is_long_for_the_series_leaves_a_context_that_fits(rows: int, horizon: int) -> None:
    """With rows for validation and without, where the horizon leaves less than a quarter of the rows for a context."""
    forecaster = Forecaster(TINY, prediction_length=horizon, max_steps=1, quantiles=None).fit(seasonal(rows, 7))
    assert forecaster.task.context_length + horizon <= forecaster.result.data.splits[0].train_end
