"""Frequencies beyond the usual ones, time that counts steps, and tables whose time stamps are of two minds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import assert_same, logged, long_frame, refusal, wide_frame
from tsattn.data.reader import panel_from_frame

MIDDLE = pd.Timedelta(14, "D")


def frame_of(stamps: object) -> pd.DataFrame:
    frame = pd.DataFrame({"ds": stamps})
    return frame.assign(y=np.arange(len(frame)) * 1.0)


@pytest.mark.parametrize(("gaps", "zone"), [([], None), ([4, 9, 10], "Europe/Berlin")])
@pytest.mark.parametrize(
    ("stamps", "frequency"),
    [
        pytest.param(pd.date_range("2020-01-01", periods=80, freq="MS") + MIDDLE, "MS", id="15th of the month"),
        pytest.param(pd.date_range("2020-02-01", periods=80, freq="3MS") + MIDDLE, "QS-FEB", id="15th, quarterly"),
        pytest.param(pd.to_datetime([f"{y}-07-04" for y in range(1950, 2020)]), "YS-JUL", id="4th of July"),
        pytest.param(pd.date_range("2020-01-01", periods=80, freq="SMS"), "SMS-15", id="1st and 15th"),
        pytest.param(pd.date_range("2020-01-01", periods=80, freq="SME"), "SME-15", id="15th and last"),
        pytest.param(pd.date_range("2020-01-01", periods=80, freq="SMS-10"), "SMS-10", id="1st and 10th"),
        pytest.param(
            pd.date_range("2020-01-01", periods=80, freq="SMS-16") + pd.Timedelta(4, "D"), "SMS-16", id="5th and 20th"
        ),
        pytest.param(pd.date_range("2020-01-01", periods=80, freq="100ms"), "100ms", id="tenths of seconds"),
        pytest.param(pd.date_range("2020-01-01", periods=80, freq="250us"), "250us", id="parts of milliseconds"),
        pytest.param(pd.date_range("2020-01-01", periods=80, freq="B"), "B", id="weekdays"),
    ],
)
def test_a_rhythm_is_found_filled_and_continued(
    stamps: pd.DatetimeIndex, frequency: str, gaps: list[int], zone: str | None
) -> None:
    whole = stamps.tz_localize(zone)
    past = whole[:-10]
    for given in (None, frequency):
        panel = panel_from_frame(frame_of(past.delete(gaps)), frequency=given)
        assert panel.frequency == frequency
        assert panel.time.tolist() == past.tolist()
        assert np.flatnonzero(np.isnan(panel.values[:, 0])).tolist() == gaps
        assert panel.future_time(0, 10).tolist() == whole[-10:].tolist()


@pytest.mark.parametrize(
    ("period", "frequency", "as_index"),
    [("M", "MS", True), ("Q", "QS-JAN", False), ("Y", "YS-JAN", True), ("W", "W-MON", False), ("h", "h", True)],
)
def test_periods_are_read_as_their_first_time_stamps(period: str, frequency: str, as_index: bool) -> None:
    periods = pd.period_range("2020-01-01", periods=40, freq=period)
    frame = pd.DataFrame({"ds": periods[:30], "y": 1.0})
    panel = panel_from_frame(frame.set_index("ds") if as_index else frame)
    assert panel.frequency == frequency
    assert panel.time.tolist() == periods[:30].to_timestamp().tolist()
    assert panel.future_time(0, 10).tolist() == periods[30:].to_timestamp().tolist()


@pytest.mark.parametrize("step", [1, 5])
def test_whole_numbers_count_steps(step: int, caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 20, "b": 15})
    frame["ds"] = 7 + step * frame.groupby("unique_id").cumcount()
    panel = panel_from_frame(frame)
    assert panel.frequency == str(step)
    assert panel.time.tolist() == frame["ds"].tolist()
    assert panel.future_time(0, 3).tolist() == [7 + step * row for row in (20, 21, 22)]
    assert logged(caplog) == ["column ds holds whole numbers that are no dates: they count steps"]
    caplog.clear()
    holes = panel_from_frame(frame.drop(index=[3, 4, 30]), frequency=step)
    assert holes.time.tolist() == frame["ds"].tolist()
    assert logged(caplog) == ["the frame: filled 3 missing time stamps in 2 of 2 series"]
    assert_same(panel_from_frame(panel.to_frame(), frequency=panel.frequency), panel)


@pytest.mark.parametrize("index", [pd.RangeIndex(40), pd.Index(range(5, 45), name="t")])
def test_an_index_of_whole_numbers_counts_steps(index: pd.Index) -> None:
    panel = panel_from_frame(pd.DataFrame({"a": np.arange(40.0), "b": 1.0}, index=index))
    assert panel.frequency == "1"
    assert panel.channels == ("a", "b")
    assert panel.time_name == (index.name or "ds")
    assert panel.future_time(0, 2).tolist() == [index[-1] + 1, index[-1] + 2]


def test_steps_and_time_stamps_are_told_apart() -> None:
    steps, days = frame_of(range(30)), frame_of(pd.date_range("2020-01-01", periods=30))
    assert "row 1: 0 in column ds is not a date" in refusal(steps, frequency="h")
    assert "has time stamps, but frequency '1' counts steps; valid are such as 15min" in refusal(days, frequency=1)
    assert "has steps, what the model was fitted on time stamps" in refusal(steps, zone_of=pd.DatetimeIndex(days["ds"]))
    twice = frame_of([0, 1, 2, 2, 3])
    assert "row 4: time stamp 2 is there twice" in refusal(twice)
    assert "row 4: time stamp 5 comes 1 after the row before, but is not on the grid" in refusal(
        frame_of([0, 2, 4, 5, 8])
    )


@pytest.mark.parametrize("first_days", [10, 200])
def test_hourly_and_daily_rows_in_one_series_are_refused(first_days: int) -> None:
    days = pd.date_range("2020-01-01", periods=first_days)
    hours = pd.date_range(days[-1] + pd.Timedelta(1, "D"), periods=3000, freq="h")
    frame = frame_of(days.append(hours))
    message = refusal(frame)
    assert (
        f"row 2: from 2020-01-01 00:00:00 to {days[-1] + pd.Timedelta(1, 'D')} the time stamps come 1 days" in message
    )
    assert "others at frequency 'h'; a series needs one frequency" in message
    few = frame_of(pd.date_range("2020-01-01", periods=400).append(pd.date_range("2021-03-01", periods=30, freq="h")))
    assert "is not on the grid of frequency 'D'" in refusal(few)
    assert len(panel_from_frame(frame, frequency="h", max_filled=1.0).time) == 24 * first_days + 3000


@pytest.mark.parametrize("share", [0.2, 0.45])
def test_rows_that_are_missing_by_chance_are_no_second_rhythm(share: float) -> None:
    rng = np.random.default_rng(0)
    hours = pd.date_range("2020-01-01", periods=20_000, freq="h")
    kept = rng.random(len(hours)) > share
    kept[[0, -1]] = True
    assert len(panel_from_frame(frame_of(hours[kept])).time) == len(hours)
    opened = hours[(hours.hour >= 8) & (hours.hour < 20)]
    assert panel_from_frame(frame_of(opened)).frequency == "h"


def test_more_than_half_of_the_rows_are_filled_only_where_that_is_asked_for() -> None:
    frame = long_frame({"a": 100, "b": 100})
    kept = np.random.default_rng(0).choice(np.arange(102, 198), 21, replace=False)
    thin = frame.iloc[[*range(102), *kept, 198, 199]]
    message = refusal(thin)
    assert "time stamps of series b at frequency 'D', but only 25 rows; filling 75% of them is more than" in message
    assert "max_filled 0.5 allows" in message
    assert len(panel_from_frame(thin, max_filled=0.76).time) == 200
    assert "max_filled 0.1 allows" in refusal(frame.drop(index=range(5, 25)), max_filled=0.1)
    assert "max_filled must be from 0 to 1" in refusal(frame, max_filled=1.5)


def test_a_series_without_any_value_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 20, "b": 15, "c": 10}).assign(kind="x", price=1.0)
    empty = frame.assign(y=frame["y"].where(frame["unique_id"] != "b"))
    roles = {"static": ["kind"], "future_covariates": ["price"]}
    assert_same(panel_from_frame(empty, **roles), panel_from_frame(frame[frame["unique_id"] != "b"], **roles))
    assert logged(caplog) == ["the frame: left out 1 of 3 series, without any value: 'b'"]
    broken = empty.assign(y=empty["y"].where(empty.index != 40, np.inf))
    assert "row 41" in refusal(broken)


def test_a_column_of_a_wide_table_without_any_value_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    frame = wide_frame().assign(z=np.nan)
    assert panel_from_frame(frame).channels == ("x",)
    assert logged(caplog) == ["the frame: left out column z, without any value"]
    assert "every value of z is missing" in refusal(frame, target=["x", "z"])


def test_a_saved_index_is_no_series(caplog: pytest.LogCaptureFixture) -> None:
    frame = wide_frame()
    saved = frame.copy()
    saved.insert(0, "Unnamed: 0", range(len(frame)))
    assert panel_from_frame(saved).channels == ("x", "z")
    assert logged(caplog) == ["the frame: column 'Unnamed: 0' counts the rows, as a saved index does; it is not used"]
    assert panel_from_frame(saved, target=["Unnamed: 0", "x"]).channels == ("Unnamed: 0", "x")
    message = refusal(saved.assign(**{"Unnamed: 0": 5.0}))
    assert "column 'Unnamed: 0' of the frame has no name in the file" in message
    dates = frame.rename(columns={"date": "Unnamed: 0"}).astype({"Unnamed: 0": str})
    assert panel_from_frame(dates).time_name == "ds"
    assert_same(panel_from_frame(dates), panel_from_frame(frame))


@pytest.mark.parametrize("name", ["predictions", "0.5", ".9", "cutoff", "y", "target_name"])
def test_ids_and_time_stamps_named_like_a_column_of_forecasts_are_refused(name: str) -> None:
    frame = long_frame({"a": 9, "b": 9}).rename(columns={"y": "sold"})
    for column, role, what in (("unique_id", "id_column", "ids"), ("ds", "time_column", "time stamps")):
        named = {"id_column": "unique_id", role: name}
        message = refusal(frame.rename(columns={column: name}), target="sold", **named)
        assert message.startswith(f"column {name} of the frame holds {what}, but forecasts have a column of that name")
