from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from tests.wide_panels import wide_panel
from tsattn.data import Series
from tsattn.data import scaled_series as scaled_panel
from tsattn.data.scaling import moments, panel_moments
from tsattn.errors import UserError
from tsattn.scaler import Scaler


def frame_of(values: object, freq: str = "h") -> pd.DataFrame:
    array = np.asarray(values, dtype="float64").reshape(len(values), -1)
    index = pd.date_range("2020-01-01", periods=len(array), freq=freq)
    return pd.DataFrame(array, index=index, columns=[f"x{i}" for i in range(array.shape[1])])


def scaled_series(frame: pd.DataFrame, mean: tuple[float, ...], scale: tuple[float, ...]) -> Series:
    """One series on a scale of all."""
    panel = wide_panel(frame, "toy", frequency=f"{(frame.index[1] - frame.index[0]).total_seconds():.0f}s")
    return scaled_panel(panel, Scaler(mean, scale))


@pytest.mark.parametrize("value", [0.0, 3.0, 0.1, 1e9])
def test_constant_channel_has_scale_one(value: float) -> None:
    frame = frame_of([value] * 1000)
    mean, scale = moments([frame.to_numpy()], frame.columns)
    assert mean == pytest.approx((value,))
    assert scale == (1.0,)
    assert scaled_series(frame, mean, scale).values.abs().max() < 1e-5


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
        scaled_series(frame, (1.0,), (2.0,))


def test_round_trip_to_original_units(toy_frame: pd.DataFrame) -> None:
    mean, scale = moments([toy_frame[:300].to_numpy()], toy_frame.columns)
    series = scaled_series(toy_frame, mean, scale)
    np.testing.assert_array_equal(series.mean, [mean])
    np.testing.assert_array_equal(series.scale, [scale])
    assert series.values.dtype == torch.float32
    assert series.observed is None
    np.testing.assert_allclose(series.values[:300].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(series.values[:300].std(0, correction=0), 1, atol=1e-5)
    np.testing.assert_allclose(series.values.numpy() * scale + mean, toy_frame, rtol=1e-5, atol=1e-5)


def test_a_missing_value_repeats_the_last_one_and_at_the_start_is_the_mean() -> None:
    series = scaled_series(frame_of([np.nan, np.nan, 4, np.nan, np.nan, 8]), (2.0,), (2.0,))
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
    before = scaled_series(frame_of(values), (1.0,), (2.0,))
    after = scaled_series(frame_of(changed), (1.0,), (2.0,))
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
    time = scaled_series(frame, (0.0,), (1.0,)).time
    seconds = (pd.Timestamp(start) - pd.Timestamp("1970-01-01")).total_seconds()
    assert time.dtype == torch.int64
    assert time.tolist() == [seconds, seconds + 900, seconds + 1800]


def test_rows_lie_one_after_the_other(toy_frame: pd.DataFrame) -> None:
    """A window is then one run of memory, which cuts a batch three times as fast as one of columns."""
    series = scaled_series(toy_frame, (0.0, 0.0), (1.0, 1.0))
    assert series.values.is_contiguous()
