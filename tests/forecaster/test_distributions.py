"""Distributions, sample paths and calibrated intervals: they hold what they say, wherever the model goes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import tsattn
from tests.forecaster.toys import SMALL, L, T, entries, frame_of
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.forecaster.sample_paths import StepCopula
from tsattn.predictors.calibrated import calibration_parts, conformal_scores, fits_before
from tsattn.predictors.fitted import fitted_again
from tsattn.task import DISTRIBUTIONS, Output
from tsattn.training import Execution, TrainerOptions, Training

SIZES: dict[str, Any] = {**SMALL, "context_length": 28, "prediction_length": 7, "max_steps": 5}


def counts(rows: int = 160) -> pd.DataFrame:
    """Sparse and large counts with a week in them."""
    rng, parts = np.random.default_rng(0), []
    for name, size in {"few": 0.4, "many": 60.0}.items():
        mean = size * (1 + 0.8 * np.sin(2 * np.pi * np.arange(rows) / 7))
        y = rng.negative_binomial(2, 2 / (2 + mean)).astype(float)
        parts.append(pd.DataFrame({"unique_id": name, "ds": pd.date_range("2024", periods=rows), "y": y}))
    return pd.concat(parts, ignore_index=True)


def test_counts_are_scored_as_whole_numbers_and_are_forecast_from_nothing_else(tmp_path: Path) -> None:
    """A zero that is forecast as zero has no sMAPE, and a count on a bound lies inside."""
    frame = counts()
    stamps = frame["ds"].unique()
    forecaster = Forecaster(**SIZES, distribution="negative_binomial").fit(frame[frame["ds"] < stamps[132]])
    scores = forecaster.evaluate(frame, step=7, detail=True).iloc[0]
    frames = [forecaster.predict(frame[frame["ds"] < stamps[origin]]) for origin in range(132, 154, 7)]
    made = pd.concat(frames).merge(frame, on=["unique_id", "ds"])
    assert not np.signbit(made[["predictions", "0.1"]]).to_numpy().any()  # no minus zero
    assert len(made) == 7 * scores["windows"] == 56
    assert scores["sMAPE left out"] == made[["y", "predictions"]].eq(0).all(axis=1).sum() > 3
    low, high = made["0.1"] <= made["y"], made["y"] <= made["0.9"]
    assert scores["cover 80"] == pytest.approx((low & high).mean())
    forecaster.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    halves = counts()
    halves.loc[310, "y"] += 0.5
    says = r"model needs counts \(whole numbers from 0\), but column y has \d+\.5 in row 151 of series many, 2024-05"
    for call in (loaded.predict, loaded.sample):
        with pytest.raises(UserError, match=says):
            call(halves)
    early = counts()
    early.loc[170, "y"] += 0.5
    pd.testing.assert_frame_equal(loaded.predict(early), loaded.predict(counts()))  # it looks at the end alone


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_trained_scored_saved_and_loaded(name: str, tmp_path: Path) -> None:
    forecaster = Forecaster(**SIZES, distribution=name, val_rows=20, test_rows=20).fit(
        counts(), folder=tmp_path / "run"
    )
    result = forecaster.result
    forecast = forecaster.predict()
    assert list(forecast.columns) == ["unique_id", "ds", "predictions", "0.1", "0.5", "0.9"]
    assert (forecast["0.1"] <= forecast["0.9"]).all()
    scores = result.scores.loc[next(iter(result.tables))]
    assert scores[["wql", "crps_scaled", "coverage_80", "mase"]].notna().all()
    assert result.fit["selected_by"] == "crps_scaled"
    if name == "negative_binomial":
        numbers = forecast[["predictions", "0.1", "0.9"]].to_numpy()
        assert (numbers == np.round(numbers)).all()
        assert numbers.min() >= 0
        assert forecast[forecast.unique_id == "many"]["0.5"].between(5, 400).all()
    forecaster.save(tmp_path / "model")
    for folder in ("model", "run"):
        loaded = tsattn.load(tmp_path / folder)
        pd.testing.assert_frame_equal(loaded.predict(counts()), forecast)
        assert loaded.arguments["distribution"] == name
        assert loaded.fitted.predictor.output == Output((0.1, 0.5, 0.9), name)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"backbone": "ridge"}, 0.0, "predictor ridge has no distribution negative_binomial: leave distribution out"),
        ({"loss": "mae"}, 0.0, "loss mae does not train a distribution"),
        ({"loss": "nll", "distribution": None}, 0.0, "loss nll needs a distribution"),
        ({"distribution": "gamma"}, 0.0, "unknown distribution gamma; valid: normal, student_t, negative_binomial"),
        ({"transform": "log1p"}, 0.0, "needs untransformed counts: leave out transform log1p"),
        ({}, 0.5, r"needs counts \(whole numbers from 0\), but column y has 0.5 in row 4 of series few, 2024-01-04"),
        ({}, -2.0, r"needs counts \(whole numbers from 0\), but column y has -2 in row 4 of series few"),
    ],
)
def test_what_has_no_such_distribution_is_refused(options: dict[str, Any], change: float, message: str) -> None:
    frame = counts(100)
    frame.loc[3, "y"] = change
    with pytest.raises(UserError, match=message):
        Forecaster(**{**SIZES, "distribution": "negative_binomial", **options}).fit(frame)


LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
SHORT: dict[str, Any] = {"context_length": 14, "prediction_length": 7, "accelerator": "cpu"}


def wandering(rows: int = 900) -> pd.DataFrame:
    """Two series that keep most of what they were a step before."""
    parts = []
    for number in range(2):
        noise = np.random.default_rng(number).standard_normal(rows)
        y = [0.0]
        for shock in noise[1:]:
            y.append(0.9 * y[-1] + shock)
        stamps = pd.date_range("2020", periods=rows)
        parts.append(pd.DataFrame({"unique_id": f"s{number}", "ds": stamps, "y": np.array(y) * 10**number}))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def walker() -> Forecaster:
    options = {"train_fraction": 0.6, "val_fraction": 0.2}
    forecaster = Forecaster("nlinear", **SHORT, data=options, quantiles=LEVELS, max_steps=150, learning_rate=0.01)
    return forecaster.fit(wandering())


def table(frame: pd.DataFrame, name: str = "s0") -> pd.DataFrame:
    """Paths in rows, steps in columns."""
    return frame[frame["unique_id"] == name].pivot_table(index="sample", columns="ds", values="y")


def test_a_row_a_series_path_and_step(walker: Forecaster) -> None:
    frame = walker.sample(num_samples=5)
    assert list(frame.columns) == ["unique_id", "ds", "sample", "y"]
    assert frame["sample"].tolist() == 2 * [number for number in range(5) for _ in range(7)]
    forecast = walker.predict()
    assert frame["ds"].tolist() == [stamp for name in range(2) for _ in range(5) for stamp in forecast["ds"][:7]]
    assert frame["unique_id"].tolist() == ["s0"] * 35 + ["s1"] * 35
    pd.testing.assert_frame_equal(walker.sample(num_samples=5), frame)
    pd.testing.assert_frame_equal(walker.sample(wandering().sample(frac=1, random_state=0), num_samples=5), frame)
    assert (walker.sample(num_samples=5, seed=1)["y"] != frame["y"]).all()
    # the first steps of a longer horizon, and each series by itself
    short = walker.sample(num_samples=5, horizon=3)
    np.testing.assert_allclose(table(short), table(frame).iloc[:, :3], rtol=1e-6)
    for name in ("s0", "s1"):
        alone = walker.sample(wandering().query("unique_id == @name"), num_samples=5)
        np.testing.assert_allclose(table(alone, name), table(frame, name), rtol=1e-5)


def test_steps_hang_together_as_what_came_did(walker: Forecaster) -> None:
    """Totals over the horizon vary as much as totals of an autoregression do, which independent steps' do not."""
    paths = table(walker.sample(num_samples=1000)).to_numpy()
    correlation = np.corrcoef(paths.T)
    # of errors of an autoregression: sum of shocks that both steps have seen
    powers = 0.9 ** np.arange(7)
    covariance = [[powers[abs(i - j)] * np.square(powers[: min(i, j) + 1]).sum() for j in range(7)] for i in range(7)]
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(correlation, covariance / np.outer(deviation, deviation), atol=0.25)
    rng = np.random.default_rng(0)
    alone = np.stack([rng.permutation(step) for step in paths.T], 1)  # the same marginals
    assert paths.sum(1).std() > 1.5 * alone.sum(1).std()
    assert paths.sum(1).std() == pytest.approx(np.sqrt(np.sum(covariance)), rel=0.25)


