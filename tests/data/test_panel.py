"""A panel cut, picked from and turned, and one that goes on as the table that goes on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.cases import ROLES as DAILY_ROLES
from tests.data.cases import assert_same, covariate_frame, wide_frame
from tests.data.cases import long_frame as counted_frame
from tests.data.many_series import COLUMNS, LENGTHS, L, T, everything, long_frame, prepared
from tests.data.mapped.tables_to_map import ROLES, assert_same_panel, full_frame
from tsattn.data import FutureWindows, Panel, panel_from_frame, scaled_series
from tsattn.data.matching import appended, match_task, with_future
from tsattn.errors import UserError
from tsattn.task import Task


def test_a_cut_panel_is_that_of_the_rows_before_with_the_covariates_of_those_after() -> None:
    frame = covariate_frame()  # 10 and 8 rows with a target, 4 ahead
    panel = panel_from_frame(frame, **DAILY_ROLES)
    number = frame.groupby("unique_id").cumcount()
    late = number >= frame["unique_id"].map({"a": 7, "b": 6})
    cut = frame.assign(y=frame["y"].mask(late), rain=frame["rain"].mask(late))
    assert_same(panel.until(np.array([7, 6])), panel_from_frame(cut, **DAILY_ROLES))


def test_the_last_rows_are_as_many_as_hold_a_value_of_each_channel() -> None:
    frame = counted_frame({"a": 9, "b": 6, "c": 2}).assign(z=1.0)
    frame.loc[[6, 7, 8, 14], "z"] = np.nan
    panel = panel_from_frame(frame, target=["y", "z"]).last_rows(2)
    assert panel.lengths.tolist() == [4, 2, 2]
    assert panel.values[:, 0].tolist() == [5, 6, 7, 8, 13, 14, 15, 16]
    assert panel.time.tolist() == frame["ds"][[5, 6, 7, 8, 13, 14, 15, 16]].tolist()


def test_series_are_taken_with_all_that_is_theirs() -> None:
    frame = pd.concat([covariate_frame(), covariate_frame().query("unique_id == 'a'").assign(unique_id="c")])
    frame["shop"] = frame["unique_id"].map({"a": "x", "b": "y", "c": "z"})
    panel = panel_from_frame(frame, **DAILY_ROLES, static=["shop"]).take(np.array([1, 2]))
    others = panel_from_frame(frame[frame["unique_id"] != "a"], **DAILY_ROLES, static=["shop"])
    assert_same(replace(panel, static=panel.static - 1), others)


def test_channels_become_series_in_the_order_of_their_names() -> None:
    frame = wide_frame().rename(columns={"x": "n", "z": "m"})
    panel = panel_from_frame(frame).channels_as_series()
    long = frame.melt("date", var_name="unique_id", value_name="y").rename(columns={"date": "ds"})
    assert panel.ids == ("m", "n")
    assert_same(panel, panel_from_frame(long))
    with pytest.raises(UserError, match="has an id column already"):
        panel.channels_as_series()


def test_another_frequency_than_the_model_s_is_refused() -> None:
    task = Task("toy", 4, 2, ("y",), "h", 24)
    with pytest.raises(UserError, match="it lacks channel 'z'; the model was trained on y, z"):
        match_task(panel_from_frame(counted_frame({"a": 5})), Task("toy", 4, 2, ("y", "z"), "D", 7), "it")
    with pytest.raises(UserError, match="it has frequency 'D'; the model was trained on 'h'"):
        match_task(panel_from_frame(counted_frame({"a": 5})), task, "it")


LATER: dict[str, Any] = {"target": ["y", "z"], **ROLES}


def read(frame: pd.DataFrame, **options: Any) -> Panel:
    return panel_from_frame(frame, **{**LATER, "frequency": "h", "max_filled": 1.0, **options})


def known_and_ahead(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows up to the last target of each series, and the ids, time stamps and future covariates after it."""
    last = frame["unique_id"].map(frame[frame["y"].notna() | frame["z"].notna()].groupby("unique_id")["ds"].max())
    is_ahead = frame["ds"] > last
    return frame[~is_ahead], frame.loc[is_ahead, ["unique_id", "ds", "f", "g"]]


