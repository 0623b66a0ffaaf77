from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conftest import REAL_ROOT
from tsattn.data.messages import quiet
from tsattn.data.panel import Panel
from tsattn.data.reader import panel_from_frame
from tsattn.data.tables import read_table
from tsattn.errors import UserError

FREQUENCIES = ["min", "15min", "h", "D", "B", "W-SUN", "MS", "ME", "QS-JAN", "QE-DEC", "YS-JAN", "YE-DEC"]


def long_frame(lengths: dict[str, int], frequency: str = "D", first: str = "2020-01-01") -> pd.DataFrame:
    """Series of these lengths, each a few steps later than the one before; y counts the rows of the frame."""
    parts = []
    for number, (name, rows) in enumerate(lengths.items()):
        stamps = pd.date_range(first, periods=rows + 3 * number, freq=frequency)[3 * number :]
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps}))
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(y=np.arange(len(frame), dtype=float))


def wide_frame(rows: int = 10, frequency: str = "h") -> pd.DataFrame:
    stamps = pd.date_range("2020-01-01", periods=rows, freq=frequency)
    return pd.DataFrame({"date": stamps, "x": np.arange(rows) * 1.0, "z": np.arange(rows)[::-1]})


def refusal(table: object, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        panel_from_frame(table, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1, "a refusal is one line"
    return message


def assert_same(panel: Panel, other: Panel) -> None:
    assert panel.ids == other.ids
    assert panel.frequency == other.frequency
    assert panel.time.tolist() == other.time.tolist()
    for name in ("starts", "values", "past_covariates", "future_covariates", "ahead", "ahead_starts", "static"):
        np.testing.assert_array_equal(getattr(panel, name), getattr(other, name), err_msg=name)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tsattn"]


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_long_frame_becomes_series_end_to_end(frequency: str, caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"b": 30, "a": 41, "c": 1}, frequency)
    panel = panel_from_frame(frame)
    assert panel.ids == ("b", "a", "c")
    assert len(panel) == 3
    assert panel.channels == ("y",)
    assert panel.frequency == frequency
    assert panel.starts.tolist() == [0, 30, 71, 72]
    assert panel.lengths.tolist() == [30, 41, 1]
    assert panel.time.tolist() == frame["ds"].tolist()
    assert panel.values.dtype == np.float64
    np.testing.assert_array_equal(panel.values, frame[["y"]])
    assert panel.past_covariates is panel.future_covariates is panel.static is panel.ahead is None
    assert not panel.is_wide
    assert logged(caplog) == []


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_gaps_are_filled_as_missing_and_logged(frequency: str, caplog: pytest.LogCaptureFixture) -> None:
    whole = long_frame({"a": 40, "b": 30, "c": 10}, frequency)
    panel = panel_from_frame(whole.drop(index=[4, 5, 33, 47]))
    assert panel.frequency == frequency
    assert panel.time.tolist() == whole["ds"].tolist()
    assert panel.starts.tolist() == [0, 40, 70, 80]
    expected = whole["y"].to_numpy().copy()
    expected[[4, 5, 33, 47]] = np.nan
    np.testing.assert_array_equal(panel.values[:, 0], expected)
    assert logged(caplog) == ["the frame: filled 4 missing time stamps in 2 of 3 series"]


@pytest.mark.parametrize("frequency", ["30min", "D", "W-SUN"])
def test_gaps_across_changes_of_clocks_are_filled_on_the_right_stamps(frequency: str) -> None:
    stamps = pd.date_range("2020-03-01", periods=400, freq=frequency, tz="Europe/Berlin")
    frame = pd.DataFrame({"unique_id": "a", "ds": stamps, "y": np.arange(400.0)})
    panel = panel_from_frame(frame.drop(index=[10, 28, 29, 200, 300]))
    assert panel.frequency == frequency
    assert panel.time.tolist() == stamps.tolist()
    assert str(panel.time.tz) == "Europe/Berlin"
    assert np.flatnonzero(np.isnan(panel.values)).tolist() == [10, 28, 29, 200, 300]


def test_series_of_one_frequency_may_have_different_phases() -> None:
    hours = pd.date_range("2020-01-01", periods=5, freq="h")
    frame = pd.DataFrame({"unique_id": ["a"] * 5 + ["b"] * 5, "ds": hours.append(hours + pd.Timedelta(30, "min"))})
    assert panel_from_frame(frame.assign(y=1.0)).lengths.tolist() == [5, 5]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_unit_of_the_time_stamps_is_kept(unit: str) -> None:
    frame = long_frame({"a": 10, "b": 9}).drop(index=5)
    panel = panel_from_frame(frame.assign(ds=frame["ds"].dt.as_unit(unit)))
    assert panel.time.unit == unit
    assert len(panel.time) == 19


@pytest.mark.parametrize("names", [("unique_id", "ds", "y"), ("item_id", "timestamp", "target")])
def test_usual_names_are_found(names: tuple[str, str, str]) -> None:
    frame = long_frame({"a": 5, "b": 4})
    assert_same(panel_from_frame(frame.set_axis(list(names), axis=1)), panel_from_frame(frame))


def test_other_names_are_given() -> None:
    frame = long_frame({"a": 5, "b": 4})
    named = frame.set_axis(["shop", "day", "sold"], axis=1)
    panel = panel_from_frame(named, id_column="shop", time_column="day", target="sold")
    assert panel.channels == ("sold",)
    assert_same(panel, panel_from_frame(frame))


def test_long_frame_may_have_several_targets() -> None:
    frame = long_frame({"a": 5, "b": 4}).assign(y2=7.0)
    panel = panel_from_frame(frame, target=["y2", "y"])
    assert panel.channels == ("y2", "y")
    np.testing.assert_array_equal(panel.values, frame[["y2", "y"]])


def test_ids_are_kept_as_they_are() -> None:
    for names in ([3, 1], ["3", "1"], [2.5, 1.5], [True, False], [("a", 1), ("b", 2)]):
        frame = long_frame({"a": 4, "b": 4})
        frame["unique_id"] = [names[0]] * 4 + [names[1]] * 4
        assert panel_from_frame(frame).ids == tuple(names)
    frame["unique_id"] = pd.Categorical(["x"] * 4 + ["w"] * 4)
    assert panel_from_frame(frame).ids == ("x", "w")


def test_ids_and_time_stamps_may_be_the_index() -> None:
    frame = long_frame({"a": 5, "b": 4})
    assert_same(panel_from_frame(frame.set_index(["unique_id", "ds"])), panel_from_frame(frame))
    assert_same(panel_from_frame(frame.set_index("unique_id")), panel_from_frame(frame))


def test_wide_frame_is_one_series_of_many_channels() -> None:
    frame = wide_frame()
    panel = panel_from_frame(frame)
    assert panel.is_wide
    assert panel.ids == ("series",)
    assert panel.channels == ("x", "z")
    assert panel.frequency == "h"
    assert panel.starts.tolist() == [0, 10]
    np.testing.assert_array_equal(panel.values, frame[["x", "z"]])


@pytest.mark.parametrize("name", [None, "date", "Time", "whatever"])
def test_index_of_time_stamps_is_understood(name: str | None) -> None:
    frame = wide_frame()
    indexed = frame.set_index("date").rename_axis(name)
    assert_same(panel_from_frame(indexed), panel_from_frame(frame))
    if name in (None, "Time"):
        assert_same(panel_from_frame(indexed, time_column="Time"), panel_from_frame(frame))


def test_target_picks_channels_of_a_wide_frame(caplog: pytest.LogCaptureFixture) -> None:
    panel = panel_from_frame(wide_frame().assign(note="text", x2=1.0), target="x", past_covariates=["z"])
    assert panel.channels == ("x",)
    assert panel.past_names == ("z",)
    assert len(logged(caplog)) == 1
    assert "note, x2 are not used" in logged(caplog)[0]


def test_names_of_columns_need_not_be_text() -> None:
    frame = wide_frame().set_axis(["date", 0, 1], axis=1)
    assert panel_from_frame(frame).channels == ("0", "1")


def test_arrow_tables_are_understood() -> None:
    frame = long_frame({"a": 5, "b": 4}).drop(index=2)
    assert_same(panel_from_frame(pa.Table.from_pandas(frame, preserve_index=False)), panel_from_frame(frame))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda ds: ds.astype(str), id="text"),
        pytest.param(lambda ds: ds.dt.strftime("%Y/%m/%d %H:%M"), id="slashes"),
        pytest.param(lambda ds: ds.dt.date, id="dates"),
        pytest.param(lambda ds: ds.astype(object), id="objects"),
        pytest.param(lambda ds: ds.astype("category"), id="category"),
        pytest.param(lambda ds: ds.astype(pd.ArrowDtype(pa.timestamp("s"))), id="arrow"),
        pytest.param(lambda ds: ds.astype(str).astype("string[pyarrow]"), id="arrow text"),
        pytest.param(lambda ds: ds.dt.strftime("%d/%m/%Y"), id="day first, as the 13th shows"),
    ],
)
def test_time_stamps_of_all_kinds(change: Callable[[pd.Series], pd.Series]) -> None:
    frame = long_frame({"a": 15, "b": 14})
    assert_same(panel_from_frame(frame.assign(ds=change(frame["ds"]))), panel_from_frame(frame))


