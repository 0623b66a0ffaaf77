"""The scale of each of many series: of its training rows, saved with the model, never fitted again."""

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.preprocessing import StandardScaler

from tests.data.cases import logged
from tests.data.many_series import COLUMNS, LENGTHS, SIZES, long_frame, prepared
from tests.wide_panels import wide_panel
from tsattn import Forecaster
from tsattn.data import FrameDataModule, Series, TableReader, panel_from_frame
from tsattn.data import scaled_series as scaled_panel
from tsattn.data.scaling import moments, panel_moments, scaled_series, series_units, step_counts
from tsattn.errors import UserError
from tsattn.scaler import Scaler


def frame_of(values: object, freq: str = "h") -> pd.DataFrame:
    array = np.asarray(values, dtype="float64").reshape(len(values), -1)
    index = pd.date_range("2020-01-01", periods=len(array), freq=freq)
    return pd.DataFrame(array, index=index, columns=[f"x{i}" for i in range(array.shape[1])])


def scaled_by_training(frame: pd.DataFrame, mean: tuple[float, ...], scale: tuple[float, ...]) -> Series:
    panel = wide_panel(frame, "toy", frequency=f"{(frame.index[1] - frame.index[0]).total_seconds():.0f}s")
    return scaled_panel(panel, Scaler(mean, scale))


@pytest.mark.parametrize("channels", [1, 3])
def test_scales_are_exact_far_from_zero_and_1_of_constants(channels: int) -> None:
    """Whatever the number of rows, in one block or several, of all series or of each."""
    names = [f"x{number}" for number in range(channels)]
    values = 1e8 + np.random.default_rng(0).normal(0, 1e-3, (100_000, channels))
    expected = pytest.approx(values.std(axis=0), rel=1e-6)
    for blocks in ([values], np.array_split(values, 3)):
        assert moments(blocks, names)[1] == expected
    assert panel_moments(wide_panel(frame_of(values), "toy"))[1][0] == expected
    for value in (0.0, 0.1, 1e9, 1e8 + 0.1, -1 / 3):
        constant = np.full((300_000, channels), value)
        for blocks in ([constant], np.array_split(constant, 7)):
            mean, scale = moments(blocks, names)
            assert mean == pytest.approx((value,) * channels)
            assert scale == (1.0,) * channels
        assert scaled_by_training(frame_of(constant[:1000]), mean, scale).values.abs().max() < (
            1e-5 if value != 1e8 + 0.1 else 1e-4
        )


def test_scales_are_those_of_scikit_learn_bit_for_bit(toy_frame: pd.DataFrame) -> None:
    values = toy_frame.to_numpy()
    mean, scale = moments([values], toy_frame.columns)
    assert scale == tuple(StandardScaler().fit(values).scale_)
    np.testing.assert_allclose(mean, toy_frame.mean(), rtol=1e-12)
    assert all(type(number) is float for number in mean + scale), "plain numbers, as JSON and checkpoints store them"
    series = scaled_by_training(toy_frame, mean, scale)
    assert (series.values.dtype, series.observed) == (torch.float32, None)
    assert series.values.is_contiguous(), "a window is then one run of memory"
    np.testing.assert_allclose(series.values.numpy() * scale + mean, toy_frame, rtol=1e-5, atol=1e-5)


def test_values_too_small_to_compute_with_are_refused() -> None:
    tiny = 1e-170 * np.arange(1.0, 9)[:, None]
    with pytest.raises(UserError, match=r"channel x has values around 4e-170, too small to compute with: give it in a"):
        moments([tiny], ["channel x"])
    with pytest.raises(UserError, match="a series has values around 4e-170, too small to compute with"):
        panel_moments(wide_panel(frame_of(tiny), "toy"))
    assert moments([1e-140 * tiny / 1e-170], ["x"])[1][0] == pytest.approx(1e-140 * np.arange(1.0, 9).std())
    assert moments([np.zeros((8, 1))], ["x"]) == ((0.0,), (1.0,))
    with pytest.raises(UserError, match="channel x1 has no value in the 2 training rows"):
        moments([np.array([[1, np.nan], [2, np.nan]])], ["channel x0", "channel x1"])
    for rain, said in ((np.r_[[np.nan] * 190, np.ones(10)], "no value"), (tiny.repeat(25), "values around 3e-170")):
        with pytest.raises(UserError, match=f"covariate rain has {said}"):
            prepared(frame_of(np.arange(200.0)).assign(rain=rain), past_covariates=["rain"])