@pytest.mark.parametrize("tz", [None, "Europe/Berlin"])
def test_future_is_that_of_the_table(tz: str | None) -> None:
    frame = full_frame(tz=tz)
    known, ahead = known_and_ahead(frame)
    ahead = ahead[ahead.index != ahead.index[3]]  # a gap
    expected = read(known, future=ahead)
    assert np.isnan(expected.ahead[:, 1]).any()
    assert_same_panel(with_future(read(known), ahead.sample(frac=1, random_state=0)), expected)
    assert_same_panel(with_future(expected, ahead), expected)  # what was known before is replaced


def test_future_of_other_series_and_of_steps() -> None:
    table = pd.DataFrame({"unique_id": "a", "ds": range(20), "y": 1.0, "f": 2.0})
    panel = panel_from_frame(table, future_covariates=["f"])
    future = pd.DataFrame({"unique_id": ["b", "a", "a"], "ds": [20, 21, 20], "f": [0.0, 5.0, 4.0]})
    assert with_future(panel, future).ahead.tolist() == [[4.0], [5.0]]
    with pytest.raises(UserError, match="has series 'b', but none of the series"):
        with_future(panel, future[:1])
    with pytest.raises(UserError, match=r"row 1: time stamp 19 of series a is not after the last row"):
        with_future(panel, future[1:].assign(ds=[19, 20]))
    with pytest.raises(UserError, match="is there twice"):
        with_future(panel, future[1:].assign(ds=20))
    with pytest.raises(UserError, match="no `future_covariates` were named before the fit; leave out `--future`"):
        with_future(panel_from_frame(table.drop(columns="f")), future)


@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(-20, 400), min_size=4, max_size=4), gap=st.integers(0, 30), seed=st.integers(0, 99))
def test_later_rows_are_those_of_one_table(cuts: list[int], gap: int, seed: int) -> None:
    frame = full_frame(gaps=False).sort_values(["unique_id", "ds"])
    is_ahead = frame["p"].eq(3.0)
    frame = frame.assign(**{name: frame[name].fillna(0.5).mask(is_ahead) for name in ("y", "z")})
    place = frame.groupby("unique_id").cumcount()
    sizes = frame.groupby("unique_id")["ds"].transform("size")
    cut = frame["unique_id"].map(dict(zip(["s0", "s1", "s2", "s3"], cuts, strict=True))).clip(upper=sizes - 15)
    before, after = frame[place < cut - gap], frame[place >= cut]
    if not len(before):
        return
    options = {"future_covariates": ["f", "g"], "past_covariates": ["p"], "static": ["kind", "size"]}
    one, other = read(before, **options), read(after.sample(frac=1, random_state=seed), **options)
    assert_same_panel(appended(one, other), read(pd.concat([before, after]), **options))


def test_overlapping_rows_are_those_of_the_later_panel(toy_frame: pd.DataFrame) -> None:
    frame = full_frame(gaps=False)
    changed = frame.assign(y=frame["y"] + 1)
    later = changed[changed["ds"] > "2020-03-30"]
    expected = pd.concat([frame[frame["ds"] <= "2020-03-30"], later])
    assert_same_panel(appended(read(frame), read(later)), read(expected))
    assert_same_panel(appended(read(frame), read(changed)), read(changed))
    wide = toy_frame.copy()
    wide[300:310] = np.nan
    found = appended(panel_from_frame(toy_frame[:300]), panel_from_frame(toy_frame[310:]))
    assert_same_panel(found, panel_from_frame(wide))


def test_later_rows_keep_stamps_that_occur_twice() -> None:
    days = pd.date_range("2017-10-01 02:30", periods=60, freq="D").tz_localize("Europe/Berlin", ambiguous=[False] * 60)
    frame = pd.DataFrame({"ds": days, "y": range(60)})
    found = appended(panel_from_frame(frame[:40]), panel_from_frame(frame[40:]))
    assert found.time.equals(pd.DatetimeIndex(days))


def test_panels_that_do_not_fit_are_refused() -> None:
    frame = full_frame(gaps=False)
    panel = read(frame)
    late = frame.assign(ds=frame["ds"] + pd.Timedelta("30D 7min"))
    with pytest.raises(UserError, match="the later rows of series s0 are not on the time grid of the rows before"):
        appended(panel, read(late))
    with pytest.raises(UserError, match=r"have channels \('z',\), but earlier rows \('y', 'z'\)"):
        appended(panel, read(frame, target="z"))
    zoned = frame.assign(ds=frame["ds"].dt.tz_localize("UTC"))
    with pytest.raises(UserError, match="give both a time zone, or neither"):
        appended(panel, read(zoned))


