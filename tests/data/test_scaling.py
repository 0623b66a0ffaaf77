"""The scale of each of many series: of its training rows, saved with the model, never fitted again."""

from __future__ import annotations

import json
import re
from pathlib import Path
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
from tsattn.data import FrameDataModule, MappedDataModule, Series, panel_from_frame
from tsattn.data import scaled_series as scaled_panel
from tsattn.data.reader import TableReader
from tsattn.data.scaling import blurred_columns, moments, panel_moments, scaled_series, series_units
from tsattn.errors import UserError
from tsattn.evaluation import measure
from tsattn.scaler import Scaler


def frame_of(values: object, freq: str = "h") -> pd.DataFrame:
    array = np.asarray(values, dtype="float64").reshape(len(values), -1)
    index = pd.date_range("2020-01-01", periods=len(array), freq=freq)
    return pd.DataFrame(array, index=index, columns=[f"x{i}" for i in range(array.shape[1])])


def scaled_by_training(frame: pd.DataFrame, mean: tuple[float, ...], scale: tuple[float, ...]) -> Series:
    """One series on a scale of all."""
    panel = wide_panel(frame, "toy", frequency=f"{(frame.index[1] - frame.index[0]).total_seconds():.0f}s")
    return scaled_panel(panel, Scaler(mean, scale))


@pytest.mark.parametrize("value", [0.0, 3.0, 0.1, 1e9])
def test_constant_channel_has_scale_one(value: float) -> None:
    frame = frame_of([value] * 1000)
    mean, scale = moments([frame.to_numpy()], frame.columns)
    assert mean == pytest.approx((value,))
    assert scale == (1.0,)
    assert scaled_by_training(frame, mean, scale).values.abs().max() < 1e-5


@pytest.mark.parametrize("channels", [1, 3])
def test_a_small_change_far_from_zero_is_none_of_rounding(channels: int) -> None:
    """Whatever the number of rows, in one block or several, of all series or of each."""
    values = 1e8 + np.random.default_rng(0).normal(0, 1e-3, (100_000, channels))
    names = [f"x{number}" for number in range(channels)]
    expected = pytest.approx(values.std(axis=0), rel=1e-6)
    assert moments([values], names)[1] == expected
    assert moments(np.array_split(values, 3), names)[1] == expected
    assert panel_moments(wide_panel(frame_of(values), "toy"))[1][0] == expected


@pytest.mark.parametrize("value", [0.1, 1e8 + 0.1, -1 / 3])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_long_constant_has_scale_one(value: float, channels: int) -> None:
    values = np.full((300_000, channels), value)
    for blocks in ([values], np.array_split(values, 7)):
        assert moments(blocks, "abc"[:channels])[1] == (1.0,) * channels


def test_scales_are_those_of_scikit_learn_bit_for_bit(toy_frame: pd.DataFrame) -> None:
    values = toy_frame.to_numpy()
    mean, scale = moments([values], toy_frame.columns)
    assert scale == tuple(StandardScaler().fit(values).scale_)
    np.testing.assert_allclose(mean, toy_frame.mean(), rtol=1e-12)
    assert all(type(number) is float for number in mean + scale), "plain numbers, as JSON and checkpoints store them"


def test_channel_without_a_training_value_is_refused() -> None:
    with pytest.raises(UserError, match="channel x1 has no value in the 2 training rows"):
        moments([np.array([[1, np.nan], [2, np.nan]])], ["x0", "x1"])


def test_values_too_small_to_compute_with_are_refused() -> None:
    tiny = 1e-170 * np.arange(1.0, 9)[:, None]
    with pytest.raises(UserError, match=r"channel x has values around 4e-170, too small to compute with: give it in a"):
        moments([tiny], ["x"])
    with pytest.raises(UserError, match="a series has values around 4e-170, too small to compute with"):
        panel_moments(wide_panel(frame_of(tiny), "toy"))
    assert moments([1e-140 * tiny / 1e-170], ["x"])[1][0] == pytest.approx(1e-140 * np.arange(1.0, 9).std())
    assert moments([np.zeros((8, 1))], ["x"]) == ((0.0,), (1.0,))


@pytest.mark.parametrize(("value", "row"), [(1e200, 3), (-1e40, 3), (1e155, 1)])
def test_a_value_too_large_to_compute_with_is_named(value: float, row: int) -> None:
    frame = frame_of([1, 2, 3, 4, 5])
    frame.iloc[row, 0] = value
    with pytest.raises(
        UserError, match=rf"series x0 has the value {re.escape(f'{value:g}')} at 2020-01-01 0{row}:00:00, too far"
    ):
        scaled_by_training(frame, (1.0,), (2.0,))


