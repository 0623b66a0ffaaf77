"""Which column is what, by usual names or given ones; covariates that are categories; weights of rows and series."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from tests.data.cases import assert_same, long_frame, refusal, wide_frame, with_cell
from tests.forecaster.toys import frame_of
from tsattn.data import CSVDataModule, FrameDataModule, Panel, panel_from_frame
from tsattn.data.mapped import convert
from tsattn.data.matching import match_task
from tsattn.data.table_options import RowWeights, TableOptions
from tsattn.errors import UserError


def test_usual_names_are_found_others_given_and_indexes_taken() -> None:
    frame = long_frame({"a": 5, "b": 4})
    expected = panel_from_frame(frame)
    for table in (
        frame.set_axis(["item_id", "timestamp", "target"], axis=1),
        frame.set_index(["unique_id", "ds"]),
        frame.set_index("unique_id"),
        frame.set_axis(pd.date_range("2000-01-01", periods=9, name="read")),  # whose time is in a column all the same
    ):
        assert_same(panel_from_frame(table), expected)
    named = frame.set_axis(["shop", "day", "sold"], axis=1)
    for table in (named, named.set_axis(pd.date_range("2000-01-01", periods=9))):
        panel = panel_from_frame(table, id_column="shop", time_column="day", target="sold")
        assert panel.channels == ("sold",)
        assert_same(panel, expected)
    ids = pd.Series([*"aaaaa", *4 * ["b\ud800"]], dtype="string[python]")  # no text to pyarrow
    assert panel_from_frame(frame.assign(unique_id=ids)).ids == ("a", "b\ud800")


def test_index_of_time_stamps_is_understood() -> None:
    frame = wide_frame()
    for name in (None, "date", "whatever"):
        assert_same(panel_from_frame(frame.set_index("date").rename_axis(name)), panel_from_frame(frame))


@pytest.mark.parametrize(("name", "index_name", "as_period"), [("ds", "ds", True), ("timestamp", "when", False)])
def test_a_column_called_like_time_stamps_beside_an_index_of_them(
    name: str, index_name: str | None, as_period: bool
) -> None:
    stamps = pd.date_range("2024-01-01", periods=9, freq="D", name=index_name)
    index = stamps.to_period("D") if as_period else stamps
    frame = pd.DataFrame({name: range(9), "x": 2.0}, index=index)
    message = refusal(frame)
    assert f"time stamps as its index and a column {name}" in message
    assert f"time_column '{name}'" in message
    late = frame.assign(**{name: (stamps + pd.Timedelta(30, "D")).to_numpy()})
    assert "rename that column" in refusal(late)
    assert panel_from_frame(late, time_column=name).time[0] == pd.Timestamp("2024-01-31")
    for same in (stamps.to_numpy(), stamps.strftime("%Y-%m-%d").to_numpy(), index.to_numpy()):
        panel = panel_from_frame(frame.assign(**{name: same}))
        assert (panel.time_name, panel.channels) == (name, ("x",))
        assert panel.time.tolist() == stamps.tolist()


def test_the_values_of_a_series_may_be_called_like_time_stamps() -> None:
    """Its index is the time, as there is nothing else."""
    stamps = pd.date_range("2024-01-01", periods=9, freq="D", name="ds")
    panel = panel_from_frame(pd.Series(np.arange(9.0) + 2000, index=stamps, name="ds"))
    assert (panel.channels, panel.values[:, 0].tolist()) == (("ds",), [*range(2000, 2009)])
    assert panel.time.tolist() == stamps.tolist()
    assert panel.time_name != "ds"


def test_numbers_may_name_columns() -> None:
    frame = long_frame({"a": 9, "b": 8})
    numbered = frame.set_axis([0, 1, 2], axis=1)
    panel = panel_from_frame(numbered, id_column=0, time_column=np.int64(1), target=[2])
    assert_same(panel, panel_from_frame(frame))
    assert (panel.id_name, panel.time_name, panel.channels) == ("0", "1", ("2",))
    for option, value in (("target", 2.5), ("static", [None]), ("id_column", [None])):
        said = f"{option} must be the name of a column or a list of names, not {value}"
        assert said in refusal(frame, **{option: value})
    assert "time_column must be the name of a column, not ['a']" in refusal(frame, time_column=["a"])


DAYS = pd.date_range("2024-01-01", periods=40)


@pytest.mark.parametrize(("usual", "others"), [("y", "temperature"), ("target", "promo, temperature")])
def test_a_usual_target_beside_others_asks_which_are_targets(usual: str, others: str, tmp_path: Path) -> None:
    names = [usual, *others.split(", ")]
    frame = pd.DataFrame({"ds": DAYS, **{name: np.arange(40.0) for name in names}})
    said = (
        f"has {usual} and also {others}: give target {usual} (the others as past_covariates or id_column), "
        f"or target [{', '.join(names)}] to forecast all"
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    for table in (frame, frame.set_index("ds"), pl.from_pandas(frame).lazy(), tmp_path / "t.csv"):
        assert said in refusal(table)
    with pytest.raises(UserError, match=re.escape(said)):
        convert(tmp_path / "t.csv", tmp_path / "folder", TableOptions())
    assert panel_from_frame(frame, target=usual).channels == (usual,)
    assert panel_from_frame(frame, target=names).channels == tuple(names)
    assert panel_from_frame(frame, past_covariates=names[1:]).channels == (usual,)


def test_two_ids_at_one_time_stamp_ask_for_their_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"store": np.repeat([1, 2], 40), "ds": np.tile(DAYS, 2), "y": 1.0})
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    hint = "For several series, name the id column: `--data.id_column` (Python: `id_column=`)"
    assert hint in refusal(frame, target="y")
    more = "For several series, list all id columns: `--data.id_column` (Python: `id_column=`)"
    assert more in refusal(frame.assign(unique_id="a"), target="y")
    with pytest.raises(UserError, match=re.escape(hint)):
        convert(tmp_path / "t.parquet", tmp_path / "out", TableOptions(target="y"))
    assert panel_from_frame(tmp_path / "t.parquet", id_column="store").ids == (1, 2)


FIVE = long_frame({"a": 5})
ZONED = pd.Timestamp("2020-01-01", tz="UTC")


def stamped(*stamps: object) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "a", "ds": pd.Series(stamps, dtype=object), "y": 1.0})


# frame, options, and what is said of it: parts between dots
CASES = [
    (FIVE.iloc[:0], {}, "no rows"),
    (with_cell("y", 6, np.inf), {"source": "sales.csv"}, "sales.csv, row 7: the value of y is infinite"),
    (with_cell("y", 6, "much"), {}, "row 7: much in column y is not a number ... (correct the cell, or empty it if"),
    (wide_frame().assign(z="much"), {"target": "z"}, "row 1: much in column z ... (correct the cell, or empty it if"),
    (wide_frame().assign(z="much"), {}, "row 1: much in column z ... (name text columns as static, or list the"),
    (with_cell("y", 6, True), {}, "row 7: True in column y"),
    (with_cell("y", 6, 10**400), {}, "row 7 ... column y"),
    (FIVE.assign(y=pd.Timestamp("2020-01-01")), {}, "row 1 ... column y"),
    (with_cell("unique_id", 6, None), {}, "row 7: the id in column unique_id is missing"),
    (with_cell("unique_id", 6, ["a"]), {}, "column unique_id holds no ids"),
    (with_cell("unique_id", 6, 1j), {}, "row 7: 1j in column unique_id is a complex, not an id"),
    (FIVE.assign(y=np.nan), {}, "every target ... missing ... at least one"),
    (wide_frame()[["date"]], {}, "no target column; its columns are date"),
    (wide_frame().rename(columns={"date": "when"}), {}, "no time column found ... when, x, z ... time_column=NAME"),
    (FIVE[["unique_id", "ds"]], {}, "y or target ... unique_id, ds"),
    (FIVE, {"target": "z"}, "no target column z; its columns are unique_id, ds, y"),
    (FIVE, {"id_column": "unique_di"}, "no id column unique_di (did you mean unique_id?)"),
    (FIVE, {"time_column": "z"}, "no time column z"),
    (FIVE, {"future_covariates": "zz"}, "no future covariate column zz"),
    (FIVE.assign(p=1.0), {"past_covariates": "p", "static": "p"}, "column p ... past covariate and as static"),
    (wide_frame().set_axis(["date", "x", "x"], axis=1), {}, "two columns x"),
    (
        pd.concat([FIVE, FIVE[2:3]]),
        {},
        "row 6: time stamp 2020-01-03 ... series a is there twice ... row 3: remove one. For",
    ),
    (wide_frame().iloc[[0, 1, 1, 2]], {}, "row 3 ... twice ... row 2"),
    (with_cell("ds", 6, "soon"), {}, "row 7: soon ... not a date"),
    (FIVE.assign(ds=np.arange(5) / 2), {}, "row 1 ... column ds is not a date"),
    (stamped("2020-01-01", "2020-01-02T00:00Z", "2020-01-03"), {}, "row 2: ... time zone"),
    (stamped(ZONED.to_pydatetime(), pd.Timestamp("2020-01-02").to_pydatetime()), {}, "row 2: ... time zone"),
    (long_frame({"a": 1, "b": 2}, "MS"), {}, "no series has the 3 rows ... `--data.frequency`"),
    (FIVE, {"frequency": "hourly"}, "'hourly' is not a frequency"),
    (
        FIVE.assign(p=["hot", "1", "2", "3", "4"]),
        {"past_covariates": "p"},
        "row 1: hot in column p is not a number; a past covariate needs numbers, bools, or text without a number",
    ),
    (FIVE.assign(p=np.nan), {"past_covariates": "p"}, "every value of covariate p is missing"),
    (FIVE.assign(k=list("xxyxx")), {"static": "k"}, "row 3: static column k changes within series a, to y"),
    (FIVE.assign(k=["x", None, "x", "x", "x"]), {"static": "k"}, "row 2 ... k is missing"),
    (FIVE.assign(k=[[1]] * 5), {"static": "k"}, "static column k holds no categories"),
]


@pytest.mark.parametrize(("frame", "options", "said"), CASES)
def test_a_table_that_cannot_be_used_is_refused(frame: pd.DataFrame, options: dict[str, object], said: str) -> None:
    message = refusal(frame, **options)
    for part in said.split(" ... "):
        assert part in message


KINDS = ["rain", "sun", "wind", None, "sun", "fog", "rain", "wind"]


def table(kinds: list[str | None] = KINDS, **columns: object) -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=len(kinds), freq="D")
    return pd.DataFrame({"unique_id": "a", "ds": stamps, "y": np.arange(len(kinds)) + 0.5, "sky": kinds, **columns})


def read(frame: pd.DataFrame, **options: object) -> Panel:
    return panel_from_frame(frame, future_covariates=["sky"], **options)


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
    again = match_task(panel_from_frame(later.to_frame(), past_covariates=["sky"]), data.task, "it")
    np.testing.assert_array_equal(again.past_covariates, [[0], [3], [2]])


def read_for(data: FrameDataModule, frame: pd.DataFrame) -> Panel:
    return match_task(panel_from_frame(frame, past_covariates=["sky"], frequency="D"), data.task, "the frame")


def test_numbers_where_categories_were_trained_on_are_refused_and_many_categories_too() -> None:
    data = fitted(["a", "b"] * 20)
    with pytest.raises(UserError, match="the frame has numbers in covariate sky; the model was trained on categories"):
        read_for(data, table(["1", "2", "3"]))
    with pytest.raises(UserError, match="covariate sky has 280 categories in the training rows; use at most 256"):
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


SIZES: dict[str, Any] = {"context_length": 12, "prediction_length": 4}


def long(seed: int = 0) -> pd.DataFrame:
    frame = frame_of({"b": 80, "a": 60})
    return frame.assign(w=np.random.default_rng(seed).integers(0, 4, len(frame)))


def test_column_series_and_rows_are_multiplied_whatever_the_order_of_rows() -> None:
    frame = long()
    stretch = "2024-01-01 05:00", "2024-01-01 08:00"
    weights = RowWeights.of({"a": 0.5}, [(*stretch, 3), ("2024-01-01 08:00", "2024-01-02 00:00", 0)])
    shuffled = frame.sample(frac=1, random_state=0)
    shuffled = shuffled[shuffled["ds"] != "2024-01-02 03:00"]  # a gap, which has no weight
    panel = panel_from_frame(shuffled, weight_column="w", weights=weights)
    expected = frame.sort_values(["unique_id", "ds"], ignore_index=True)
    value = expected["w"] * np.where(expected["unique_id"] == "a", 0.5, 1.0)
    value *= np.where(expected["ds"].between(*map(pd.Timestamp, stretch)), 3, 1)
    value *= np.where(expected["ds"].between(pd.Timestamp("2024-01-01 08:00"), pd.Timestamp("2024-01-02")), 0, 1)
    value[expected["ds"] == "2024-01-02 03:00"] = 0
    np.testing.assert_array_equal(panel.weights[:, 0], value)
    assert panel.channels == ("y",)
    np.testing.assert_array_equal(panel.take(np.array([1])).weights, panel.weights[60:])


def test_columns_of_a_wide_table_are_series_and_the_weights_are_none(toy_frame: pd.DataFrame) -> None:
    frame = toy_frame.assign(w=2.0)
    panel = panel_from_frame(frame, weight_column="w", weights=RowWeights.of({"drift": 3}))
    assert panel.channels == ("wave", "drift")
    np.testing.assert_array_equal(panel.weights, np.full((600, 1), 2.0) * [1, 3])
    assert panel.channels_as_series().weights[:, 0].tolist() == [6.0] * 600 + [2.0] * 600
    zoned = frame.tz_localize("Europe/Vienna", nonexistent="shift_forward", ambiguous=True).iloc[:40]
    early = RowWeights.of(None, [("2020-01-01", "2020-01-01 03:00", 0)])
    assert (panel_from_frame(zoned, weight_column="w", weights=early).weights[:, 0] == 0).sum() == 4
    steps = frame.set_axis(range(5, 605), axis=0)
    panel = panel_from_frame(steps, weights=RowWeights.of(None, [(7, 9, 0)]))
    assert np.flatnonzero(panel.weights[:, 0] == 0).tolist() == [2, 3, 4]


def test_windows_have_the_weights_of_their_targets_and_only_ratios_matter() -> None:
    frame = long()
    made = {**SIZES, "val_rows": 8, "test_rows": 8}
    one, other, plain = (
        FrameDataModule(frame.assign(w=frame["w"] * by), **made, **more)
        for by, more in ((1, {"weight_column": "w"}), (0.001, {"weight_column": "w"}), (1, {"target": "y"}))
    )
    for data in (one, other, plain):
        data.setup("fit")
    batch, again = (data.windows("train").__getitems__([0, 70, 5]) for data in (one, other))
    torch.testing.assert_close(batch.target_weight, again.target_weight)
    assert len(one.windows("train")) == len(plain.windows("train"))
    rows = frame.sort_values(["unique_id", "ds"], ignore_index=True)["w"].to_numpy(float)
    train = np.r_[rows[: 60 - 16], rows[60 : 140 - 16]]
    mean = train[train > 0].mean()
    np.testing.assert_allclose(batch.target_weight[0, :, 0], rows[12:16] / mean, rtol=1e-6)
    np.testing.assert_allclose(batch.target_weight[2, :, 0], rows[17:21] / mean, rtol=1e-6)


def cell(frame: pd.DataFrame, value: Any) -> pd.DataFrame:
    return frame.assign(w=frame["w"].astype(object).where(np.arange(len(frame)) != 2, value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: cell(frame, -1), "row 3: the weight in column w is -1; a number of at least 0 is needed"),
        (lambda frame: cell(frame, np.nan), "row 3: the weight in column w is missing"),
        (lambda frame: cell(frame, "much"), "row 3: much in column w is not a number; a weight needs numbers"),
        (lambda frame: frame.rename(columns={"w": "v"}), "the frame has no weight column w; its columns are"),
        (lambda frame: frame.assign(w=0), "every training target has weight 0"),
    ],
)
def test_weights_that_are_none_are_refused_by_row(change: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FrameDataModule(change(long()), **SIZES, weight_column="w").setup("fit")
    frame = cell(long(), np.nan)
    frame.loc[2, "y"] = np.nan
    assert panel_from_frame(frame, weight_column="w").weights is not None, "a row without a target needs none"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"series_weights": {"a": -0.5}}, "the weight of series a must be a number of at least 0, not -0.5"),
        ({"series_weights": [1, 2]}, "series_weights must be weights by id"),
        ({"series_weights": {"c": 1}}, "series_weights names c, which is not in the frame; valid are a, b"),
        ({"row_weights": [("2024-01-01", 0)]}, "must be lists of first time stamp, last time stamp and weight"),
        ({"row_weights": [("soon", "2024-01-02", 1)]}, "'soon' is not a date"),
        ({"row_weights": [("2023-01-01", "2023-01-02", 1)]}, "row_weights: the frame has no row from 2023-01-01 to"),
        ({"row_weights": [("2024-01-01 00:00+00:00", "2024-01-02", 1)]}, "no time zone, so row_weights must"),
        ({"weight_column": "y"}, "column y of the frame is named as target and as weight; a column has one role"),
        ({"weight_column": ["w"]}, "weight_column must be the name of a column"),
    ],
)
def test_arguments_that_are_none_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FrameDataModule(long(), **SIZES, **given).setup("fit")


def test_what_is_forecast_from_needs_no_weights(tmp_path: Path) -> None:
    long().to_csv(tmp_path / "with.csv", index=False)
    long().drop(columns="w").to_csv(tmp_path / "without.csv", index=False)
    trained, data = (CSVDataModule(str(tmp_path / "with.csv"), **SIZES, weight_column="w") for _ in range(2))
    trained.setup("fit")
    data.forecast_from(tmp_path / "without.csv")
    data.prepare("predict", trained.task, trained.scaler)
    assert next(iter(data.predict_dataloader())).target_weight is None


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_date_alone_is_a_whole_day(zone: str | None) -> None:
    frame, day = long(), pd.Timestamp("2024-01-02")
    frame["ds"] = frame["ds"].dt.tz_localize(zone)
    rest = (frame["ds"].dt.tz_localize(None) >= day).sum() / 2  # up to the last day of the calendar
    for last, rows in (("2024-01-02", 24), (day.date(), 24), ("2024-01-02 00:00", 1), (day, 1), ("2262-04-11", rest)):
        panel = panel_from_frame(frame, weights=RowWeights.of(None, [("2024-01-02", last, 0)]))
        assert (panel.weights == 0).sum() == 2 * rows