def test_beyond_the_horizon_each_path_goes_on_from_itself(walker: Forecaster) -> None:
    paths = table(walker.sample(num_samples=300, horizon=17)).to_numpy()
    assert paths.shape == (300, 17)
    np.testing.assert_allclose(paths[:, :7], table(walker.sample(num_samples=300)), rtol=1e-3, atol=1e-5)
    assert np.corrcoef(paths[:, 6], paths[:, 7])[0, 1] > 0.4  # the border of two stretches
    assert paths[:, 14].std() > paths[:, 2].std()


def test_a_saved_model_draws_the_same(walker: Forecaster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    walker.copula = None  # as it is before the first path is drawn
    walker.save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    drawn = walker.sample(num_samples=4)
    caplog.clear()
    pd.testing.assert_frame_equal(loaded.sample(num_samples=4), drawn)
    assert "dependence of steps" not in caplog.text  # the validation windows of the fit are enough
    walker.save(tmp_path / "again")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "again").sample(num_samples=4), drawn)
    loaded.copula = None  # that of a run has none
    caplog.clear()
    again = loaded.sample(wandering(), num_samples=4)
    assert "the dependence of steps is estimated on the given rows" in caplog.text
    assert len(again) == len(drawn)


@pytest.mark.parametrize("name", ["student_t", "negative_binomial"])
def test_paths_of_distributions(name: str) -> None:
    forecaster = Forecaster("dlinear", **SHORT, distribution=name, quantiles=[0.1, 0.5, 0.9], max_steps=20)
    frame = forecaster.fit(counts(300)).sample(num_samples=400, horizon=9)
    found = table(frame, "many").quantile([0.1, 0.5, 0.9]).to_numpy()[:, :7]
    wanted = forecaster.predict().query("unique_id == 'many'")[["0.1", "0.5", "0.9"]].to_numpy().T
    np.testing.assert_allclose(found, wanted, rtol=0.05, atol=1)
    if name == "negative_binomial":
        assert (frame["y"] == frame["y"].round()).all()
        assert not np.signbit(frame["y"]).any()  # no minus zero