def test_midnights_may_be_written_short() -> None:
    frame = long_frame({"a": 30}, "h")
    text = frame["ds"].map(lambda stamp: str(stamp.date()) if stamp.hour == 0 else str(stamp))
    assert_same(panel_from_frame(frame.assign(ds=text)), panel_from_frame(frame))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
def test_time_zone_is_kept(zone: str) -> None:
    frame = long_frame({"a": 5, "b": 4}, "h")
    panel = panel_from_frame(frame.assign(ds=frame["ds"].dt.tz_localize(zone)))
    assert panel.time.tz is not None
    assert panel.time[0] == pd.Timestamp("2020-01-01", tz=zone)
    text = frame["ds"].astype(str) + "Z"
    assert str(panel_from_frame(frame.assign(ds=text)).time.tz) == "UTC"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda y: y.astype("float32"), id="float32"),
        pytest.param(lambda y: y.astype("int16"), id="int16"),
        pytest.param(lambda y: y.astype("Int64"), id="Int64"),
        pytest.param(lambda y: y.astype(pd.ArrowDtype(pa.float64())), id="arrow"),
        pytest.param(lambda y: y.astype(object), id="objects"),
        pytest.param(lambda y: y.astype(str), id="text of numbers"),
    ],
)
def test_numbers_of_all_kinds(change: Callable[[pd.Series], pd.Series]) -> None:
    frame = long_frame({"a": 5, "b": 4})
    assert_same(panel_from_frame(frame.assign(y=change(frame["y"]))), panel_from_frame(frame))


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_missing_targets_are_nan(missing: object) -> None:
    frame = long_frame({"a": 5, "b": 4})
    frame["y"] = frame["y"].astype("Float64" if missing is pd.NA else object)
    frame.loc[[0, 6], "y"] = missing
    assert np.flatnonzero(np.isnan(panel_from_frame(frame).values)).tolist() == [0, 6]