@pytest.mark.parametrize(("value", "row"), [(1e200, 3), (-1e40, 3), (1e155, 1)])
def test_a_value_too_large_to_compute_with_is_named(value: float, row: int) -> None:
    frame = frame_of([1, 2, 3, 4, 5])
    frame.iloc[row, 0] = value
    said = re.escape(f"series x0 has the value {value:g} at 2020-01-01 0{row}:00:00, too far")
    with pytest.raises(UserError, match=said):
        scaled_by_training(frame, (1.0,), (2.0,))


def test_a_missing_value_repeats_the_last_one_and_at_the_start_is_the_mean() -> None:
    series = scaled_by_training(frame_of([np.nan, np.nan, 4, np.nan, np.nan, 8]), (2.0,), (2.0,))
    assert series.values[:, 0].tolist() == [0, 0, 1, 1, 1, 3]
    assert series.observed[:, 0].tolist() == [False, False, True, False, False, True]
    frame = long_frame({"a": 60, "b": 60})  # and takes nothing from the series before
    frame.loc[58:62, ["y", "rain"]] = np.nan
    series = prepared(frame, past_covariates=["rain"]).series
    for values in (series.values, series.past_covariates):
        assert (values[58:60] == values[57]).all()
        assert (values[60:63] == 0).all()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    values=st.lists(st.one_of(st.just(np.nan), st.floats(-100, 100)), min_size=2, max_size=20),
    cut=st.integers(1, 19),
    later=st.one_of(st.just(np.nan), st.floats(-100, 100)),
)
def test_imputation_never_looks_ahead(values: list[float], cut: int, later: float) -> None:
    cut = min(cut, len(values) - 1)
    changed = values[:cut] + [later] * (len(values) - cut)
    before = scaled_by_training(frame_of(values), (1.0,), (2.0,))
    after = scaled_by_training(frame_of(changed), (1.0,), (2.0,))
    assert torch.equal(before.values[:cut], after.values[:cut])
    assert torch.isfinite(before.values).all()
    missing = np.isnan(values)
    if missing.any():
        np.testing.assert_array_equal(before.observed[:, 0], ~missing)
    else:
        assert before.observed is None


@pytest.mark.parametrize("scaling", ["global", "series"])
def test_scales_are_those_of_the_training_rows_and_travel_with_the_model(scaling: str) -> None:
    frame = long_frame(LENGTHS)
    scaler = prepared(frame, scaling=scaling, **COLUMNS).scaler
    parts = [own[: int(0.7 * len(own))] for _, own in frame.groupby("unique_id", sort=False)]
    train, joint = [part.y.to_numpy() for part in parts], pd.concat(parts)
    np.testing.assert_allclose((scaler.mean, scaler.scale), ([joint.y.mean()], [joint.y.std(ddof=0)]), rtol=1e-9)
    if scaling == "series":
        assert scaler.ids == tuple(LENGTHS)
        np.testing.assert_allclose(np.ravel(scaler.series_mean), [part.mean() for part in train], rtol=1e-9)
        np.testing.assert_allclose(np.ravel(scaler.series_scale), [part.std() for part in train], rtol=1e-9)
    else:
        assert scaler.ids == scaler.series_mean == scaler.series_scale == ()
    np.testing.assert_allclose(scaler.covariate_mean, joint[["rain", "price"]].mean(), rtol=1e-9)
    np.testing.assert_allclose(scaler.covariate_scale, joint[["rain", "price"]].std(ddof=0), rtol=1e-9)
    assert Scaler.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler


def test_known_ids_keep_their_scale_and_new_ones_take_their_own(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    scaler = prepared(frame).scaler
    other = frame.assign(y=3 * frame.y + 1)
    other["unique_id"] = other.unique_id.replace({"a": "new"})
    panel = panel_from_frame(other[::-1])  # and in another order
    caplog.clear()
    mean, scale = series_units(panel, scaler)
    assert logged(caplog) == ["1 of 4 series were not in the training; each is scaled by its given rows"]
    for number, name in enumerate(panel.ids):
        saved = scaler.series_mean[scaler.ids.index(name)] if name in scaler.ids else None
        y = other[other.unique_id == name].y
        assert mean[number, 0] == pytest.approx(y.mean() if saved is None else saved[0])
        if name == "new":
            assert scale[number, 0] == pytest.approx(y.std(ddof=0))
    caplog.clear()
    series_units(panel_from_frame(frame), scaler)
    assert logged(caplog) == []


def test_new_series_are_scaled_by_their_training_rows_alone() -> None:
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    trained = prepared(frame)
    other = frame.assign(unique_id=frame.unique_id.replace({"a": "new"}))
    scaled = FrameDataModule(other, **SIZES)
    scaled.prepare("test", trained.task, trained.scaler)
    number = scaled.panel.ids.index("new")
    end = scaled.splits[number].train_end
    y = other[other.unique_id == "new"].y
    assert 0 < end < len(y)
    assert scaled.series.mean[number].item() == pytest.approx(y[:end].mean())
    assert scaled.series.scale[number].item() == pytest.approx(y[:end].std(ddof=0))


def test_a_series_without_a_training_value_takes_the_scale_of_all(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 100, "b": 50, "c": 50})[["unique_id", "ds", "y"]]
    frame.loc[(frame.unique_id == "b") & (frame.groupby("unique_id").cumcount() < 40), "y"] = np.nan
    scaler = prepared(frame).scaler
    assert "1 of 3 series have no training value in some channel; these channels use" in " ".join(logged(caplog))
    assert (scaler.series_mean[1], scaler.series_scale[1]) == (scaler.mean, scaler.scale)
    assert scaler.series_mean[2] != scaler.mean


TRANSFORMED = {"a": 61, "b": 45, "c": 100}


def positive(seed: int = 0) -> pd.DataFrame:
    """Series that a square root, a logarithm and nothing at all make normal."""
    rng, parts = np.random.default_rng(seed), []
    for (name, rows), power in zip(TRANSFORMED.items(), (2.0, 0.0, 1.0), strict=True):
        normal = 12 + rng.standard_normal(rows)
        y = np.exp(normal / 4) if power == 0 else normal**power
        parts.append(pd.DataFrame({"unique_id": name, "ds": pd.date_range("2024", periods=rows), "y": y}))
    return pd.concat(parts, ignore_index=True)


def most_likely(values: np.ndarray) -> float:
    found = optimize.minimize_scalar(lambda rate: -stats.boxcox_llf(rate, values), bounds=(0, 2), method="bounded")
    return float(found.x)


@pytest.mark.parametrize("scaling", ["series", "global"])
def test_lambdas_are_the_most_likely_ones_of_the_training_rows(scaling: str) -> None:
    frame = positive()
    frame.loc[5, "y"] = np.nan
    fitted = prepared(frame, transform="box_cox", scaling=scaling).scaler.transform
    train = {name: own.y.to_numpy()[: int(0.7 * len(own))] for name, own in frame.groupby("unique_id")}
    train = {name: part[~np.isnan(part)] for name, part in train.items()}
    pooled = np.concatenate([*train.values()])
    assert fitted.lambdas == pytest.approx([most_likely(pooled)], abs=1e-3)
    assert (fitted.mean, fitted.scale) == (pytest.approx([pooled.mean()]), pytest.approx([pooled.std()]))
    if scaling == "series":
        own = [most_likely(train[name]) for name in TRANSFORMED]
        np.testing.assert_allclose(np.ravel(fitted.series_lambdas), own, atol=1e-3)
    else:
        assert fitted.series_lambdas == ()
    changed = frame.assign(y=frame.y.where(frame.groupby("unique_id").cumcount() < 70, frame.y * 3))  # for testing
    assert prepared(changed[::-1], transform="box_cox", scaling=scaling).scaler.transform == fitted