def test_what_no_path_can_be_drawn_of_is_refused(walker: Forecaster) -> None:
    points = Forecaster("ridge", **SHORT).fit(wandering(200))
    with pytest.raises(UserError, match="ridge forecasts points, and sample paths need quantiles"):
        points.sample()
    with pytest.raises(UserError, match="num_samples must be"):
        walker.sample(num_samples=0)
    with pytest.raises(UserError, match="not fitted yet"):
        Forecaster(**SMALL).sample()
    lone = tsattn.Forecaster("nlinear", **SHORT, quantiles=LEVELS)
    lone.fitted = walker.fitted
    with pytest.raises(UserError, match="no series has 8 rows"):
        lone.sample(wandering(6))


def test_paths_have_the_calibrated_quantiles() -> None:
    frame = frame_of({"a": 300, "b": 300})
    made = {**SMALL, "max_steps": 3, "calibrate": True, "val_rows": 60, "test_rows": T}
    forecaster = Forecaster(**made).fit(frame)
    paths, forecast = forecaster.sample(num_samples=2000, seed=1), forecaster.predict()
    for level in (0.1, 0.9):
        drawn = paths.groupby(["unique_id", "ds"])["y"].quantile(level).to_numpy()
        width = (forecast["0.9"] - forecast["0.1"]).to_numpy()
        assert (abs(drawn - forecast[str(level)]) < 0.15 * width).all()
    # and each goes on from itself beyond the horizon
    longer = forecaster.sample(horizon=T + 3, num_samples=3, seed=1)
    assert longer.groupby(["unique_id", "sample"]).size().eq(T + 3).all()


STEPS = 5
WANTED = 0.8 ** np.abs(np.subtract.outer(np.arange(STEPS), np.arange(STEPS)))


def copula(windows: int = 2000) -> StepCopula:
    return StepCopula.of(np.random.default_rng(0).multivariate_normal(np.zeros(STEPS), WANTED, windows))


def generators(count: int, first: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([7, first + number]) for number in range(count)]