def test_constant_series_are_fine(caplog: pytest.LogCaptureFixture) -> None:
    assert (panel_from_frame(long_frame({"a": 5, "b": 4}).assign(y=2.0)).values == 2).all()
    assert logged(caplog) == []


def test_short_series_take_the_frequency_of_the_others() -> None:
    panel = panel_from_frame(long_frame({"a": 1, "b": 2, "c": 9, "d": 2}, "MS"))
    assert panel.frequency == "MS"
    assert panel.lengths.tolist() == [1, 2, 9, 2]


def test_short_series_alone_need_a_frequency() -> None:
    frame = long_frame({"a": 1, "b": 2}, "MS")
    assert "3 rows" in refusal(frame)
    assert panel_from_frame(frame, frequency="MS").lengths.tolist() == [1, 2]


@pytest.mark.parametrize("frequency", ["h", "H", "60min"])
def test_frequency_given_is_normalised_and_used(frequency: str) -> None:
    panel = panel_from_frame(long_frame({"a": 9, "b": 5}, "h").drop(index=[3]), frequency=frequency)
    assert panel.frequency == "h"
    assert len(panel.time) == 14


@pytest.mark.parametrize("frequency", ["30min", "D", "2h", "W-SUN"])
def test_frequency_given_is_checked(frequency: str) -> None:
    message = refusal(long_frame({"a": 9, "b": 5}, "h"), frequency=frequency)
    assert f"'h', not {frequency!r};" in message


def test_frequency_given_allows_series_with_every_other_row_missing() -> None:
    frame = long_frame({"a": 9, "b": 9}, "D").drop(index=[10, 12, 14, 16])
    message = refusal(frame)
    assert "row 10" in message
    assert "of series b have frequency '2D', not 'D' like series a" in message
    assert panel_from_frame(frame, frequency="D").lengths.tolist() == [9, 9]


@pytest.mark.parametrize("wrong", ["hourly", "0D", "ms", ""])
def test_wrong_frequency_is_refused(wrong: str) -> None:
    assert repr(wrong) in refusal(long_frame({"a": 5}), frequency=wrong)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("D", "h"),
        ("h", "D"),
        ("D", "B"),
        ("MS", "ME"),
        ("MS", "QS-JAN"),
        ("D", "W-SUN"),
        ("W-SUN", "W-MON"),
        ("h", "30min"),
    ],
)
def test_mixed_frequencies_are_refused(one: str, other: str) -> None:
    frame = pd.concat([long_frame({"a": 30}, one), long_frame({"b": 20}, other)], ignore_index=True)
    message = refusal(frame)
    assert "row 31" in message
    assert f"series b have frequency {other!r}, not {one!r} like series a" in message


@pytest.mark.parametrize("frequency", ["h", "D", "MS", "B", "W-SUN"])
@pytest.mark.parametrize("row", [0, 1, 20, 29])
def test_row_off_the_grid_is_named(frequency: str, row: int) -> None:
    frame = long_frame({"a": 40, "b": 30}, frequency)
    frame.loc[40 + row, "ds"] += pd.Timedelta(7, "min")
    message = refusal(frame)
    assert f"the frame, row {41 + row}: time stamp {frame['ds'][40 + row]} of series b" in message
    assert repr(frequency) in message


@pytest.mark.parametrize("frequency", ["h", "D", "MS", "B", "W-SUN"])
def test_row_off_the_grid_of_the_only_series_is_named(frequency: str) -> None:
    frame = wide_frame(30, frequency)
    frame.loc[12, "date"] += pd.Timedelta(7, "min")
    assert f"row 13: time stamp {frame['date'][12]} comes" in refusal(frame)


def test_stamps_without_any_rhythm_are_refused() -> None:
    stamps = pd.to_datetime(["2020-01-01", "2020-01-15", "2020-02-15", "2020-03-15", "2020-04-15"])
    assert "row 2: time stamp 2020-01-15" in refusal(pd.DataFrame({"ds": stamps, "y": 1.0}))


def test_days_in_the_middle_of_months_have_no_frequency() -> None:
    stamps = pd.date_range("2020-01-01", periods=30, freq="MS") + pd.Timedelta(14, "D")
    assert "row 3: time stamp 2020-03-15 00:00:00 comes 29 days" in refusal(pd.DataFrame({"ds": stamps, "y": 1.0}))


def test_time_stamps_that_shift_are_named_where_they_do() -> None:
    frame = wide_frame(40)
    frame.loc[17:, "date"] += pd.Timedelta(20, "min")
    assert "row 18: time stamp" in refusal(frame)


def test_a_date_far_away_does_not_fill_the_memory() -> None:
    frame = long_frame({"a": 20}, "min")
    frame.loc[0, "ds"] = pd.Timestamp("1700-01-01")
    message = refusal(frame)
    assert "row 1" in message
    assert "1700-01-01" in message
    assert "only 20 rows" in message


def test_one_series_over_a_weekend_shows_business_days() -> None:
    monday = long_frame({"a": 5, "b": 4}, "B", first="2024-01-01")  # b begins on Thursday
    panel = panel_from_frame(monday)
    assert panel.frequency == "B"
    assert panel.lengths.tolist() == [5, 4]
    assert panel_from_frame(monday[:5]).frequency == "D"


def test_rows_of_series_may_be_interleaved(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 5, "b": 5})
    mixed = frame.iloc[[0, 5, 1, 6, 2, 7, 3, 8, 4, 9]]
    assert_same(panel_from_frame(mixed), panel_from_frame(frame))
    assert logged(caplog) == []