@pytest.mark.parametrize(
    ("transform", "value", "message"),
    [
        ("log", 0.0, r"log needs values above 0, but column y has 0 in row 4 of series b, 2024-01-04 .*: give log1p"),
        ("box_cox", -2.0, "box_cox needs values above 0, but column y has -2 in row 4 of series b"),
        ("log1p", -0.5, "log1p needs values of at least 0, but column y has -0.5 in row 4 of series b"),
    ],
)
def test_a_value_that_it_does_not_take_is_refused_by_column_and_row(transform: str, value: float, message: str) -> None:
    frame = positive()
    frame.loc[TRANSFORMED["a"] + 3, "y"] = value
    with pytest.raises(UserError, match=message):
        prepared(frame, transform=transform)
    scaler = prepared(positive(), transform=transform).scaler
    with pytest.raises(UserError, match=message):
        scaled_series(panel_from_frame(frame), scaler)


def noisy_frames(sizes: dict[str, float], rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": np.arange(rows), "y": size * (9 + rng.normal(size=rows))})
        for name, size in sizes.items()
    ]
    return pd.concat(parts, ignore_index=True)


OPTIONS: dict[str, Any] = {"context_length": 8, "prediction_length": 3, "quantiles": None}


def said(frame: pd.DataFrame, caplog: pytest.LogCaptureFixture, scaling: str) -> list[str]:
    caplog.clear()
    Forecaster("ridge", scaling=scaling, **OPTIONS).fit(frame)
    return [message for message in caplog.messages if "single precision" in message]


def test_series_of_which_a_scale_leaves_nothing_are_named(caplog: pytest.LogCaptureFixture) -> None:
    frame = noisy_frames({"a": 1e9, "b": 1.0, "c": 1e6})
    assert [message.split(" change")[0] for message in said(frame, caplog, "global")] == ["1 of 3 series ('b')"]
    assert not said(frame, caplog, "series")
    assert not said(noisy_frames({"a": 1e4, "b": 1.0}), caplog, "global")
    frame = noisy_frames({"a": 1.0, "b": 1.0})  # an outlier may have made the scale
    frame.loc[10, "y"] = 1e9
    assert "1 of 2 series ('a')" in said(frame, caplog, "series")[0]
    frame.loc[10, "y"] = 1e3
    assert not said(frame, caplog, "series")
    frame = noisy_frames({"a": 1.0}, 300)
    frame.loc[20, "y"] = 1e20
    caplog.clear()
    Forecaster("ridge", **OPTIONS).fit(frame, refit=True)
    assert caplog.text.count("empty that cell") == 1, "a refit says nothing twice"