def test_the_copula_is_that_of_the_ranks_whatever_scale_they_come_on() -> None:
    scores = np.random.default_rng(0).multivariate_normal(np.zeros(STEPS), WANTED, 300)
    bent = np.exp(scores) * np.arange(1, STEPS + 1) + 3  # forecasts that are off by as much
    np.testing.assert_array_equal(StepCopula.of(bent).ranks, StepCopula.of(scores).ranks)
    scores[::9, 2] = np.nan
    scores[0] = np.nan
    assert (np.sort(StepCopula.of(scores).ranks, 0) == np.arange(300)[:, None]).all()


@pytest.mark.parametrize("paths", [2, 99])
def test_few_paths_depend_on_each_other_as_many_do(paths: int) -> None:
    levels = copula().levels(generators(8000 // paths), STEPS, 1, paths)[:, :, 0]
    normal = special.ndtri(levels.transpose(1, 2).flatten(0, 1).numpy())  # paths of all windows
    np.testing.assert_allclose(np.corrcoef(normal.T), WANTED, atol=0.05)
    assert normal.sum(1).std() == pytest.approx(np.sqrt(WANTED.sum()), rel=0.05)
    assert stats.kstest(normal[:, 2], "norm").pvalue > 0.001


def test_each_of_many_paths_has_a_share_of_its_own_of_every_step() -> None:
    levels = copula().levels(generators(3), STEPS, 2, 100)
    assert levels.shape == (3, STEPS, 2, 100)
    places = (levels.sort(-1).values * 100).floor()
    assert bool((places == places.new_tensor(range(100))).all())  # one in each 100th: exact quantiles


RIDGE: dict[str, Any] = {"backbone": "ridge", "context_length": L, "prediction_length": T, "accelerator": "cpu"}
SPLIT: dict[str, Any] = {"val_rows": 60, "test_rows": 30}


@pytest.fixture(scope="module")
def ridge() -> Forecaster:
    return Forecaster(**RIDGE, **SPLIT, calibrate=True).fit(frame_of({"one": 300}))


def bounds(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith("0.")]


def test_intervals_of_a_closed_form_are_those_of_its_validation_errors(ridge: Forecaster) -> None:
    plain, found = ridge.predict(), ridge.predict(level=[95, 80])
    assert bounds(plain) == []
    assert bounds(found) == ["0.025", "0.1", "0.5", "0.9", "0.975"]
    pd.testing.assert_frame_equal(found[plain.columns], plain)
    frame = frame_of({"one": 300})
    errors = np.array(
        [
            ridge.predict(frame[:origin])["predictions"].to_numpy() - frame["y"][origin : origin + T].to_numpy()
            for origin in range(210, 270 - T + 1)
        ]
    )
    ordered, n = np.sort(np.abs(errors), axis=0), len(errors)
    for low, high, level in (("0.1", "0.9", 0.8), ("0.025", "0.975", 0.95)):
        width = ordered[math.ceil((n + 1) * level) - 1]
        np.testing.assert_allclose(found[high] - found["predictions"], width, rtol=1e-4)
        np.testing.assert_allclose(found["predictions"] - found[low], width, rtol=1e-4)
    assert ridge.result.fit["calibration"] == {
        **{"windows": 49, "least_observed": 49, "highest_level": 98.0, "series_of_their_own": 0}
    }


def test_what_a_fit_calibrates_is_asked_for_after_it() -> None:
    frame = frame_of({"a": 200})
    naive = Forecaster("seasonal_naive", context_length=24, prediction_length=T, calibrate=True)
    with pytest.raises(UserError, match=r"need a calibrated model: call fit\(frame\) first$"):
        naive.predict(frame, level=80)
    assert "0.9" in naive.cross_validate(frame, 2, level=80).columns
    # and points have no paths, whether their intervals are calibrated or not
    with pytest.raises(UserError, match="sample paths need quantiles or a distribution: choose another backbone"):
        naive.fit(frame).sample()


def test_too_few_windows_for_a_level_are_told(ridge: Forecaster) -> None:
    with pytest.raises(UserError, match=r"level 99 needs 99 validation windows, .* has 49: ask for at most 98,"):
        ridge.predict(level=[80, 99])
    few = {**SMALL, "val_rows": T + 2, "test_rows": T, "calibrate": True, "quantiles": (0.1, 0.5, 0.9)}
    with pytest.raises(UserError, match="needs 4 validation windows for an interval of 80 %, and there are 3: hold"):
        Forecaster(**few).fit(frame_of({"one": L + 3 * T + 2}))  # too short for rolling origins, too
    with pytest.raises(UserError, match=r"calibrate 0\.9 splits the validation rows in two, but then"):
        Forecaster(**{**RIDGE, **SPLIT, "calibrate": 0.9}).fit(frame_of({"one": 300}))
    with pytest.raises(UserError, match="calibrate needs validation rows, and no series is long enough"):
        Forecaster(**RIDGE, calibrate=True).fit(frame_of({"one": L + T + 2}))
    with pytest.raises(UserError, match="calibrate must be true, false, or the share"):
        Forecaster(**RIDGE, calibrate=1.5)


def test_a_naive_forecast_of_a_short_series_is_calibrated_by_its_rolling_origins() -> None:
    frame = frame_of({"one": 75})
    values = frame["y"].to_numpy()
    naive = Forecaster("seasonal_naive", context_length=24, prediction_length=T, calibrate=True).fit(frame)
    errors = np.array(  # of the last third
        [np.abs(np.resize(values[origin - 24 : origin], T) - values[origin : origin + T]) for origin in range(50, 64)]
    )
    assert naive.result.fit["calibration"]["windows"] == len(errors) == 14
    forecast = naive.predict(level=80)
    widened = np.sort(errors, axis=0)[11]  # the 12th: ceil(15 x 0.8)
    np.testing.assert_allclose(forecast["0.9"] - forecast["predictions"], widened, rtol=1e-4)
    np.testing.assert_allclose(forecast["predictions"] - forecast["0.1"], widened, rtol=1e-4)
    sizes, two = {"context_length": 24, "prediction_length": T}, {"trainer": {"devices": 2}}
    on_two = Forecaster("seasonal_naive", **sizes, calibrate=True, accelerator="cpu", training=two).fit(frame)
    assert on_two.result.fit["calibration"]["windows"] == 14, "no second model is fitted"


def test_what_calibrates_a_short_series_was_not_fitted_to_it() -> None:
    """The scores are those of a second model of the rows before; those of the first would be too small."""
    options = {"context_length": 24, "prediction_length": T}
    backbone = {"kind": "ridge", "penalty": 0.1, "context_length": 24}
    frame = frame_of({"one": 90})
    frame["y"] += np.random.default_rng(0).normal(size=90)
    ridge = Forecaster(backbone, **options, calibrate=True).fit(frame)
    data, kept = ridge.result.data, ridge.fitted.conformal
    assert kept.facts["windows"] == 90 - 60 - T + 1
    _, before = calibration_parts(data, True, Output())
    assert fits_before(before, data)
    assert before.splits[0].train_end == 60
    execution = Execution(TrainerOptions.of(ridge.experiment.trainer_arguments(), is_new=False))
    assert before.parts == ("train", "val")
    unseen = before.with_splits(lambda split: split, ("train",))
    again = fitted_again(ridge.fitted.predictor, unseen, Training(execution.options, {}))
    assert conformal_scores(again, before, execution).values.equal(kept.values)
    optimistic = conformal_scores(ridge.fitted.predictor, before, execution).values
    assert optimistic.mean() < 0.9 * kept.values.mean()
    plain = Forecaster(backbone, **options).fit(frame).predict()
    pd.testing.assert_series_equal(ridge.predict()["predictions"], plain["predictions"])


def test_a_second_model_chooses_nothing_by_the_windows_that_score_it() -> None:
    """A network is trained as long as the first one, on the rows before, and keeps the weights of its last step."""
    small: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 1}
    options = {"context_length": 24, "prediction_length": T, "max_steps": 20, "calibrate": True}
    frame = frame_of({"one": 90})
    frame["y"] += np.random.default_rng(0).normal(size=90)
    model = Forecaster(small, **options, training={"trainer": {"val_check_interval": 4}}).fit(frame)
    result, kept = model.result, model.fitted.conformal
    _, before = calibration_parts(result.data, True, model.fitted.predictor.output)
    assert fits_before(before, result.data)
    execution = Execution(TrainerOptions.of(model.experiment.trainer_arguments(), is_new=False))
    named = model.experiment.training_options
    training = Training(execution.options.without_files(), named, model.experiment.seed).at_length(result.fit)
    unseen = before.with_splits(lambda split: split, ("train",))
    again = fitted_again(model.fitted.predictor, unseen, training)
    assert conformal_scores(again, before, execution).values.equal(kept.values)


def test_a_share_keeps_what_calibrates_from_what_chooses() -> None:
    """The last half of the rows changes intervals alone, the first half the choice alone."""
    made = {"backbone": {"kind": "ridge"}, "calibrate": 0.5, "val_rows": 60, "test_rows": 12}
    frame = frame_of({"one": 300})
    first, last = frame.copy(), frame.copy()
    first.loc[228:257, "y"] += np.random.default_rng(0).normal(0, 3, 30)
    last.loc[258:287, "y"] += np.random.default_rng(0).normal(0, 3, 30)
    fits = [Forecaster(**{**RIDGE, **made}).fit(one) for one in (frame, first, last)]
    errors, widths = [], []
    for one in fits:
        assert (one.result.fit["validation_windows"], one.result.fit["calibration"]["windows"]) == (19, 19)
        errors.append(one.result.fit["validation_error"])
        forecast = one.predict(frame, level=80)
        widths.append(float((forecast["0.9"] - forecast["0.1"]).mean()))
    assert errors[0] == errors[2] != errors[1]
    assert widths[2] > 3 * widths[0]


def test_a_calibrated_model_is_saved_and_loaded(ridge: Forecaster, tmp_path: Path) -> None:
    ridge.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        *("SHA256SUMS", "conformal.safetensors", "forecaster.json", "history.safetensors", "model.safetensors")
    ]
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(level=[50, 95]), ridge.predict(level=[50, 95]))
    (tmp_path / "model" / "conformal.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"damaged: conformal\.safetensors is missing or was changed"):
        tsattn.load(tmp_path / "model")


@pytest.fixture(scope="module")
def quantiles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Forecaster]:
    folder = tmp_path_factory.mktemp("calibrated") / "run"
    made = {**SMALL, "max_steps": 5, "quantiles": (0.1, 0.5, 0.9), "calibrate": True, **SPLIT}
    return folder, Forecaster(**made).fit(frame_of({"a": 300, "b": 250}), folder=folder, refit=True)