def test_rows_out_of_time_are_sorted_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 5, "b": 5})
    assert_same(panel_from_frame(frame.iloc[[0, 1, 2, 3, 4, 6, 5, 7, 8, 9]]), panel_from_frame(frame))
    assert logged(caplog) == ["the frame: sorted the rows of 1 of 2 series by time"]


fuzz = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@fuzz
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5).filter(lambda lengths: max(lengths) > 7),
    frequency=st.sampled_from(FREQUENCIES),
    random=st.randoms(use_true_random=False),
)
def test_shuffled_rows_give_the_same_series(lengths: list[int], frequency: str, random: st.DrawFn) -> None:
    frame = long_frame({f"s{i}": rows for i, rows in enumerate(lengths)}, frequency)
    frame = frame.assign(past=-frame["y"], kind=frame["unique_id"].str.upper())
    rows = list(range(len(frame)))
    random.shuffle(rows)
    panel = panel_from_frame(frame.iloc[rows], past_covariates=["past"], static=["kind"])
    assert len(panel) == len(lengths)
    assert panel.frequency == frequency
    for number, name in enumerate(panel.ids):
        own = frame[frame["unique_id"] == name]
        run = slice(*panel.starts[number : number + 2])
        assert panel.time[run].tolist() == own["ds"].tolist()
        assert panel.values[run, 0].tolist() == own["y"].tolist()
        assert panel.past_covariates[run, 0].tolist() == own["past"].tolist()
        assert panel.static_categories[0][panel.static[number, 0]] == name.upper()


def with_cell(column: str, row: int, value: object, lengths: dict[str, int] | None = None) -> pd.DataFrame:
    frame = long_frame(lengths or {"a": 5, "b": 5}).astype({column: object})
    frame.loc[row, column] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "options", "fragments"),
    [
        pytest.param(long_frame({"a": 3}).iloc[:0], {}, ["no rows"], id="no rows"),
        pytest.param(
            long_frame({"a": 5, "b": 5}).iloc[[0, 1, 2, 6, 7, 8, 2]],
            {},
            ["row 7", "2020-01-03", "series a", "twice", "row 3"],
            id="duplicate",
        ),
        pytest.param(wide_frame().iloc[[0, 1, 1, 2]], {}, ["row 3", "twice", "row 2"], id="duplicate in a wide frame"),
        pytest.param(with_cell("y", 6, np.inf), {}, ["row 7", "value of y", "infinite"], id="infinite"),
        pytest.param(with_cell("y", 6, "much"), {}, ["row 7", "much", "column y", "number"], id="text target"),
        pytest.param(with_cell("y", 6, True), {}, ["row 7", "True", "column y"], id="bool target"),
        pytest.param(with_cell("y", 6, 1j), {}, ["row 7", "column y"], id="complex target"),
        pytest.param(with_cell("y", 6, [1]), {}, ["row 7", "column y"], id="list as target"),
        pytest.param(long_frame({"a": 5}).assign(y=1j), {}, ["row 1", "column y"], id="complex targets"),
        pytest.param(
            long_frame({"a": 5}).assign(y=pd.Timestamp("2020-01-01")), {}, ["row 1", "column y"], id="dates as targets"
        ),
        pytest.param(with_cell("ds", 6, "soon"), {}, ["row 7", "soon", "not a date"], id="no date"),
        pytest.param(with_cell("ds", 6, None), {}, ["row 7", "not a date"], id="missing date"),
        pytest.param(
            long_frame({"a": 5}).assign(ds=range(5)), {}, ["row 1", "column ds", "not a date"], id="numbers for dates"
        ),
        pytest.param(
            long_frame({"a": 5}).assign(ds=[f"0{day}/02/2020" for day in range(1, 6)]),
            {},
            ["day or the month first"],
            id="dates in doubt",
        ),
        pytest.param(
            long_frame({"a": 3}).assign(ds=[f"300{i}-01-01" for i in range(3)]), {}, ["row 1"], id="the far future"
        ),
        pytest.param(with_cell("unique_id", 6, None), {}, ["row 7", "id", "missing"], id="missing id"),
        pytest.param(with_cell("unique_id", 6, ["a"]), {}, ["unique_id", "no ids"], id="list as id"),
        pytest.param(
            with_cell("y", 0, np.nan, {"a": 1, "b": 5}), {}, ["value of y", "series a", "missing"], id="all missing"
        ),
        pytest.param(wide_frame().assign(z=np.nan), {}, ["value of z", "missing"], id="all of a channel missing"),
        pytest.param(wide_frame().assign(z="low"), {}, ["row 1", "low", "column z"], id="text in a wide frame"),
        pytest.param(wide_frame().assign(z=True), {}, ["row 1", "True", "column z"], id="bools in a wide frame"),
        pytest.param(wide_frame()[["date"]], {}, ["no target", "date"], id="no values"),
        pytest.param(wide_frame()[["x", "z"]], {}, ["no time stamps", "unique_id, ds, y", "x, z"], id="no time"),
        pytest.param(long_frame({"a": 5})[["unique_id", "ds"]], {}, ["y or target", "unique_id, ds"], id="no target"),
        pytest.param(long_frame({"a": 5}), {"target": "z"}, ["no target column z", "y"], id="unknown target"),
        pytest.param(long_frame({"a": 5}), {"id_column": "z"}, ["no id column z", "y"], id="unknown id"),
        pytest.param(long_frame({"a": 5}), {"time_column": "z"}, ["no time column z"], id="unknown time"),
        pytest.param(
            long_frame({"a": 5}), {"past_covariates": ["z"]}, ["no past covariate column z"], id="unknown past"
        ),
        pytest.param(
            long_frame({"a": 5}), {"future_covariates": "zz"}, ["no future covariate column zz"], id="unknown future"
        ),
        pytest.param(long_frame({"a": 5}), {"static": ["z"]}, ["no static column z"], id="unknown static"),
        pytest.param(
            long_frame({"a": 5}).assign(p=1.0),
            {"past_covariates": ["p"], "future_covariates": ["p"]},
            ["column p", "past covariate", "future covariate", "one role"],
            id="two roles",
        ),
        pytest.param(wide_frame().set_axis(["date", "x", "x"], axis=1), {}, ["two columns x"], id="column twice"),
        pytest.param(
            long_frame({"a": 5}).assign(p="hot"),
            {"past_covariates": ["p"]},
            ["row 1", "hot", "column p", "numbers or bools"],
            id="text covariate",
        ),
        pytest.param(
            long_frame({"a": 5}).assign(p=np.inf), {"past_covariates": ["p"]}, ["row 1", "p"], id="infinite covariate"
        ),
        pytest.param(
            long_frame({"a": 5}).assign(p=np.nan),
            {"past_covariates": ["p"]},
            ["covariate p", "missing"],
            id="no covariate",
        ),
        pytest.param(
            long_frame({"a": 3, "b": 3}).assign(k=list("xxxyzy")),
            {"static": ["k"]},
            ["row 5", "static column k", "series b", "to z"],
            id="static that changes",
        ),
        pytest.param(
            long_frame({"a": 3}).assign(k=["x", None, "x"]),
            {"static": ["k"]},
            ["row 2", "k", "missing"],
            id="no static",
        ),
        pytest.param(
            long_frame({"a": 3}).assign(k=[[1], [1], [1]]), {"static": ["k"]}, ["static column k"], id="static lists"
        ),
    ],
)
def test_unusable_frame_is_refused_in_one_sentence(
    frame: pd.DataFrame, options: dict[str, object], fragments: list[str]
) -> None:
    message = refusal(frame, **options)
    for fragment in fragments:
        assert fragment in message