@pytest.mark.parametrize(("fill", "share"), [(1e10, 0.0), (9.97e36, 0.5)])
def test_a_fill_value_is_named_with_its_series_and_row(
    fill: float, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(10, 3, 300)
    y[(rng.random(300) < share) | (np.arange(300) == 20)] = fill
    good = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2020", periods=300), "y": rng.normal(10, 3, 300)})
    (message,) = said(pd.concat([good, good.assign(unique_id="b", y=y)], ignore_index=True), caplog, "series")
    first = pd.Timestamp("2020") + pd.Timedelta(int(np.abs(y - np.median(y)).argmax()), "D")
    assert message.startswith("1 of 2 series ('b') change by less than single precision tells apart")
    assert f"series b has the value {fill:g} at {first}; empty that cell if it means missing" in message


def test_two_fill_values_of_opposite_signs_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Their mean is near 0, where float32 tells all other values apart."""
    frame = noisy_frames({"a": 1.0}, 200)
    frame.loc[50:51, "y"] = 1e20, -1e20
    (message,) = said(frame, caplog, "series")
    assert "series a has the value 1e+20 at 50; empty that cell if it means missing" in message


def test_honest_series_with_zeros_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Solar power, intermittent sales, some of heavy tails, and one that begins late."""
    rng, hours = np.random.default_rng(0), np.arange(480)
    sun = np.maximum(0, np.sin((hours % 24 - 6) * np.pi / 12).round(12))
    sales = np.where(rng.random(480) < 0.8, 0, rng.uniform(1e5, 1e7, 480))
    tails = np.where(rng.random(480) < 0.8, 0, rng.lognormal(0, 4, 480)) * rng.choice([-1, 1], 480)
    for y in (1e7 * sun * rng.uniform(0.3, 1, 480), sales, tails, np.where(hours < 470, 0, 5e6)):
        frame = pd.DataFrame({"ds": pd.date_range("2020", periods=480, freq="h"), "y": y, "x": y})
        Forecaster("ridge", target="y", past_covariates=["x"], val_rows=15, test_rows=15, **OPTIONS).fit(frame)
    assert "empty that cell" not in caplog.text


def test_fill_values_of_one_channel_of_a_covariate_and_of_a_later_row(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), **{name: rng.normal(9, 1, 300) for name in "abcd"}})
    frame.loc[20, "b"] = 1e20
    assert "1 of 4 series ('b') change" in said(frame, caplog, "series")[0]
    frame.loc[20, ["b", "c"]] = 9.0, 1e20
    caplog.clear()
    Forecaster("ridge", target="a", past_covariates=["b", "c", "d"], **OPTIONS).fit(frame)
    assert "covariate c changes by less than single precision tells apart: it is 1e+20 at 2020-01-21" in caplog.text
    assert "covariate b" not in caplog.text
    frame.loc[[20, 290], "c"] = 9.0, 1e10
    caplog.clear()
    Forecaster("ridge", **OPTIONS).fit(frame)
    assert "series c has the value 1e+10 at 2020-10-17 00:00:00, 1e+10 standard deviations from" in caplog.text


def test_they_are_those_whose_rounding_is_a_part_of_their_changes() -> None:
    """Steps between series are no changes, nor is the rounding of constants."""
    panel = TableReader.of({}).read(noisy_frames({"a": 1e-9, "b": 1e-3, "c": 0.0, "d": 3e-7}))
    scaled = panel.values + 5
    scaled[panel.starts[2] : panel.starts[3]] += np.spacing(5.0) * np.resize([0, 1], 60)[:, None]
    step = np.abs(np.diff(scaled.reshape(4, 60), axis=1)).mean(1)
    error = np.abs(scaled.astype(np.float32) - scaled).reshape(4, 60).mean(1)
    assert error[0] > step[0]
    assert error[1] < 0.001 * step[1]
    assert 0 < step[2] < 1e-15
    assert 0.1 * step[3] < error[3] < step[3]
    changes, blurred = step_counts(scaled, scaled, np.arange(4).repeat(60), 4)
    assert (changes.ravel().tolist(), blurred.ravel().tolist()) == ([59, 59, 0, 59], [59, 0, 0, 59])


def test_far_values_of_new_rows_are_told_of_targets_and_covariates(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(10, 3, 300) for name in ("y", "p", "f")}
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), **columns})
    reader = {"kind": "transformer", "d_model": 8, "num_layers": 1, "num_heads": 2}  # of covariates, unlike a ridge
    names: dict[str, Any] = {"target": "y", "past_covariates": ["p"], "future_covariates": ["f"], "max_steps": 1}
    model = Forecaster(reader, accelerator="cpu", **names, **OPTIONS).fit(frame)
    assert "standard deviations" not in caplog.text
    future = pd.DataFrame({"ds": pd.date_range("2020-10-27", periods=3), "f": [9.0, 9e18, 9.0]})
    model.predict(frame.assign(y=columns["y"] + 1e6 * (np.arange(300) == 295)), future=future)
    model.predict(frame.assign(p=columns["p"] + 9e9 * (np.arange(300) == 295)), future=future.assign(f=9.0))
    said = [message.split(",")[0] for message in caplog.messages if "standard deviations" in message]
    assert said == [
        "series y has the value 1.00001e+06 at 2020-10-22 00:00:00",
        "covariate f is 9e+18 in step 2 after the series",
        "covariate p is 9e+09 at 2020-10-22 00:00:00",
    ]
