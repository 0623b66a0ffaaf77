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
from tsattn.forecasting import Forecaster

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
    assert f.predict(df, horizon=6).equals(
        f.predict(df).groupby("unique_id", sort=False).head(6).reset_index(drop=True)
    )
    assert len(f.cross_validate(df, windows=2)) == 2 * len(fc)
    assert f.evaluate(frame_of(more=30)).loc["patchtst_mlr", "windows"] == 4 * (30 - T + 1)
    assert isinstance(f.plot(fc, ids=["large"]), Figure)
    f.save(tmp_path / "model_dir")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model_dir").predict(), fc)


def test_the_forecast_goes_on_behind_each_series_in_its_units(fitted: Forecaster) -> None:
    forecast = fitted.predict()
    assert forecast.columns.tolist() == ["unique_id", "ds", "predictions", "0.1", "0.5", "0.9"]
    assert forecast["unique_id"].drop_duplicates().tolist() == list(LENGTHS), "the order of the frame"
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
    assert scores.loc["patchtst_mlr", "mase"] < scores.loc["persistence", "mase"] / 2
    assert 0.5 < scores.loc["patchtst_mlr", "coverage_80"] < 1


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
    expected = ["unique_id", "ds"] if wide else ["item_id", "timestamp"]
    assert forecast.columns.tolist() == [*expected, "predictions"]
    assert forecast[expected[0]].drop_duplicates().tolist() == (["a", "b"] if wide else [7, 3])
    first = forecast[expected[1]].iloc[0]
    assert first == stamps[-1] + pd.Timedelta(hours=1)
    assert str(first.tz) == "Europe/Berlin"


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
    with pytest.warns(UserWarning, match="horizon 24"), pytest.raises(UserError) as caught:
        shops.predict(horizon=24)
    message = str(caught.value)
    assert "promotion stops early" in message
    assert "north" in message
    assert "step 21 of the 24" in message


def test_an_unknown_category_and_a_missing_column_are_refused(shops: Forecaster) -> None:
    frame = promotions(100)
    with pytest.raises(UserError, match=r"category w was not seen in training; valid are n, s"):
        shops.predict(frame.assign(region="w"), future=None)
    with pytest.raises(UserError, match="no static column region"):
        shops.predict(frame.drop(columns="region"))


def test_a_column_that_nobody_named_is_said_to_be_unused(fitted: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    fitted.predict(frame_of().assign(weather=1.0))
    assert "columns weather are not used" in caplog.text


# cross-validation and evaluation


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
    new = frame_of(more=T)
    scores = fitted.evaluate(new)
    forecast = fitted.predict()
    error = forecast["predictions"] - new["y"]
    row = scores.loc["patchtst_mlr"]
    assert row["windows"] == 4
    assert row["mse"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert row["mae"] == pytest.approx(error.abs().mean(), rel=1e-5)
    assert row["wape"] == pytest.approx(error.abs().sum() / new["y"].abs().sum(), rel=1e-5)
    inside = (forecast["0.1"] <= new["y"]) & (new["y"] <= forecast["0.9"])
    assert row["coverage_80"] == pytest.approx(inside.mean())
    history = frame_of()
    scale = history.groupby("unique_id", sort=False)["y"].apply(lambda y: (y - y.shift(24)).abs().mean())
    assert row["mase"] == pytest.approx((error.abs() / new["unique_id"].map(scale)).mean(), rel=1e-5)
    persistence = new["y"] - new["unique_id"].map(history.groupby("unique_id")["y"].last())
    assert scores.loc["persistence", "mae"] == pytest.approx(persistence.abs().mean(), rel=1e-5)


def test_strangers_are_scored_behind_their_first_context(fitted: Forecaster) -> None:
    scores = fitted.evaluate(frame_of({"stranger": 100}, seed=5), step=10)
    assert scores["windows"].tolist() == [len(range(L, 100 - T + 1, 10))] * 3


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
        (lambda folder: set_in_json(folder, version=99), "is of format 99; this version of tsattn reads format 1"),
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
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
    with pytest.raises(UserError, match="no forecast of nobody; valid are small, large"):
        fitted.plot(fitted.predict(), ids=["nobody"])


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
    with pytest.raises(UserError, match="give a frame"):
        forecaster.predict()


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "frequency", "options"),
    [
        ("vic_electricity.csv", "30min", {"time_column": "Time"}),
        ("national_illness.csv", "W-TUE", {}),
        ("ETTh1.csv", "h", {}),
    ],
)
def test_real_files(file: str, frequency: str, options: dict[str, Any]) -> None:
    assert REAL_ROOT is not None
    frame = pd.read_csv(next(Path(REAL_ROOT).rglob(file)), nrows=400)
    frame = frame[[name for name in frame if name not in ("Date", "Holiday")]]
    panel = panel_from_frame(frame, **options)
    assert panel.frequency == frequency
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, **options).fit(frame)
    forecast = forecaster.predict()
    assert forecast.groupby("unique_id").size().eq(T).all()
    assert forecast["ds"].min() == panel.future_time(0, 1)[0]


def test_logging_is_by_the_logger_of_the_package(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tsattn"):
        Forecaster(**{**SMALL, "max_steps": 2}).fit(frame_of().drop(index=[5]))
    assert {record.name for record in caplog.records} == {"tsattn"}