@pytest.mark.parametrize(
    ("stamps", "row"),
    [
        pytest.param(["2020-01-01", "2020-01-02T00:00Z", "2020-01-03"], 2, id="aware among naive"),
        pytest.param(["2020-01-01T00:00Z", "2020-01-02T00:00Z", "2020-01-03"], 3, id="naive among aware"),
        pytest.param(["2020-01-01T00:00+01:00", "2020-01-02T00:00+01:00", "2020-01-03T00:00+02:00"], 3, id="offsets"),
        pytest.param(
            [pd.Timestamp("2020-01-01", tz="UTC"), pd.Timestamp("2020-01-02", tz="Europe/Berlin")], 2, id="objects"
        ),
        pytest.param([pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02", tz="UTC")], 2, id="naive object first"),
        pytest.param(
            [pd.Timestamp("2020-01-01", tz="UTC").to_pydatetime(), pd.Timestamp("2020-01-02").to_pydatetime()],
            2,
            id="datetime",
        ),
    ],
)
def test_mixed_time_zones_are_refused(stamps: list[object], row: int) -> None:
    frame = pd.DataFrame({"unique_id": "a", "ds": pd.Series(stamps, dtype=object), "y": 1.0})
    message = refusal(frame)
    assert f"row {row}:" in message
    assert "time zone" in message


def test_source_is_named() -> None:
    assert refusal(with_cell("y", 6, np.inf), source="sales.csv").startswith("sales.csv, row 7: ")


def covariate_frame(steps_ahead: int = 4) -> pd.DataFrame:
    """Two daily series with `steps_ahead` rows behind their last targets."""
    frame = long_frame({"a": 10 + steps_ahead, "b": 8 + steps_ahead})
    frame["price"] = frame.index * 10.0
    frame["promo"] = frame.index % 2 == 0
    frame["rain"] = frame.index * 0.5
    last = frame.groupby("unique_id")["ds"].transform("max")
    frame.loc[last - frame["ds"] < pd.Timedelta(steps_ahead, "D"), ["y", "rain"]] = np.nan
    return frame


ROLES = {"past_covariates": ["rain"], "future_covariates": ["price", "promo"]}


def test_rows_behind_the_last_target_are_the_future_of_covariates(caplog: pytest.LogCaptureFixture) -> None:
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
    np.testing.assert_array_equal(panel.future_for(4), expected)
    np.testing.assert_array_equal(panel.future_for(2), expected[:, :2])
    assert panel.future_time(1, 4).tolist() == future["ds"].tolist()[4:]
    assert logged(caplog) == ["the frame: read 8 rows behind the last targets as the future of the covariates"]


def test_future_may_come_in_a_frame_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    frame = covariate_frame()
    is_future = frame["y"].isna()
    future = frame.loc[is_future, ["price", "unique_id", "promo", "ds"]].iloc[::-1]
    panel = panel_from_frame(frame[~is_future], future=future, **ROLES)
    assert_same(panel, panel_from_frame(frame, **ROLES))
    # part in rows behind the last target, part in the frame of future values
    early = frame["ds"] < frame.groupby("unique_id")["ds"].transform("max")
    panel = panel_from_frame(frame[early], future=frame.loc[~early].drop(columns="y"), **ROLES)
    assert_same(panel, panel_from_frame(frame, **ROLES))


def test_future_of_a_wide_frame() -> None:
    frame = wide_frame(12)
    frame.loc[9:, "x"] = np.nan
    panel = panel_from_frame(frame[:9], future_covariates="z", future=frame.loc[9:, ["date", "z"]])
    assert panel.channels == ("x",)
    assert_same(panel, panel_from_frame(frame, future_covariates=["z"]))
    indexed = frame.set_index("date")
    panel = panel_from_frame(indexed[:9], future_covariates="z", future=indexed.loc[indexed.index[9:], ["z"]])
    np.testing.assert_array_equal(panel.future_for(3), [[[2], [1], [0]]])


def test_future_that_stops_early_is_refused_with_its_place() -> None:
    panel = panel_from_frame(covariate_frame().drop(index=25), **ROLES)  # the last row of series b
    assert panel.future_for(3).shape == (2, 3, 2)
    with pytest.raises(UserError) as caught:
        panel.future_for(4)
    message = str(caught.value)
    last = covariate_frame()["ds"][25]
    for fragment in ("covariate price", "stops early", "series b", str(last), "step 4 of the 4"):
        assert fragment in message
    with pytest.raises(UserError, match=r"series a.*step 5 of the 6"):
        panel.future_for(6)


def test_hole_in_the_future_is_refused_with_its_place() -> None:
    frame = covariate_frame().astype({"promo": object})
    frame.loc[12, "promo"] = None  # of series a, third step
    panel = panel_from_frame(frame, **ROLES)
    assert panel.future_for(2).shape == (2, 2, 2)
    with pytest.raises(UserError, match=f"covariate promo.*series a.*{frame['ds'][12]}, step 3"):
        panel.future_for(3)


def test_without_future_covariates_there_is_no_future() -> None:
    assert panel_from_frame(long_frame({"a": 5})).future_for(3) is None


def test_missing_targets_at_the_end_are_rows_without_future_covariates() -> None:
    panel = panel_from_frame(covariate_frame(), past_covariates=["rain", "price"])
    assert panel.lengths.tolist() == [14, 12]


def test_past_covariates_behind_the_last_target_are_not_lost_silently(caplog: pytest.LogCaptureFixture) -> None:
    panel_from_frame(covariate_frame().assign(rain=1.0), **ROLES)
    assert logged(caplog) == ["the frame: values of the past covariate rain behind the last targets are not used"]


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
    message = refusal(frame[~is_future], future=future.replace({"unique_id": {"1": "9"}}), **ROLES)
    assert "of series '9', '2', not of any in the frame; valid are 1, 2" in message


def test_future_in_another_time_zone_is_of_the_same_instants() -> None:
    frame = covariate_frame()
    frame["ds"] = frame["ds"].dt.tz_localize("Asia/Kolkata")
    is_future = frame["y"].isna()
    future = frame.loc[is_future, ["unique_id", "ds", "price", "promo"]]
    future["ds"] = future["ds"].dt.tz_convert("UTC")
    assert_same(panel_from_frame(frame[~is_future], future=future, **ROLES), panel_from_frame(frame, **ROLES))


def test_covariates_without_any_future_are_named() -> None:
    frame = covariate_frame()
    panel = panel_from_frame(frame[frame["y"].notna()], **ROLES)
    with pytest.raises(
        UserError, match="no future values of price, promo were given; give one for each of the 3 steps"
    ):
        panel.future_for(3)
    frame.loc[frame["y"].isna(), "price"] = np.nan
    with pytest.raises(UserError, match="no future values of price were given"):
        panel_from_frame(frame, **ROLES).future_for(3)


def test_missing_covariates_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    frame = covariate_frame()
    frame.loc[[0, 2, 16], "price"] = np.nan
    frame.loc[3, "rain"] = np.nan
    panel_from_frame(frame, **ROLES)
    assert logged(caplog) == [
        "the frame: covariate rain: 1 of 18 values are missing; the last known one takes their place",
        "the frame: covariate price: 3 of 18 values are missing; the last known one takes their place",
    ]


def test_rows_without_a_target_need_not_repeat_the_category() -> None:
    frame = covariate_frame().assign(shop=lambda frame: frame["unique_id"].map({"a": "south", "b": "north"}))
    whole = panel_from_frame(frame, **ROLES, static="shop")
    is_future = frame["y"].isna()
    assert_same(panel_from_frame(frame.assign(shop=frame["shop"].mask(is_future)), **ROLES, static="shop"), whole)
    first = frame.assign(shop=frame["shop"].mask(frame.index == 0))
    assert "row 1: the category in static column shop is missing" in refusal(first, **ROLES, static="shop")
    message = refusal(frame.assign(shop=frame["shop"].mask(frame["unique_id"] == "b")), **ROLES, static="shop")
    assert "the category in static column shop is missing" in message
    other = frame.assign(shop=frame["shop"].where(~is_future, "west"))
    assert "shop changes within series a, to west" in refusal(other, **ROLES, static="shop")


@pytest.mark.parametrize("as_index", [False, True])
def test_periods_are_refused_with_what_turns_them_into_time_stamps(as_index: bool) -> None:
    frame = wide_frame(frequency="D")
    frame["date"] = frame["date"].dt.to_period("D")
    message = refusal(frame.set_index("date") if as_index else frame)
    assert "holds periods; turn them into time stamps with" in message
    assert message.endswith(".to_timestamp()")


def test_a_pandas_series_is_a_wide_table_of_one_column() -> None:
    frame = wide_frame().set_index("date")
    assert_same(panel_from_frame(frame["x"]), panel_from_frame(frame[["x"]]))
    assert panel_from_frame(frame["x"].rename(None)).channels == ("y",)


def test_a_file_is_read_and_its_rows_are_named(tmp_path: Path) -> None:
    frame = long_frame({"a": 9, "b": 8})
    frame.to_csv(tmp_path / "it.csv", index=False)
    assert_same(panel_from_frame(str(tmp_path / "it.csv")), panel_from_frame(frame))
    frame.astype({"y": object}).replace({"y": {3.0: "three"}}).to_csv(tmp_path / "it.csv", index=False)
    assert "it.csv, line 5: three in column y" in refusal(tmp_path / "it.csv")


def test_numbers_may_name_columns() -> None:
    frame = long_frame({"a": 9, "b": 8})
    numbered = frame.set_axis([0, 1, 2], axis=1)
    panel = panel_from_frame(numbered, id_column=0, time_column=np.int64(1), target=[2])
    assert_same(panel, panel_from_frame(frame))
    assert (panel.id_name, panel.time_name, panel.channels) == ("0", "1", ("2",))
    assert "target must be the name of a column or a list of names, not 2.5" in refusal(frame, target=2.5)
    assert "static must be the name of a column or a list of names, not [None]" in refusal(frame, static=[None])
    assert "id_column must be the name of a column, not ['a']" in refusal(frame, id_column=["a"])


def test_one_column_that_is_not_used_is_said_in_the_singular(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 9})
    panel_from_frame(frame.assign(city="x"))
    panel_from_frame(frame.assign(city="x", land="y").drop(index=3))
    assert logged(caplog) == [
        "the frame: column city is not used (covariates are used if they are named)",
        "the frame: columns city, land are not used (covariates are used if they are named)",
        "the frame: filled 1 missing time stamp in 1 of 1 series",
    ]


def test_nothing_is_said_where_it_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 9}).assign(city="x")
    with quiet():
        panel_from_frame(frame)
        assert logged(caplog) == []
        with quiet(False):
            panel_from_frame(frame)
    panel_from_frame(frame)
    assert len(logged(caplog)) == 2


