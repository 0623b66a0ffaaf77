"""Long and wide tables of any kind become the series they hold, or are refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.data.cases import FREQUENCIES, assert_same, logged, long_frame, refusal, wide_frame
from tsattn.data.mapped import convert
from tsattn.data.panel import Panel
from tsattn.data.quiet import quiet
from tsattn.data.reader import TableReader, panel_from_frame
from tsattn.errors import UserError


def test_long_frame_becomes_series_end_to_end(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 30, "b": 41, "c": 1}, "MS")
    panel = panel_from_frame(frame)
    assert panel.ids == ("a", "b", "c")
    assert len(panel) == 3
    assert panel.channels == ("y",)
    assert panel.frequency == "MS"
    assert panel.starts.tolist() == [0, 30, 71, 72]
    assert panel.lengths.tolist() == [30, 41, 1]
    assert panel.time.tolist() == frame["ds"].tolist()
    assert panel.values.dtype == np.float64
    np.testing.assert_array_equal(panel.values, frame[["y"]])
    assert panel.past_covariates is panel.future_covariates is panel.static is panel.ahead is None
    assert not panel.is_wide
    assert logged(caplog) == []


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


def test_nothing_is_said_where_it_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 9}).assign(city="x")
    with quiet():
        panel_from_frame(frame)
        assert logged(caplog) == []
        with quiet(False):
            panel_from_frame(frame)
    panel_from_frame(frame)
    assert len(logged(caplog)) == 2


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
    rows = draw(st.integers(2, 9))
    start = draw(st.sampled_from(["2020-01-01", "2020-03-28"]))
    ds = pd.date_range(start, periods=rows, freq=draw(st.sampled_from(["D", "h", "MS", "B"]))).tolist()
    columns = {"unique_id": ["a"] * rows, "ds": ds, "y": [1.0] * rows, "p": [1.0] * rows}
    if draw(st.booleans()):
        columns["unique_id"] = draw(st.lists(st.sampled_from(["a", "b"]), min_size=rows, max_size=rows))
    spoil = {"unique_id": name, "ds": stamp, "y": cell, "p": cell}
    for column, row in draw(
        st.lists(st.tuples(st.sampled_from(["unique_id", "ds", "ds", "y", "p"]), st.integers(0, rows - 1)), max_size=2)
    ):
        columns[column][row] = draw(spoil[column])
    if draw(st.integers(0, 3)) == 0:
        columns["ds"] = draw(st.lists(stamp, min_size=rows, max_size=rows))
    frame = pd.DataFrame({key: pd.Series(cells, dtype=object) for key, cells in columns.items()})
    return frame.drop(columns="unique_id") if draw(st.booleans()) else frame


def test_any_frame_gives_a_sound_panel_or_a_refusal() -> None:
    refused, panels = [], []

    @settings(fuzz, max_examples=200)
    @given(
        frame=small_frames(),
        frequency=st.sampled_from([None, None, None, "D", "h", "MS"]),
        role=st.sampled_from(["past_covariates", "future_covariates", "static"]),
    )
    @example(
        frame=pd.DataFrame({"ds": pd.to_datetime(["1970-01-01", "1970-01-02", "1970-01-04"]), "y": 1.0, "p": 1}),
        frequency=None,
        role="static",
    )
    def check(frame: pd.DataFrame, frequency: str | None, role: str) -> None:
        try:
            panel = panel_from_frame(frame, frequency=frequency, **{role: ["p"]})
        except UserError as error:
            refused.append(str(error))
            return
        assert_sound(panel, frame)
        panels.append(panel)

    check()
    assert {len(message.splitlines()) for message in refused} == {1}
    assert min(len(refused), len(panels)) > 25, (len(refused), len(panels))


def assert_sound(panel: Panel, frame: pd.DataFrame) -> None:
    ahead = 0 if panel.ahead is None else len(panel.ahead)
    assert panel.starts[0] == 0
    assert panel.starts[-1] == len(panel.time) == len(panel.values)
    given_values = pd.to_numeric(frame["y"]).astype(float)
    ids = frame["unique_id"] if "unique_id" in frame else pd.Series("series", index=frame.index)
    # a series without any value is left out
    rows = given_values.notna().groupby(ids.map(repr)).transform("any").sum()
    assert len(panel.time) + ahead >= rows, "no row is lost"
    assert np.nansum(panel.values) == pytest.approx(np.nansum(given_values))
    assert np.count_nonzero(~np.isnan(panel.values)) == given_values.notna().sum(), "no value is lost or made up"
    assert not np.isinf(panel.values).any()
    for number in range(len(panel)):
        index = panel.time[panel.starts[number] : panel.starts[number + 1]]
        assert len(index) > 0
        assert index.is_monotonic_increasing
        assert index.is_unique
        assert panel.future_time(number, 2)[0] > index[-1]


@pytest.mark.parametrize("cell", ["1.000", "1.000,5", "-1.000.000", " 12.5"])
def test_a_point_beside_decimal_commas_is_no_mark_of_decimals(tmp_path: Path, cell: str) -> None:
    """Pandas reads 1.000 as text then, which read as a number without the file would be 1."""
    lines = [
        f"{day};{value}" for day, value in zip(pd.date_range("2024", periods=6), (7, 8, 9, cell, 3, 4), strict=True)
    ]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["date;y", *lines]) + "\n")
    german = {"separator": ";", "decimal": ","}
    message = re.escape(
        f"line 5: {cell} in column y is not a number; a target needs numbers (remove marks of thousands"
    )
    for read in (
        lambda: TableReader.of(german).read(path),
        lambda: convert(path, tmp_path / "arrays", TableReader.of(german).options),
    ):
        with pytest.raises(UserError) as caught:
            read()
        assert re.search(message, str(caught.value)), caught.value
    path.write_text(path.read_text().replace(cell, "1000,5"))
    assert TableReader.of(german).read(path).values[:, 0].tolist() == [7, 8, 9, 1000.5, 3, 4]


def test_what_to_do_with_another_encoding_is_said_by_its_first_bytes(tmp_path: Path) -> None:
    text = "date;höhe\n" + "\n".join(f"2024-01-0{day};{day}" for day in range(1, 8))
    for content, advice in (
        (text.encode("utf-16"), "give its encoding, utf-16"),
        (b"PK\x03\x04\xff", "is not UTF-8 text; unpack it, or pack it as .csv.gz"),
        (text.encode("latin-1"), "give its encoding, such as latin-1 or cp1252"),
    ):
        (tmp_path / "own.csv").write_bytes(content)
        with pytest.raises(UserError, match=advice):
            TableReader.of({"separator": ";"}).read(tmp_path / "own.csv")


def test_ids_are_kept_as_they_are() -> None:
    for names in ([1, 3], ["1", "3"], [1.5, 2.5], [False, True], [("a", 1), ("b", 2)], [10, "1"]):
        frame = long_frame({"a": 4, "b": 4})
        frame["unique_id"] = [names[0]] * 4 + [names[1]] * 4
        assert panel_from_frame(frame).ids == tuple(names)
    frame["unique_id"] = pd.Categorical(["x"] * 4 + ["w"] * 4)
    assert panel_from_frame(frame).ids == ("w", "x")
