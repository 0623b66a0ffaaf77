"""Time stamps as tables have them: their kinds and zones, the frequency, gaps, and rows that are off the grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.data.cases import FREQUENCIES, assert_same, logged, long_frame, refusal, wide_frame
from tsattn.data import assembly
from tsattn.data.reader import panel_from_frame


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


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_unit_of_the_time_stamps_is_kept(unit: str) -> None:
    frame = long_frame({"a": 10, "b": 9}).drop(index=5)
    panel = panel_from_frame(frame.assign(ds=frame["ds"].dt.as_unit(unit)))
    assert panel.time.unit == unit
    assert len(panel.time) == 19


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


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
def test_time_zone_is_kept(zone: str) -> None:
    frame = long_frame({"a": 5, "b": 4}, "h")
    panel = panel_from_frame(frame.assign(ds=frame["ds"].dt.tz_localize(zone)))
    assert panel.time.tz is not None
    assert panel.time[0] == pd.Timestamp("2020-01-01", tz=zone)
    text = frame["ds"].astype(str) + "Z"
    assert str(panel_from_frame(frame.assign(ds=text)).time.tz) == "UTC"


@pytest.mark.parametrize("frequency", ["h", "H", "60min"])
def test_frequency_given_is_normalised_and_used(frequency: str) -> None:
    panel = panel_from_frame(long_frame({"a": 9, "b": 5}, "h").drop(index=[3]), frequency=frequency)
    assert panel.frequency == "h"
    assert len(panel.time) == 14


@pytest.mark.parametrize("frequency", ["30min", "D"])
def test_frequency_given_is_checked(frequency: str) -> None:
    message = refusal(long_frame({"a": 9, "b": 5}, "h"), frequency=frequency)
    assert f"'h', not {frequency!r};" in message


def test_frequency_given_allows_series_with_every_other_row_missing() -> None:
    frame = long_frame({"a": 9, "b": 9}, "D").drop(index=[10, 12, 14, 16])
    message = refusal(frame)
    assert "row 10" in message
    assert "of series b have frequency '2D', not 'D' like series a" in message
    assert panel_from_frame(frame, frequency="D").lengths.tolist() == [9, 9]


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


@pytest.mark.parametrize(
    ("frequency", "row"),
    [*((frequency, row) for frequency in ("h", "MS") for row in (0, 1, 20, 29)), ("D", 0), ("B", 20), ("W-SUN", 1)],
)
def test_row_off_the_grid_is_named(frequency: str, row: int) -> None:
    frame = long_frame({"a": 40, "b": 30}, frequency)
    frame.loc[40 + row, "ds"] += pd.Timedelta(7, "min")
    message = refusal(frame)
    assert f"the frame, row {41 + row}: time stamp {frame['ds'][40 + row]} of series b" in message
    assert repr(frequency) in message


def test_no_more_rows_are_filled_than_fit_whatever_share_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_FREE_ROWS", 10)
    frame = long_frame({"a": 20})
    frame.loc[19, "ds"] = frame["ds"][0] + pd.Timedelta(100, "D")
    assert len(panel_from_frame(frame, max_filled=1.0).time) == 101
    frame.loc[19, "ds"] = frame["ds"][0] + pd.Timedelta(300, "D")
    assert refusal(frame, max_filled=1.0).endswith("but only 20 rows; check its dates")


def test_one_series_over_a_weekend_shows_business_days() -> None:
    monday = long_frame({"a": 5, "b": 4}, "B", first="2024-01-01")  # b begins on Thursday
    panel = panel_from_frame(monday)
    assert panel.frequency == "B"
    assert panel.lengths.tolist() == [5, 4]
    assert panel_from_frame(monday[:5]).frequency == "D"


def test_rows_out_of_time_are_sorted_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 5, "b": 5})
    assert_same(panel_from_frame(frame.iloc[[0, 1, 2, 3, 4, 6, 5, 7, 8, 9]]), panel_from_frame(frame))
    assert logged(caplog) == ["the frame: sorted the rows of 1 of 2 series by time"]


def test_time_stamps_are_converted_to_the_zone_asked_for() -> None:
    frame = wide_frame(frequency="D").set_index("date").tz_localize("Europe/Berlin")
    utc = frame.tz_convert("UTC")  # not daily by that clock
    panel = panel_from_frame(utc, zone_of=frame.index[:1], frequency="D")
    assert_same(panel, panel_from_frame(frame))
    assert str(panel.time.tz) == "Europe/Berlin"
    message = refusal(frame.tz_localize(None), zone_of=frame.index)
    assert message.startswith("the frame has no time zone, what the model was fitted on time zone Europe/Berlin; time")