def test_time_stamps_are_converted_to_the_zone_asked_for() -> None:
    frame = wide_frame(frequency="D").set_index("date").tz_localize("Europe/Berlin")
    utc = frame.tz_convert("UTC")  # not daily by that clock
    panel = panel_from_frame(utc, zone_of=frame.index[:1], frequency="D")
    assert_same(panel, panel_from_frame(frame))
    message = refusal(frame.tz_localize(None), zone_of=frame.index)
    assert message.startswith("the frame has no time zone, what the model was fitted on time zone Europe/Berlin; time")


def test_future_within_the_history_is_refused() -> None:
    frame = long_frame({"a": 9}).assign(x=1.0)
    gap = frame.loc[[4], ["unique_id", "ds", "x"]]
    message = refusal(frame.drop(index=4), future=gap, future_covariates=["x"])
    assert "frame of future values, row 1" in message
    assert "2020-01-05" in message
    assert "behind the last row with a target" in message


def test_future_without_future_covariates_is_refused() -> None:
    assert "future_covariates" in refusal(long_frame({"a": 5}), future=long_frame({"a": 5}))


def test_bool_covariates_are_0_and_1() -> None:
    frame = long_frame({"a": 4}).assign(p=[True, False, True, True], q=pd.array([True, None, False, True], "boolean"))
    panel = panel_from_frame(frame.assign(r=frame["q"].astype(object)), past_covariates=["p", "q", "r"])
    np.testing.assert_array_equal(panel.past_covariates, [[1, 1, 1], [0, np.nan, np.nan], [1, 0, 0], [1, 1, 1]])


