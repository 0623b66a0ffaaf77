"""Which column is what: found by usual names, given by name, or refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.data.cases import assert_same, logged, long_frame, refusal, wide_frame, with_cell
from tsattn.data import panel_from_frame
from tsattn.data.mapped import convert
from tsattn.data.table_options import TableOptions
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


def test_index_of_time_stamps_is_understood() -> None:
    frame = wide_frame()
    for name in (None, "date", "Time", "whatever"):
        indexed = frame.set_index("date").rename_axis(name)
        assert_same(panel_from_frame(indexed), panel_from_frame(frame))
        if name in (None, "Time"):
            assert_same(panel_from_frame(indexed, time_column="Time"), panel_from_frame(frame))


@pytest.mark.parametrize(
    ("name", "index_name", "as_period"), [("date", None, False), ("ds", "ds", True), ("timestamp", "when", False)]
)
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
    for name, index_name in (("date", None), ("ds", "ds"), ("timestamp", "when"), ("sales", None)):
        stamps = pd.date_range("2024-01-01", periods=9, freq="D", name=index_name)
        panel = panel_from_frame(pd.Series(np.arange(9.0) + 2000, index=stamps, name=name))
        assert (panel.channels, panel.values[:, 0].tolist()) == ((name,), [*range(2000, 2009)])
        assert panel.time.tolist() == stamps.tolist()
        assert panel.time_name != name


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


def test_columns_that_are_not_used_are_named(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 9})
    panel_from_frame(frame.assign(city="x"))
    panel_from_frame(frame.assign(city="x", land="y").drop(index=3))
    assert [said.partition(" (")[0] for said in logged(caplog)] == [
        "the frame: column city is not used",
        "the frame: columns city, land are not used",
        "the frame: filled 1 missing time stamp in 1 of 1 series",
    ]


DAYS = pd.date_range("2024-01-01", periods=40)


@pytest.mark.parametrize(("usual", "others"), [("y", "temperature"), ("target", "promo, temperature")])
def test_a_usual_target_beside_others_asks_which_are_targets(usual: str, others: str, tmp_path: Path) -> None:
    names = [usual, *others.split(", ")]
    frame = pd.DataFrame({"ds": DAYS, **{name: np.arange(40.0) for name in names}})
    said = (
        f"has {usual} beside {others}: give target {usual} (the others as past_covariates or id_column), "
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
    hint = "(if the rows are of several series, name id_column)"
    assert hint in refusal(frame, target="y")
    more = "(if the rows are of more series, list all columns of ids in id_column)"
    assert more in refusal(frame.assign(unique_id="a"), target="y")
    with pytest.raises(UserError, match=re.escape(hint)):
        convert(tmp_path / "t.parquet", tmp_path / "out", TableOptions(target="y"))
    assert panel_from_frame(tmp_path / "t.parquet", id_column="store").ids == (1, 2)


FIVE = long_frame({"a": 5})
ZONED = pd.Timestamp("2020-01-01", tz="UTC")
BERLIN = pd.Timestamp("2020-01-02", tz="Europe/Berlin")


def stamped(*stamps: object) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "a", "ds": pd.Series(stamps, dtype=object), "y": 1.0})


# frame, options, and what is said of it: parts between dots
CASES = [
    (FIVE.iloc[:0], {}, "no rows"),
    (with_cell("y", 6, np.inf), {"source": "sales.csv"}, "sales.csv, row 7: the value of y is infinite"),
    (with_cell("y", 6, "much"), {}, "row 7: much in column y is not a number"),
    (with_cell("y", 6, True), {}, "row 7: True in column y"),
    (with_cell("y", 6, 10**400), {}, "row 7 ... column y"),
    (FIVE.assign(y=pd.Timestamp("2020-01-01")), {}, "row 1 ... column y"),
    (with_cell("unique_id", 6, None), {}, "row 7: the id in column unique_id is missing"),
    (with_cell("unique_id", 6, ["a"]), {}, "column unique_id holds no ids"),
    (with_cell("unique_id", 6, 1j), {}, "row 7: 1j in column unique_id is a complex, not an id"),
    (FIVE.assign(y=np.nan), {}, "every target ... missing ... at least one"),
    (wide_frame().assign(x=np.nan, z=np.nan), {}, "value of x ... missing"),
    (wide_frame().assign(z="low"), {}, "row 1: low in column z"),
    # roles
    (wide_frame()[["date"]], {}, "no target column; its columns are date"),
    (wide_frame().rename(columns={"date": "when"}), {}, "no time column found ... when, x, z ... time_column=NAME"),
    (FIVE[["unique_id", "ds"]], {}, "y or target ... unique_id, ds"),
    (FIVE, {"target": "z"}, "no target column z; its columns are unique_id, ds, y"),
    (FIVE, {"id_column": "unique_di"}, "no id column unique_di (did you mean unique_id?)"),
    (FIVE, {"time_column": "z"}, "no time column z"),
    (FIVE, {"past_covariates": ["z"]}, "no past covariate column z"),
    (FIVE, {"future_covariates": "zz"}, "no future covariate column zz"),
    (FIVE, {"static": ["z"]}, "no static column z"),
    (FIVE.assign(p=1.0), {"past_covariates": "p", "static": "p"}, "column p ... past covariate and as static"),
    (wide_frame().set_axis(["date", "x", "x"], axis=1), {}, "two columns x"),
    # time stamps
    (pd.concat([FIVE, FIVE[2:3]]), {}, "row 6: time stamp 2020-01-03 ... series a is there twice ... row 3"),
    (wide_frame().iloc[[0, 1, 1, 2]], {}, "row 3 ... twice ... row 2"),
    (with_cell("ds", 6, "soon"), {}, "row 7: soon ... not a date"),
    (with_cell("ds", 6, None), {}, "row 7 ... not a date"),
    (FIVE.assign(ds=np.arange(5) / 2), {}, "row 1 ... column ds is not a date"),
    (stamped("2020-01-01", "2020-01-02T00:00Z", "2020-01-03"), {}, "row 2: ... time zone"),
    (stamped("2020-01-01T00:00Z", "2020-01-02T00:00Z", "2020-01-03"), {}, "row 3: ... time zone"),
    (stamped(ZONED, BERLIN), {}, "row 2: ... time zone"),
    (stamped(ZONED.to_pydatetime(), pd.Timestamp("2020-01-02").to_pydatetime()), {}, "row 2: ... time zone"),
    (long_frame({"a": 1, "b": 2}, "MS"), {}, "no series has the 3 rows ... give the frequency"),
    (FIVE, {"frequency": "hourly"}, "'hourly' is not a frequency"),
    # covariates and static columns
    (
        FIVE.assign(p=["hot", "1", "2", "3", "4"]),
        {"past_covariates": "p"},
        "row 1: hot in column p is not a number; a past covariate needs numbers, bools, or text without a number",
    ),
    (FIVE.assign(p=np.inf), {"past_covariates": "p"}, "row 1: the value of p is infinite"),
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