def test_round_trip_to_original_units(toy_frame: pd.DataFrame) -> None:
    mean, scale = moments([toy_frame[:300].to_numpy()], toy_frame.columns)
    series = scaled_by_training(toy_frame, mean, scale)
    np.testing.assert_array_equal(series.mean, [mean])
    np.testing.assert_array_equal(series.scale, [scale])
    assert series.values.dtype == torch.float32
    assert series.observed is None
    np.testing.assert_allclose(series.values[:300].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(series.values[:300].std(0, correction=0), 1, atol=1e-5)
    np.testing.assert_allclose(series.values.numpy() * scale + mean, toy_frame, rtol=1e-5, atol=1e-5)


def test_a_missing_value_repeats_the_last_one_and_at_the_start_is_the_mean() -> None:
    series = scaled_by_training(frame_of([np.nan, np.nan, 4, np.nan, np.nan, 8]), (2.0,), (2.0,))
    assert series.values[:, 0].tolist() == [0, 0, 1, 1, 1, 3]
    assert series.observed is not None
    assert series.observed[:, 0].tolist() == [False, False, True, False, False, True]


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
        assert before.observed is not None
        np.testing.assert_array_equal(before.observed[:, 0], ~missing)
    else:
        assert before.observed is None


@pytest.mark.parametrize(
    ("unit", "start"), [("s", "1958-03-29"), ("us", "2020-01-01 12:30:15"), ("ns", "1958-03-29 00:00:01")]
)
def test_time_is_in_seconds_whatever_the_unit_of_the_index(unit: str, start: str) -> None:
    frame = frame_of([1, 2, 3])
    frame.index = pd.date_range(start, periods=3, freq="15min").as_unit(unit)
    time = scaled_by_training(frame, (0.0,), (1.0,)).time
    seconds = (pd.Timestamp(start) - pd.Timestamp("1970-01-01")).total_seconds()
    assert time.dtype == torch.int64
    assert time.tolist() == [seconds, seconds + 900, seconds + 1800]


def test_rows_lie_one_after_the_other(toy_frame: pd.DataFrame) -> None:
    """A window is then one run of memory, which cuts a batch three times as fast as one of columns."""
    series = scaled_by_training(toy_frame, (0.0, 0.0), (1.0, 1.0))
    assert series.values.is_contiguous()


@pytest.mark.parametrize("scaling", ["global", "series"])
def test_scales_are_those_of_the_training_rows_and_travel_with_the_model(scaling: str) -> None:
    frame = long_frame(LENGTHS)
    data = prepared(frame, scaling=scaling, **COLUMNS)
    scaler = data.scaler
    train = [own.y.to_numpy()[: int(0.7 * len(own))] for _, own in frame.groupby("unique_id", sort=False)]
    joint = np.concatenate(train)
    np.testing.assert_allclose((scaler.mean, scaler.scale), ([joint.mean()], [joint.std()]), rtol=1e-9)
    if scaling == "series":
        assert scaler.ids == tuple(LENGTHS)
        np.testing.assert_allclose(np.ravel(scaler.series_mean), [part.mean() for part in train], rtol=1e-9)
        np.testing.assert_allclose(np.ravel(scaler.series_scale), [part.std() for part in train], rtol=1e-9)
    else:
        assert scaler.ids == scaler.series_mean == scaler.series_scale == ()
    first = np.concatenate(
        [own[["rain", "price"]].to_numpy()[: int(0.7 * len(own))] for _, own in frame.groupby("unique_id", sort=False)]
    )
    np.testing.assert_allclose(scaler.covariate_mean, first.mean(0), rtol=1e-9)
    np.testing.assert_allclose(scaler.covariate_scale, first.std(0), rtol=1e-9)
    assert Scaler.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler


def test_known_ids_keep_their_scale_and_new_ones_take_their_own(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    scaler = prepared(frame).scaler
    other = frame.assign(y=3 * frame.y + 1)
    other["unique_id"] = other.unique_id.replace({"a": "new"})
    panel = panel_from_frame(other[::-1])  # and in another order
    caplog.clear()
    mean, scale = series_units(panel, scaler)
    assert logged(caplog) == ["1 of 4 series not trained on; each is scaled by the rows given of it"]
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
    scaled.task, scaled.scaler = trained.task, trained.scaler
    scaled.setup("test")
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
    said = "1 of 3 series have no training value in some channel; these channels take the scale of all series"
    assert said in logged(caplog)
    assert (scaler.series_mean[1], scaler.series_scale[1]) == (scaler.mean, scaler.scale)
    assert scaler.series_mean[2] != scaler.mean


def test_missing_values_at_the_start_take_nothing_from_the_series_before() -> None:
    frame = long_frame({"a": 60, "b": 60})
    frame.loc[58:62, ["y", "rain"]] = np.nan
    data = prepared(frame, past_covariates=["rain"])
    assert (data.series.values[58:60] == data.series.values[57]).all()
    assert (data.series.values[60:63] == 0).all()
    assert (data.series.past_covariates[58:60] == data.series.past_covariates[57]).all()
    assert (data.series.past_covariates[60:63] == 0).all()


@pytest.mark.parametrize("name", [pd.Timestamp("2020-01-01"), b"shop"])
def test_ids_that_no_checkpoint_holds_are_refused(name: object) -> None:
    frame = long_frame({"a": 40, "b": 40})
    frame["unique_id"] = frame["unique_id"].astype(object).where(frame.unique_id == "a", name)
    with pytest.raises(
        UserError, match=f"the frame, row 41: .* is a {type(name).__name__}, not an id; valid are texts"
    ):
        panel_from_frame(frame)


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


@pytest.mark.parametrize("transform", ["log", "log1p", "box_cox", {"kind": "box_cox", "lambda": 0.25}])
@pytest.mark.parametrize("scaling", ["series", "global"])
def test_windows_are_standardised_after_the_transform_and_come_back(transform: Any, scaling: str) -> None:
    frame = positive()
    frame.loc[70, "y"] = np.nan
    data = prepared(frame, transform=transform, scaling=scaling)
    series = data.series
    back = series.units.restore(series.values[:, None], torch.arange(3).repeat_interleave(series.starts.diff()))
    known = frame.y.notna().to_numpy()
    np.testing.assert_allclose(back.flatten().numpy()[known], frame.y[known], rtol=1e-5)
    if scaling == "global":
        ends = series.starts[:-1] + torch.tensor([split.train_end for split in data.splits])
        rows = [torch.arange(first, end) for first, end in zip(series.starts[:-1], ends, strict=True)]
        train = series.values[torch.cat(rows)][known[torch.cat(rows).numpy()]]
        assert train.mean().abs() < 1e-5
        assert train.std(correction=0) == pytest.approx(1, abs=1e-5)


def test_a_series_that_was_not_trained_on_has_the_lambda_of_all_and_units_of_its_own() -> None:
    scaler = prepared(positive(), transform="box_cox").scaler
    other = positive(1).replace({"unique_id": {"b": "new"}})
    series = scaled_series(panel_from_frame(other), scaler)
    transform = series.transform
    known = dict(zip(scaler.ids, scaler.transform.series_lambdas, strict=True))
    expected = [known["a"], known["c"], scaler.transform.lambdas]
    np.testing.assert_allclose(transform.lambdas, expected)
    own = other[other.unique_id == "new"].y.to_numpy()
    assert (transform.mean[2, 0], transform.scale[2, 0]) == pytest.approx((own.mean(), own.std()))
    there = stats.boxcox(own, scaler.transform.lambdas[0])
    assert (series.mean[2, 0].item(), series.scale[2, 0].item()) == pytest.approx((there.mean(), there.std()))


@pytest.mark.parametrize(
    ("transform", "value", "message"),
    [
        (
            "log",
            0.0,
            r"log takes values above 0, but column y has 0 in row 4 of series b, 2024-01-04 .*: log1p takes 0",
        ),
        ("box_cox", -2.0, "box_cox takes values above 0, but column y has -2 in row 4 of series b"),
        ("log1p", -0.5, "log1p takes values of at least 0, but column y has -0.5 in row 4 of series b"),
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


def test_scores_are_those_of_the_values_themselves() -> None:
    """A naive forecast has the same scores, transformed or not: those that numpy finds on the frame."""
    frame, scores = positive(), {}
    for transform in (None, "log", "box_cox"):
        data = prepared(frame, transform=transform)
        table = measure(
            lambda batch: batch.past[:, -1:].expand_as(batch.target),
            data.eval_dataloader("test"),
            units=data.series.units,
            levels=(0.5,),
            ids=data.panel.ids,
            channels=data.panel.channels,
        )
        scores[transform] = table.scores()
    squared = []
    for number, split in enumerate(data.splits):
        y = frame.y.to_numpy()[data.panel.starts[number] : data.panel.starts[number + 1]]
        for origin in range(split.val_end, split.test_end - 4 + 1):
            squared.append((y[origin : origin + 4] - y[origin - 1]) / y[: split.train_end].std())
    for found in scores.values():
        assert found["mse_scaled"] == pytest.approx(np.square(squared).mean(), rel=1e-4)
        assert found["wql"] == pytest.approx(scores[None]["wql"], rel=1e-4)


def noisy_frames(sizes: dict[str, float], rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": np.arange(rows), "y": size * (9 + rng.normal(size=rows))})
        for name, size in sizes.items()
    ]
    return pd.concat(parts, ignore_index=True)


def said(frame: pd.DataFrame, caplog: pytest.LogCaptureFixture, scaling: str) -> list[str]:
    caplog.clear()
    Forecaster("ridge", context_length=8, prediction_length=3, scaling=scaling, quantiles=None).fit(frame)
    return [message for message in caplog.messages if "single precision" in message]


def test_small_series_on_the_scale_of_a_large_one_are_named(caplog: pytest.LogCaptureFixture) -> None:
    frame = noisy_frames({"a": 1e9, "b": 1.0, "c": 1e6})
    assert [message.split(" change")[0] for message in said(frame, caplog, "global")] == ["1 of 3 series ('b')"]
    assert not said(frame, caplog, "series")
    assert not said(noisy_frames({"a": 1e4, "b": 1.0}), caplog, "global")


def test_an_outlier_that_made_the_scale_is_told(caplog: pytest.LogCaptureFixture) -> None:
    frame = noisy_frames({"a": 1.0, "b": 1.0})
    frame.loc[10, "y"] = 1e9
    assert "1 of 2 series ('a')" in said(frame, caplog, "series")[0]
    frame.loc[10, "y"] = 1e3
    assert not said(frame, caplog, "series")


@pytest.mark.parametrize(
    ("fill", "share", "values"),
    [
        *((1e10, 0.0, "around ten"), (9e18, 0.3, "five"), (1e20, 0.0, "zero"), (9.97e36, 0.3, "around ten")),
        *((-3.4e38, 0.0, "five"), (1e10, 0.3, "zero")),
    ],
)
def test_a_fill_value_is_named_with_its_series_and_row(
    fill: float, share: float, values: str, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    y = {"around ten": rng.normal(10, 3, 300), "five": np.full(300, 5.0), "zero": np.zeros(300)}[values]
    y[(rng.random(300) < share) | (np.arange(300) == 20)] = fill
    good = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2020", periods=300), "y": rng.normal(10, 3, 300)})
    frame = pd.concat([good, good.assign(unique_id="b", y=y)], ignore_index=True)
    message = said(frame, caplog, "series")[0]
    first = pd.Timestamp("2020") + pd.Timedelta(int(np.abs(y - np.median(y)).argmax()), "D")
    assert message == (
        "1 of 2 series ('b') change by less than single precision tells apart: series b has the value "
        f"{fill:g} at {first}; empty that cell if it means missing"
    )


@pytest.mark.parametrize("kind", ["solar power", "intermittent sales", "weekly sales", "radiation"])
def test_honest_series_with_zeros_are_not_told(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    rng, hours = np.random.default_rng(0), np.arange(480)
    sun = np.maximum(0, np.sin((hours % 24 - 6) * np.pi / 12).round(12))
    sales = rng.uniform(1e5, 1e7, 480)
    values = {
        "solar power": 1e7 * sun * rng.uniform(0.3, 1, 480),
        "intermittent sales": np.where(rng.random(480) < 0.8, 0, sales),
        "weekly sales": np.where(hours % 7 == 0, 1000 * sales, 0),
        "radiation": 3.6e6 * sun,
    }[kind]
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=480, freq="h"), "y": values, "x": values})
    options = {"context_length": 8, "prediction_length": 3, "quantiles": None}
    Forecaster("ridge", target="y", past_covariates=["x"], **options).fit(frame)
    assert "empty that cell" not in caplog.text


@pytest.mark.parametrize("values", ["around ten", "five", "zero"])
def test_a_fill_value_in_every_second_row_is_told(values: str, caplog: pytest.LogCaptureFixture) -> None:
    y = {"around ten": np.random.default_rng(0).normal(10, 3, 301), "five": np.full(301, 5.0), "zero": np.zeros(301)}
    frame = pd.DataFrame({"unique_id": "a", "ds": np.arange(301), "y": y[values]})
    frame.loc[::2, "y"] = 9e18
    assert len(said(frame, caplog, "series")) == 1


def test_fill_values_of_one_channel_of_a_covariate_and_of_a_later_row(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), **{name: rng.normal(9, 1, 300) for name in "abcd"}})
    frame.loc[20, "b"] = 1e20
    assert "1 of 4 series ('b') change" in said(frame, caplog, "series")[0]
    frame.loc[20, ["b", "c"]] = 9.0, 1e20
    caplog.clear()
    options = {"context_length": 8, "prediction_length": 3, "quantiles": None}
    Forecaster("ridge", target="a", past_covariates=["b", "c", "d"], **options).fit(frame)
    assert "covariate c changes by less than single precision tells apart: it is 1e+20 at 2020-01-21" in caplog.text
    assert "covariate b" not in caplog.text
    frame.loc[[20, 290], "c"] = 9.0, 1e10
    caplog.clear()
    Forecaster("ridge", **options).fit(frame)
    assert "series c has the value 1e+10 at 2020-10-17 00:00:00, 1e+10 standard deviations from" in caplog.text


def test_they_are_those_whose_rounding_is_a_part_of_their_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps between series are no changes, nor is the rounding of constants; the same however rows are cut."""
    panel = TableReader.of({}).read(noisy_frames({"a": 1e-9, "b": 1e-3, "c": 0.0, "d": 3e-7}))
    scaled = panel.values + 5
    scaled[panel.starts[2] : panel.starts[3]] += np.spacing(5.0) * np.resize([0, 1], 60)[:, None]
    step = np.abs(np.diff(scaled.reshape(4, 60), axis=1)).mean(1)
    error = np.abs(scaled.astype(np.float32) - scaled).reshape(4, 60).mean(1)
    assert error[0] > step[0]
    assert error[1] < 0.001 * step[1]
    assert 0 < step[2] < 1e-15
    assert 0.1 * step[3] < error[3] < step[3]
    for piece in (1 << 20, 7):
        monkeypatch.setattr("tsattn.data.scaling._PIECE", piece)
        assert blurred_columns(scaled, np.zeros((4, 1)), panel.starts).ravel().tolist() == [True, False, False, True]


OPTIONS = {"context_length": 8, "prediction_length": 3, "quantiles": None}


def test_far_values_of_new_rows_are_told_of_targets_and_covariates(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(10, 3, 300) for name in ("y", "p", "f")}
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), **columns})
    model = Forecaster("ridge", target="y", past_covariates=["p"], future_covariates=["f"], **OPTIONS).fit(frame)
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


@pytest.mark.parametrize("column", ["y", "x"])
def test_a_far_value_of_a_mapped_panel_is_told_once(
    column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = noisy_frames({"a": 1.0, "b": 1.0}, 300).assign(x=np.random.default_rng(1).normal(10, 3, 600))
    frame.loc[595, column] = 1e6
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    roles = {"target": ["y"], "past_covariates": ["x"]}
    data = MappedDataModule(str(tmp_path / "t.parquet"), context_length=8, prediction_length=3, **roles)
    data.setup("fit")
    for loader in (data.test_dataloader(), data.predict_dataloader()):
        list(loader)
    what = "series b has the value 1e+06 at 295" if column == "y" else "covariate x is 1e+06 at 295 of series b"
    assert [m.split(",")[0] for m in caplog.messages if "standard deviations" in m] == [what]


def test_a_product_that_starts_late_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), "y": np.where(np.arange(300) < 290, 0, 5e6)})
    Forecaster("ridge", val_rows=15, test_rows=15, **OPTIONS).fit(frame)
    assert "empty that cell" not in caplog.text


def test_a_refit_says_nothing_twice(caplog: pytest.LogCaptureFixture) -> None:
    frame = noisy_frames({"a": 1.0}, 300)
    frame.loc[20, "y"] = 1e20
    Forecaster("ridge", **OPTIONS).fit(frame, refit=True)
    assert caplog.text.count("empty that cell") == 1