def test_quantiles_of_a_run_are_calibrated_wherever_they_are_read(
    quantiles: tuple[Path, Forecaster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, fitted = quantiles
    again, frame = tsattn.load(run), frame_of({"a": 300, "b": 250})
    for level in (None, [80, 95]):
        pd.testing.assert_frame_equal(again.predict(frame, level=level), fitted.predict(level=level))
    frame.to_csv(tmp_path / "new.csv", index=False)
    words = ["predict", f"--run={run}", f"--input={tmp_path / 'new.csv'}", "--figure=false"]
    assert main([*words, "--level", "[80, 95]", f"--output={tmp_path / 'out.csv'}"]) == 0
    written = pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"])
    pd.testing.assert_frame_equal(written, fitted.predict(level=[80, 95]), rtol=1e-5, check_dtype=False)
    assert main([*words, "--level=99.9", f"--output={tmp_path / 'x.csv'}"]) == 2
    assert "level 99.9 needs 999 validation windows" in capsys.readouterr().err
    assert entries(fitted.plot(fitted.predict(level=[80, 95])))[-2:] == ["95 % interval", "80 % interval"]


def test_a_refit_keeps_the_scale_that_intervals_are_widened_on() -> None:
    """A step in the rows for validation, which a scale of all rows would see."""
    frame = frame_of({"a": 300})
    frame.loc[270:, "y"] += 40
    made = {"backbone": "ridge", "context_length": 24, "prediction_length": 4, "calibrate": True}
    widths = []
    for refit in (False, True):
        forecaster = Forecaster(**made).fit(frame, refit=refit)
        forecast = forecaster.predict(level=80)
        widths.append((forecast["0.9"] - forecast["0.1"]).to_numpy())
    np.testing.assert_allclose(widths[1], widths[0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["theta", "tiny"])
def test_a_model_that_reads_more_rows_than_there_are_is_calibrated(kind: str) -> None:
    days = np.arange(300)
    values = 10 + 3 * np.sin(2 * np.pi * days / 7) + np.random.default_rng(0).normal(size=300)
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=300), "y": values})
    forecaster = Forecaster(kind, prediction_length=7, calibrate=True)
    forecast = forecaster.fit(frame).predict(level=[80, 90])
    assert forecaster.result.fit["calibration"]["windows"] >= 9
    assert (forecast[["0.05", "0.1", "0.5", "0.9", "0.95"]].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert len(forecaster.cross_validate(frame, 2, level=80)) == 2 * 7
