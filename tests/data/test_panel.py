"""A panel cut, picked from and turned: what belongs together stays together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import ROLES, assert_same, covariate_frame, long_frame, wide_frame
from tsattn.data.matching import match_task
from tsattn.data.reader import panel_from_frame
from tsattn.errors import UserError
from tsattn.task import Task


def test_a_cut_panel_is_that_of_the_rows_before_with_the_covariates_of_those_after() -> None:
    frame = covariate_frame()  # 10 and 8 rows with a target, 4 ahead
    panel = panel_from_frame(frame, **ROLES)
    number = frame.groupby("unique_id").cumcount()
    late = number >= frame["unique_id"].map({"a": 7, "b": 6})
    cut = frame.assign(y=frame["y"].mask(late), rain=frame["rain"].mask(late))
    assert_same(panel.until(np.array([7, 6])), panel_from_frame(cut, **ROLES))


def test_without_covariates_what_is_cut_off_is_gone() -> None:
    frame = long_frame({"a": 9, "b": 6})
    cut = panel_from_frame(frame).until(np.array([5, 6]))
    assert_same(cut, panel_from_frame(frame.drop(index=[5, 6, 7, 8]), frequency="D"))


def test_the_last_rows_are_as_many_as_hold_a_value_of_each_channel() -> None:
    frame = long_frame({"a": 9, "b": 6, "c": 2}).assign(z=1.0)
    frame.loc[[6, 7, 8, 14], "z"] = np.nan
    panel = panel_from_frame(frame, target=["y", "z"]).last_rows(2)
    assert panel.lengths.tolist() == [4, 2, 2]
    assert panel.values[:, 0].tolist() == [5, 6, 7, 8, 13, 14, 15, 16]
    assert panel.time.tolist() == frame["ds"][[5, 6, 7, 8, 13, 14, 15, 16]].tolist()


def test_series_are_taken_with_all_that_is_theirs() -> None:
    frame = pd.concat([covariate_frame(), covariate_frame().query("unique_id == 'a'").assign(unique_id="c")])
    frame["shop"] = frame["unique_id"].map({"a": "x", "b": "y", "c": "z"})
    panel = panel_from_frame(frame, **ROLES, static=["shop"]).take(np.array([1, 2]))
    others = panel_from_frame(frame[frame["unique_id"] != "a"], **ROLES, static=["shop"])
    assert_same(replace(panel, static=panel.static - 1), others)


def test_channels_become_series_in_the_order_of_their_names() -> None:
    frame = wide_frame().rename(columns={"x": "n", "z": "m"})
    panel = panel_from_frame(frame).channels_as_series()
    long = frame.melt("date", var_name="unique_id", value_name="y").rename(columns={"date": "ds"})
    assert panel.ids == ("m", "n")
    assert_same(panel, panel_from_frame(long))
    with pytest.raises(UserError, match="has series already"):
        panel.channels_as_series()


def test_another_frequency_than_the_model_s_is_refused() -> None:
    task = Task("toy", 4, 2, ("y",), "h", 24)
    with pytest.raises(UserError, match="it lacks channel 'z'; the model was trained on y, z"):
        match_task(panel_from_frame(long_frame({"a": 5})), Task("toy", 4, 2, ("y", "z"), "D", 7), "it")
    with pytest.raises(UserError, match="it has frequency 'D'; the model was trained on 'h'"):
        match_task(panel_from_frame(long_frame({"a": 5})), task, "it")
