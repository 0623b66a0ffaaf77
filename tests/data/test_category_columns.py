"""Covariates that are categories, from the cells of a table to the numbers of a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tsattn.data import FrameDataModule, Panel, panel_from_frame
from tsattn.data.matching import match_task
from tsattn.errors import UserError

KINDS = ["rain", "sun", "wind", None, "sun", "fog", "rain", "wind"]


def table(kinds: list[str | None] = KINDS, **columns: object) -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=len(kinds), freq="D")
    return pd.DataFrame({"unique_id": "a", "ds": stamps, "y": np.arange(len(kinds)) + 0.5, "sky": kinds, **columns})


def read(frame: pd.DataFrame, **options: object) -> Panel:
    return panel_from_frame(frame, future_covariates=["sky"], **options)  # type: ignore[arg-type]


def test_text_and_categoricals_are_numbered_by_their_sorted_texts() -> None:
    for kind in ("object", "string", "category", "string[pyarrow]"):
        frame = table().astype({"sky": kind})
        panel, shuffled = read(frame), read(frame.sample(frac=1, random_state=0))
        assert panel.covariate_categories == {"sky": ("fog", "rain", "sun", "wind")}
        for one in (panel, shuffled):
            np.testing.assert_array_equal(one.future_covariates[:, 0], [2, 3, 4, np.nan, 3, 1, 2, 4])
        assert [None if pd.isna(cell) else cell for cell in panel.to_frame()["sky"]] == KINDS


def test_bools_and_text_of_numbers_stay_numbers_and_a_typo_among_numbers_is_refused() -> None:
    numbers = read(table(["1", "2", None, "4.5"]))
    assert not numbers.covariate_categories
    np.testing.assert_array_equal(numbers.future_covariates, [[1], [2], [np.nan], [4.5]])
    assert not read(table().assign(sky=True)).covariate_categories
    with pytest.raises(UserError, match=r"row 3: 4,x in column sky is not a number"):
        read(table(["1", "2", "4,x"]))
    # a Categorical says that its numbers are none
    days = read(table().assign(sky=pd.Categorical([1, 2, 10, 1, 2, 10, 1, 2])))
    assert days.covariate_categories == {"sky": ("1", "10", "2")}


def test_the_future_may_have_other_categories_than_the_past() -> None:
    future = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-09", periods=2), "sky": ["hail", "sun"]})
    panel = read(table(), future=future)
    assert panel.covariate_categories == {"sky": ("fog", "hail", "rain", "sun", "wind")}
    np.testing.assert_array_equal(panel.ahead, [[2], [4]])
    np.testing.assert_array_equal(panel.future_covariates[:3, 0], [3, 4, 5])
    np.testing.assert_array_equal(panel.until(np.array([6])).ahead, [[3], [5], [2], [4]])


def fitted(kinds: list[str | None], **options: object) -> FrameDataModule:
    data = FrameDataModule(table(kinds), past_covariates=["sky"], context_length=4, prediction_length=2, **options)
    data.setup("fit")
    return data


def test_categories_are_those_of_the_training_rows_and_others_are_none_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = fitted(["a", "c", "a", "c"] * 10 + ["b", "a", "a", "c", "d"], val_rows=2, test_rows=2)
    assert data.task.covariate_categories == (("a", "b", "c"),)
    assert "covariate sky: d not seen in training" in caplog.text
    np.testing.assert_array_equal(data.series.past_covariates[-4:, 0], [1, 1, 3, 0])
    assert (data.scaler.covariate_mean, data.scaler.covariate_scale) == ((0.0,), (1.0,))
    # what a trained model is given later has its numbers, whatever else is in the table
    later = read_for(data, table(["zebra", "c", "b"]))
    np.testing.assert_array_equal(later.past_covariates, [[0], [3], [2]])
    # and what was unseen once is so again
    again = match_task(panel_from_frame(later.to_frame(), past_covariates=["sky"]), data.task, "it")
    np.testing.assert_array_equal(again.past_covariates, [[0], [3], [2]])


def read_for(data: FrameDataModule, frame: pd.DataFrame) -> Panel:
    assert data.task is not None
    return match_task(panel_from_frame(frame, past_covariates=["sky"], frequency="D"), data.task, "the frame")


def test_numbers_where_categories_were_trained_on_are_refused_and_many_categories_too() -> None:
    data = fitted(["a", "b"] * 20)
    with pytest.raises(UserError, match="the frame has numbers in covariate sky; the model was trained on categories"):
        read_for(data, table(["1", "2", "3"]))
    with pytest.raises(UserError, match="covariate sky has 280 categories in the training rows; give at most 256"):
        fitted([f"kind {number}" for number in range(400)])


def test_a_missing_category_is_the_last_known_one_and_at_the_start_none() -> None:
    data = fitted([None, "b", None, "a"] * 10)
    assert data.series.past_covariates[:8, 0].tolist() == [0, 2, 2, 1, 1, 2, 2, 1]
    batch = data.windows("train")[0]
    assert batch.past_covariates_observed[0, :, 0].tolist() == [False, True, False, True]


def test_a_series_without_a_static_category_has_the_missing_one() -> None:
    parts = [table().assign(unique_id=name, shop=shop) for name, shop in zip("abc", ["x", None, "x"], strict=True)]
    frame = pd.concat(parts, ignore_index=True).drop(columns="sky")
    panel = panel_from_frame(frame, static=["shop"])
    assert panel.static_categories == (("missing", "x"),)
    assert panel.static[:, 0].tolist() == [1, 0, 1]
    assert panel.to_frame().groupby("unique_id")["shop"].first().tolist() == ["x", "missing", "x"]
    frame.loc[1, "shop"] = None
    with pytest.raises(UserError, match="row 2: the category in static column shop is missing"):
        panel_from_frame(frame, static=["shop"])