def test_covariates_in_filled_rows_are_missing() -> None:
    frame = long_frame({"a": 6}).assign(p=1.0, f=2.0).drop(index=3)
    panel = panel_from_frame(frame, past_covariates="p", future_covariates="f")
    assert np.flatnonzero(np.isnan(panel.past_covariates)).tolist() == [3]
    assert np.flatnonzero(np.isnan(panel.future_covariates)).tolist() == [3]


def test_static_columns_become_categories() -> None:
    frame = long_frame({"a": 4, "b": 3, "c": 2})
    frame["shop"] = frame["unique_id"].map({"a": "south", "b": "north", "c": "south"})
    frame["floor"] = frame["unique_id"].map({"a": 2, "b": 10, "c": 2})
    panel = panel_from_frame(frame, static=["shop", "floor"])
    assert panel.static_names == ("shop", "floor")
    assert panel.static_categories == (("north", "south"), ("10", "2"))
    assert panel.static.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert panel.static.dtype == np.int64


def test_categories_of_training_number_those_of_later() -> None:
    frame = long_frame({"a": 4, "b": 3}).assign(shop=["south"] * 4 + ["west"] * 3, floor=2.0)
    panel = panel_from_frame(frame, static=["shop", "floor"])
    names, known = ("shop", "floor"), (("north", "south", "west"), ("1", "2"))
    later = panel.with_static(names, known, "it")
    assert later.static.tolist() == [[1, 1], [2, 1]]
    assert (later.static_names, later.static_categories) == (names, known)
    swapped = panel.with_static(names[::-1], known[::-1], "it")
    assert swapped.static.tolist() == [[1, 1], [1, 2]]
    assert panel.with_static((), (), "it").static is None
    with pytest.raises(UserError, match=r"static column shop: series b.*category west.*north, south"):
        panel.with_static(names, (("north", "south"), ("2",)), "it")
    with pytest.raises(UserError, match="it lacks the static column 'region' that the model was trained with"):
        panel.with_static(("region",), (("north",),), "it")


cell = st.one_of(
    st.floats(-5, 5),
    st.sampled_from(
        [np.nan, None, np.inf, "x", "2.5", True, 1j, pd.NA, pd.Timestamp("2020-01-01"), [1], 10**400, "\n"]
    ),
)
stamp = st.one_of(
    st.integers(0, 6).map(lambda day: pd.Timestamp("2020-03-27") + pd.Timedelta(day, "D")),
    st.integers(0, 6).map(lambda hour: pd.Timestamp("2020-03-29", tz="Europe/Berlin") + pd.Timedelta(hour, "h")),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([ZoneInfo("UTC"), ZoneInfo("Asia/Tokyo")])),
    st.sampled_from(["2020-01-01", "2020-01-02", "2020-01-02T00:00Z", "01/02/2020", "x", "", "\n", None, 5, pd.NaT]),
)
name = st.one_of(st.sampled_from(["a", "b", "c"]), st.sampled_from([1, 1.5, None, np.nan, ("a",), ["a"], "a\nb"]))


