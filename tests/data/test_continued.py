"""A panel that goes on is the one that would be read from the table that goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.mapped.tables_to_map import ROLES, assert_same_panel, full_frame
from tsattn.data import Panel, panel_from_frame
from tsattn.data.matching import appended, with_future
from tsattn.errors import UserError

COLUMNS: dict[str, Any] = {"target": ["y", "z"], **ROLES}


def read(frame: pd.DataFrame, **options: Any) -> Panel:
    return panel_from_frame(frame, **{**COLUMNS, "frequency": "h", "max_filled": 1.0, **options})


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
    assert expected.ahead is not None
    assert np.isnan(expected.ahead[:, 1]).any()
    assert_same_panel(with_future(read(known), ahead.sample(frac=1, random_state=0)), expected)
    assert_same_panel(with_future(expected, ahead), expected)  # what was known before is replaced
    other = read(frame[frame.index != ahead.index[3]])
    later = replace(other, values=other.values[:0])  # a panel gives its rows after the ends
    whole = read(frame.assign(y=1.0, z=1.0))
    given = with_future(read(known), whole)
    assert given.ahead is not None
    assert given.ahead_starts.tolist() == [0, *np.cumsum(whole.lengths - given.lengths)]
    assert later.ahead is not None


def test_future_of_other_series_and_of_steps() -> None:
    table = pd.DataFrame({"unique_id": "a", "ds": range(20), "y": 1.0, "f": 2.0})
    panel = panel_from_frame(table, future_covariates=["f"])
    future = pd.DataFrame({"unique_id": ["b", "a", "a"], "ds": [20, 21, 20], "f": [0.0, 5.0, 4.0]})
    assert with_future(panel, future).ahead.tolist() == [[4.0], [5.0]]  # type: ignore[union-attr]
    with pytest.raises(UserError, match="is of series 'b', not of any in the series"):
        with_future(panel, future[:1])
    with pytest.raises(UserError, match=r"row 1: time stamp 19 of series a does not come after the last row"):
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


def test_overlapping_rows_are_those_of_the_later_panel() -> None:
    frame = full_frame(gaps=False)
    changed = frame.assign(y=frame["y"] + 1)
    later = changed[changed["ds"] > "2020-03-30"]
    expected = pd.concat([frame[frame["ds"] <= "2020-03-30"], later])
    assert_same_panel(appended(read(frame), read(later)), read(expected))
    assert_same_panel(appended(read(frame), read(changed)), read(changed))


def test_panels_that_do_not_fit_are_refused() -> None:
    frame = full_frame(gaps=False)
    panel = read(frame)
    late = frame.assign(ds=frame["ds"] + pd.Timedelta("30D 7min"))
    with pytest.raises(UserError, match="the later rows of series s0 are not on the time grid of those before"):
        appended(panel, read(late))
    with pytest.raises(UserError, match=r"have channels \('z',\), those before \('y', 'z'\)"):
        appended(panel, read(frame, target="z"))
    zoned = frame.assign(ds=frame["ds"].dt.tz_localize("UTC"))
    with pytest.raises(UserError, match="time stamps need one in both or in neither"):
        appended(panel, read(zoned))


def test_wide_panels_go_on(toy_frame: pd.DataFrame) -> None:
    whole = panel_from_frame(toy_frame)
    one, other = panel_from_frame(toy_frame[:300]), panel_from_frame(toy_frame[310:])
    gap = toy_frame.copy()
    gap[300:310] = np.nan
    assert_same_panel(appended(one, other), panel_from_frame(gap))
    assert_same_panel(appended(panel_from_frame(toy_frame[:310]), other), whole)


def test_later_rows_of_a_series_that_ends_where_clocks_skip_its_time_of_day() -> None:
    wall = pd.date_range("2024-02-20 02:30", periods=60, freq="D")
    stamps = wall.tz_localize("Europe/Berlin", nonexistent="shift_forward")
    frame = pd.DataFrame({"unique_id": "a", "ds": stamps, "y": np.arange(60.0)})
    end = [str(day) for day in wall.date].index("2024-03-31") + 1
    whole = appended(panel_from_frame(frame[:end]), panel_from_frame(frame[end + 2 :]))
    assert whole.time.tolist() == stamps.tolist()


@pytest.mark.parametrize("rows", [24, 4])
@pytest.mark.parametrize("step", ["D", "h"])
def test_a_future_off_the_grid_is_blamed_by_its_own_row(rows: int, step: str) -> None:
    days = pd.date_range("2024-01-01", periods=rows, freq="D")
    table = pd.DataFrame({"ds": days, "y": 1.0, "f": 2.0})
    late = pd.date_range(days[-1] + pd.Timedelta("36h"), periods=12, freq=step)
    future = pd.DataFrame({"ds": late, "f": 3.0})
    options: dict[str, Any] = {"target": "y", "future_covariates": ["f"], "frequency": "D"}
    said = f"the frame of future values, row 1: time stamp {late[0]} is not on the grid of its series, which ends at "
    with pytest.raises(UserError, match=said + str(days[-1])):
        with_future(panel_from_frame(table, **options), future)
    for frequency in ("D", None):
        with pytest.raises(UserError, match=said + str(days[-1])):
            panel_from_frame(table, future=future, **{**options, "frequency": frequency})
