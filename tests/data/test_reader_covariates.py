"""Covariates with their future, in the table or in a frame of its own, and static columns."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import ROLES, assert_same, covariate_frame, logged, long_frame, refusal
from tsattn.data.matching import in_static_categories, match_task
from tsattn.data.reader import panel_from_frame
from tsattn.data.windows import future_for
from tsattn.errors import UserError
from tsattn.task import Task


def test_rows_after_the_last_target_are_the_future_of_covariates(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    frame = covariate_frame()
    panel = panel_from_frame(frame, **ROLES)
    known = frame[frame["y"].notna()]
    assert panel.lengths.tolist() == [10, 8]
    assert panel.time.tolist() == known["ds"].tolist()
    np.testing.assert_array_equal(panel.values, known[["y"]])
    np.testing.assert_array_equal(panel.past_covariates, known[["rain"]])
    np.testing.assert_array_equal(panel.future_covariates, known[["price", "promo"]].astype(float))
    assert panel.past_names == ("rain",)
    assert panel.future_names == ("price", "promo")
    future = frame[frame["y"].isna()]
    np.testing.assert_array_equal(panel.ahead, future[["price", "promo"]].astype(float))
    assert panel.ahead_starts.tolist() == [0, 4, 8]
    expected = future[["price", "promo"]].to_numpy(float).reshape(2, 4, 2)
    np.testing.assert_array_equal(future_for(panel, 4), expected)
    np.testing.assert_array_equal(future_for(panel, 2), expected[:, :2])
    assert panel.future_time(1, 4).tolist() == future["ds"].tolist()[4:]
    assert logged(caplog) == ["the frame: read 8 rows after the last targets as the future of the covariates"]


def test_future_may_come_in_a_frame_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    frame = covariate_frame()
    is_future = frame["y"].isna()
    future = frame.loc[is_future, ["price", "unique_id", "promo", "ds"]].iloc[::-1]
    panel = panel_from_frame(frame[~is_future], future=future, **ROLES)
    assert_same(panel, panel_from_frame(frame, **ROLES))
    # part in rows after the last target, part in the frame of future values
    early = frame["ds"] < frame.groupby("unique_id")["ds"].transform("max")
    panel = panel_from_frame(frame[early], future=frame.loc[~early].drop(columns="y"), **ROLES)
    assert_same(panel, panel_from_frame(frame, **ROLES))


def test_future_that_stops_early_is_refused_with_its_place() -> None:
    panel = panel_from_frame(covariate_frame().drop(index=25), **ROLES)  # the last row of series b
    assert future_for(panel, 3).shape == (2, 3, 2)
    with pytest.raises(UserError) as caught:
        future_for(panel, 4)
    message = str(caught.value)
    last = covariate_frame()["ds"][25]
    for fragment in ("covariate price", "stops early", "series b", str(last), "step 4 of the 4", "`--future FILE`"):
        assert fragment in message
    with pytest.raises(UserError, match=r"series a.*step 5 of the 6"):
        future_for(panel, 6)


def test_past_covariates_after_the_last_target_are_not_lost_silently(caplog: pytest.LogCaptureFixture) -> None:
    panel_from_frame(covariate_frame().assign(rain=1.0), **ROLES)
    assert logged(caplog) == ["the frame: values of the past covariate rain after the last targets are not used"]


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        pytest.param(
            lambda f: f.assign(unique_id="c"),
            ["of series 'c', not of any in the frame; valid are 'a', 'b'"],
            id="unknown series",
        ),
        pytest.param(
            lambda f: f.assign(ds=f["ds"] - pd.Timedelta(6, "D")), ["of future values, row 1", "twice"], id="overlap"
        ),
        pytest.param(
            lambda f: f.drop(columns="promo"), ["has no future covariate column promo"], id="column that lacks"
        ),
        pytest.param(lambda f: f.assign(price=np.inf), ["of future values, row 1", "price", "infinite"], id="infinite"),
        pytest.param(lambda f: f.assign(ds=f["ds"].dt.tz_localize("UTC")), ["time zone UTC"], id="other time zone"),
        pytest.param(lambda f: f[:0], ["no rows"], id="no rows"),
        pytest.param(
            lambda f: f.assign(ds=f["ds"] + pd.Timedelta(1, "h")),
            ["of future values, row 1", "grid"],
            id="off the grid",
        ),
        pytest.param(lambda f: f.assign(ds="soon"), ["of future values, row 1", "soon", "not a date"], id="no dates"),
        pytest.param(lambda f: f.to_dict(), ["dict"], id="no frame"),
    ],
)
def test_unusable_future_is_refused(change: Callable[[pd.DataFrame], object], fragments: list[str]) -> None:
    frame = covariate_frame()
    is_future = frame["y"].isna()
    message = refusal(
        frame[~is_future], future=change(frame.loc[is_future, ["unique_id", "ds", "price", "promo"]]), **ROLES
    )
    for fragment in ("frame of future values", *fragments):
        assert fragment in message


def test_future_of_other_series_is_left_out_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    frame = covariate_frame()
    is_future = frame["y"].isna()
    future = frame.loc[is_future, ["unique_id", "ds", "price", "promo"]]
    more = pd.concat([future.assign(unique_id="x")[:3], future, future.assign(unique_id="z")])
    panel = panel_from_frame(frame[~is_future], future=more, **ROLES)
    assert_same(panel, panel_from_frame(frame, **ROLES))
    assert logged(caplog) == ["the frame of future values: left out 2 series that the frame has not got: 'x', 'z'"]
    # rows are still named as they were given
    more.iloc[4, more.columns.get_loc("ds")] = more.iloc[3]["ds"]
    message = refusal(frame[~is_future], future=more, **ROLES)
    assert message.startswith("the frame of future values, row 5: time stamp")
    assert "first in the frame of future values, row 4" in message


def test_future_may_write_ids_as_text_that_are_numbers_in_the_table() -> None:
    frame = covariate_frame()
    frame["unique_id"] = frame["unique_id"].map({"a": 1, "b": 2})
    is_future = frame["y"].isna()
    future = frame.loc[is_future, ["unique_id", "ds", "price", "promo"]].astype({"unique_id": str})
    assert_same(panel_from_frame(frame[~is_future], future=future, **ROLES), panel_from_frame(frame, **ROLES))
    more = pd.concat([future, future[future["unique_id"] == "2"].assign(unique_id="9")])
    assert_same(panel_from_frame(frame[~is_future], future=more, **ROLES), panel_from_frame(frame, **ROLES))
    message = refusal(frame[~is_future], future=future.replace({"unique_id": {"1": "8", "2": "9"}}), **ROLES)
    assert "of series '8', '9', not of any in the frame; valid are 1, 2" in message


def test_covariates_without_any_future_are_named() -> None:
    frame = covariate_frame()
    panel = panel_from_frame(frame[frame["y"].notna()], **ROLES)
    advice = r"pass them with `--future FILE` \(Python: `future=frame`\)"
    with pytest.raises(UserError, match=f"^`price`, `promo` have no values for the next 3 steps; {advice}$"):
        future_for(panel, 3)
    frame.loc[frame["y"].isna(), "price"] = np.nan
    with pytest.raises(UserError, match="`price` has no values for the next 3 steps"):
        future_for(panel_from_frame(frame, **ROLES), 3)


def test_missing_covariates_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    frame = covariate_frame()
    frame.loc[[0, 2, 16], "price"] = np.nan
    frame.loc[3, "rain"] = np.nan
    panel_from_frame(frame, **ROLES)
    assert logged(caplog) == [
        "the frame: covariate rain: 1 of 18 values are missing; a model that needs one sees the last known",
        "the frame: covariate price: 3 of 18 values are missing; a model that needs one sees the last known",
    ]


def test_rows_without_a_target_need_not_repeat_the_category() -> None:
    frame = covariate_frame().assign(shop=lambda frame: frame["unique_id"].map({"a": "south", "b": "north"}))
    whole = panel_from_frame(frame, **ROLES, static="shop")
    is_future = frame["y"].isna()
    assert_same(panel_from_frame(frame.assign(shop=frame["shop"].mask(is_future)), **ROLES, static="shop"), whole)
    first = frame.assign(shop=frame["shop"].mask(frame.index == 0))
    assert "row 1: the category in static column shop is missing" in refusal(first, **ROLES, static="shop")
    without = panel_from_frame(frame.assign(shop=frame["shop"].mask(frame["unique_id"] == "b")), **ROLES, static="shop")
    assert without.static_categories == (("missing", "south"),)
    other = frame.assign(shop=frame["shop"].where(~is_future, "west"))
    assert "shop changes within series a, to west" in refusal(other, **ROLES, static="shop")


def test_future_within_the_history_is_refused() -> None:
    frame = long_frame({"a": 9}).assign(x=1.0)
    gap = frame.loc[[4], ["unique_id", "ds", "x"]]
    message = refusal(frame.drop(index=4), future=gap, future_covariates=["x"])
    assert "frame of future values, row 1" in message
    assert "2020-01-05" in message
    assert "does not come after the last row with a target" in message


def test_bool_covariates_are_0_and_1() -> None:
    frame = long_frame({"a": 4}).assign(p=[True, False, True, True], q=pd.array([True, None, False, True], "boolean"))
    panel = panel_from_frame(frame.assign(r=frame["q"].astype(object)), past_covariates=["p", "q", "r"])
    np.testing.assert_array_equal(panel.past_covariates, [[1, 1, 1], [0, np.nan, np.nan], [1, 0, 0], [1, 1, 1]])


def test_categories_of_training_number_those_of_later(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 4, "b": 3}).assign(shop=["south"] * 4 + ["west"] * 3, floor=2.0)
    panel = panel_from_frame(frame, static=["shop", "floor"])
    names, known = ("shop", "floor"), (("north", "south", "west"), ("1", "2"))
    later = in_static_categories(panel.select(static=names), known, "it")
    assert later.static.tolist() == [[1, 1], [2, 1]]
    assert (later.static_names, later.static_categories) == (names, known)
    swapped = in_static_categories(panel.select(static=names[::-1]), known[::-1], "it")
    assert swapped.static.tolist() == [[1, 1], [1, 2]]
    assert panel.select(static=()).static is None
    unseen = in_static_categories(panel.select(static=names), (("north", "south"), ("2",)), "it")
    assert unseen.static.tolist() == [[1, 0], [-1, 0]]
    assert unseen.to_frame()["shop"].unique().tolist() == ["south", "(not seen in training)"]
    assert in_static_categories(unseen, known, "it").static.tolist() == [[1, 1], [-1, 1]]
    told = "it: static column shop: series b has category west, not seen in training: the mean of the learnt categories"
    assert [message.startswith(told) for message in caplog.messages] == [True]
    with pytest.raises(UserError, match="it lacks the static column 'region' that the model was trained with"):
        match_task(panel, Task("toy", 4, 2, ("y",), "D", 7, static=("region",), categories=(("north",),)), "it")