@st.composite
def small_frames(draw: st.DrawFn) -> pd.DataFrame:
    """Long or wide frames: tidy ones with a few cells spoilt, or random from the start."""
    rows = draw(st.integers(1, 8))
    start = draw(st.sampled_from(["2020-01-01", "2020-03-28"]))
    ds = pd.date_range(start, periods=rows, freq=draw(st.sampled_from(["D", "h", "MS", "B"]))).tolist()
    columns = {"unique_id": ["a"] * rows, "ds": ds, "y": [1.0] * rows, "p": [1.0] * rows}
    columns["unique_id"] = draw(st.lists(st.sampled_from(["a", "b"]), min_size=rows, max_size=rows))
    spoil = {"unique_id": name, "ds": stamp, "y": cell, "p": cell}
    for column, row in draw(
        st.lists(st.tuples(st.sampled_from(["unique_id", "ds", "ds", "y", "p"]), st.integers(0, rows - 1)), max_size=4)
    ):
        columns[column][row] = draw(spoil[column])
    if draw(st.booleans()):
        columns["ds"] = draw(st.lists(stamp, min_size=rows, max_size=rows))
    frame = pd.DataFrame({key: pd.Series(cells, dtype=object) for key, cells in columns.items()})
    return frame.drop(columns="unique_id") if draw(st.booleans()) else frame


@settings(fuzz, max_examples=400)
@given(
    frame=small_frames(),
    frequency=st.sampled_from([None, None, "D", "h", "B", "MS"]),
    role=st.sampled_from(["past_covariates", "future_covariates", "static"]),
)
@example(
    frame=pd.DataFrame({"ds": pd.to_datetime(["1970-01-01", "1970-01-02", "1970-01-04"]), "y": 1.0, "p": 1}),
    frequency=None,
    role="static",
)
def test_any_frame_gives_a_sound_panel_or_a_refusal(frame: pd.DataFrame, frequency: str | None, role: str) -> None:
    try:
        panel = panel_from_frame(frame, frequency=frequency, **{role: ["p"]})
    except UserError as error:
        answer = str(error)
        panel = None
    if panel is None:
        assert len(answer.splitlines()) == 1
        return
    ahead = 0 if panel.ahead is None else len(panel.ahead)
    assert panel.starts[0] == 0
    assert panel.starts[-1] == len(panel.time) == len(panel.values)
    assert len(panel.time) + ahead >= len(frame), "no row is lost"
    given_values = pd.to_numeric(frame["y"]).astype(float)
    assert np.nansum(panel.values) == pytest.approx(np.nansum(given_values))
    assert np.count_nonzero(~np.isnan(panel.values)) == given_values.notna().sum(), "no value is lost or made up"
    assert not np.isinf(panel.values).any()
    for number in range(len(panel)):
        index = panel.time[panel.starts[number] : panel.starts[number + 1]]
        assert len(index) > 0
        assert index.is_monotonic_increasing
        assert index.is_unique
        assert panel.future_time(number, 2)[0] > index[-1]


def real(file: str) -> pd.DataFrame:
    return read_table(Path(f"{REAL_ROOT}/{file}"))


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "frequency", "shape"),
    [
        ("ETTh1.csv", "h", (17420, 7)),
        ("ETTm1.csv", "15min", (69680, 7)),
        ("exchange_rate.csv", "D", (7588, 8)),
        ("national_illness.csv", "W-TUE", (966, 7)),
    ],
)
def test_real_wide_files(file: str, frequency: str, shape: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    panel = panel_from_frame(real(file))
    assert panel.frequency == frequency
    assert panel.values.shape == shape
    assert not np.isnan(panel.values).any()
    assert logged(caplog) == []


@pytest.mark.real_data
def test_real_half_hours_with_covariates() -> None:
    options = {"time_column": "Time", "target": "Demand", "past_covariates": "Temperature"}
    panel = panel_from_frame(real("vic_electricity.csv"), future_covariates=["Holiday"], **options)
    assert panel.frequency == "30min"
    assert str(panel.time.tz) == "UTC"
    assert panel.values.shape == (52608, 1)
    assert set(panel.future_covariates[:, 0]) == {0, 1}
    assert "column Date" in refusal(real("vic_electricity.csv"), time_column="Time", past_covariates="Holiday")


@pytest.mark.real_data
def test_real_long_file_with_gaps() -> None:
    wide = real("national_illness.csv")
    long = wide.melt("date", var_name="unique_id", value_name="y").rename(columns={"date": "ds"})
    drop = np.random.default_rng(0).choice(len(long), 500, replace=False)
    panel = panel_from_frame(long.drop(index=drop))
    assert panel.frequency == "W-TUE"
    assert panel.ids == tuple(wide.columns[1:])
    filled = np.isnan(panel.values[:, 0])
    assert filled.sum() <= 500
    stacked = wide.set_index("date").to_numpy().T
    for number in range(7):
        run = slice(*panel.starts[number : number + 2])
        first = list(pd.to_datetime(wide["date"])).index(panel.time[run][0])
        kept = ~filled[run]
        np.testing.assert_array_equal(panel.values[run, 0][kept], stacked[number, first:][: len(kept)][kept])