def test_future_windows_hold_the_end_of_each_series_and_what_is_ahead() -> None:
    frame = long_frame(LENGTHS, ahead=T + 1)
    data = prepared(frame, **COLUMNS)
    scaler = data.scaler
    windows = FutureWindows(data.panel, data.series, data.task, scaler)
    assert len(windows) == 4
    batch = everything([windows.__getitems__([3, 0]), windows.__getitems__([2])])
    assert "target" not in batch
    prices = batch["future_covariates"][..., 0].double() * scaler.covariate_scale[1] + scaler.covariate_mean[1]
    for place, number in enumerate([3, 0, 2]):
        name, rows = list(LENGTHS.items())[number]
        own, pad = frame[frame.unique_id == name].reset_index(drop=True), max(0, L - rows)
        stamps = pd.to_datetime(batch["time"][place].numpy(), unit="s")
        assert stamps[pad:].tolist() == own.ds[rows - L + pad : rows + T].tolist()
        assert (batch["future_covariates"][place, :pad] == 0).all()
        np.testing.assert_allclose(prices[place, pad:], own.price[rows - L + pad : rows + T], atol=1e-4)
        y = batch["past"][place, pad:, 0].double() * scaler.series_scale[number][0] + scaler.series_mean[number][0]
        np.testing.assert_allclose(y, own.y[rows - L + pad : rows], atol=1e-3)
        assert batch["past_observed"][place, :, 0].tolist() == [False] * pad + [True] * (L - pad)


def test_what_rows_that_have_come_lack_is_imputed_as_in_a_window() -> None:
    """The windows beyond a cut are those of the whole series there, where covariates may be missing."""
    frame = long_frame({"a": 60, "b": 50, "c": 2 * T}).reset_index(drop=True)
    frame.loc[[60 - T - 1, 60 - T, 60 - 1, 60 + 50 - T, 60 + 50 - 2], "price"] = np.nan
    frame.loc[frame["unique_id"] == "c", "price"] = np.nan  # there is no number before it
    data = prepared(frame, **COLUMNS)
    ends = data.panel.lengths - T
    cut = replace(data.panel.until(ends), fills_ahead=True)
    windows = FutureWindows(cut, scaled_series(cut, data.scaler), data.task, data.scaler)
    found = windows.__getitems__([0, 1, 2])
    expected = data.series.windows(torch.arange(3), torch.from_numpy(ends), L, T)
    torch.testing.assert_close(found.future_covariates, expected.future_covariates, rtol=0, atol=0)
    torch.testing.assert_close(found.future_covariates_observed, expected.future_covariates_observed)
    with pytest.raises(UserError, match="price stops early"):
        FutureWindows(data.panel.until(ends), windows.series, data.task, data.scaler)


@pytest.mark.parametrize(
    ("first", "frequency", "zone", "last"),
    [
        ("2017-09-06", "D", "America/Sao_Paulo", "2017-10-15"),  # midnight is skipped
        ("2017-01-15", "MS", "America/Sao_Paulo", "2017-10-15"),
        ("2017-09-06 01:00", "D", "America/Sao_Paulo", "2017-10-15"),  # which is the usual time here
    ],
)
def test_the_usual_time_of_day_returns_after_a_day_that_skips_it(
    first: str, frequency: str, zone: str, last: str
) -> None:
    """Of series that end on that day, and of others that end with them but have another time of day."""
    start = pd.Timestamp(first)
    wall = pd.date_range(start.replace(day=1) if frequency == "MS" else start, periods=60, freq=frequency)
    wall += start - wall[0]
    stamps = wall.tz_localize(zone, nonexistent="shift_forward")
    end = [str(day) for day in wall.date].index(last) + 1
    noons = (wall[:end].normalize() + pd.Timedelta(12, "h")).tz_localize(zone)
    parts = {"a": stamps[:end], "b": noons, "c": stamps[: end - 1], "d": stamps[: end + 1], "e": stamps[end - 1 : end]}
    frame = pd.concat([pd.DataFrame({"unique_id": name, "ds": index, "y": 1.0}) for name, index in parts.items()])
    panel = panel_from_frame(frame, frequency=frequency)
    times = panel.future_times(np.arange(5), 3)
    assert {stamp.hour for stamp in times[3:6]} == {12}
    for number, after in ((0, end), (2, end - 1), (3, end + 1), *([(4, end)] if frequency == "D" else [])):
        assert times[3 * number : 3 * number + 3].tolist() == stamps[after : after + 3].tolist(), number
    assert panel.future_time(0, 3).tolist() == times[:3].tolist()
