"""Dates in text and numbers: one format for a whole column, found strictly or given."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import logged, long_frame, refusal
from tsattn.data.dates import parse_dates
from tsattn.data.reader import panel_from_frame
from tsattn.data.text_format import TextFormat
from tsattn.errors import UserError

DAYS = pd.date_range("2020-01-01", periods=60)
HOURS = pd.date_range("2020-01-01", periods=1000, freq="h")


def frame_of(stamps: object) -> pd.DataFrame:
    frame = pd.DataFrame({"ds": stamps})
    return frame.assign(y=np.arange(len(frame)) * 1.0)


@pytest.mark.parametrize(
    "form",
    [
        *("%d/%m/%y", "%d.%m.%y", "%d-%m-%y", "%m/%d/%y", "%y-%m-%d", "%y/%m/%d", "%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y"),
        *("%d %b %Y", "%d-%b-%y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y", "%A, %d %B %Y", "%Y-%b-%d"),
        *("%Y%m%d", "%Y/%m/%d", "%Y.%m.%d", " %Y-%m-%d ", "%Y-%m-%dT00:00:00Z"),
    ],
)
def test_days_in_one_format_are_read_as_these_days(form: str) -> None:
    panel = panel_from_frame(frame_of(DAYS.strftime(form)))
    assert panel.frequency == "D"
    assert panel.time.tz_localize(None).tolist() == DAYS.tolist()
    np.testing.assert_array_equal(panel.values[:, 0], np.arange(60))


@pytest.mark.parametrize(
    "form",
    [
        *("%d/%m/%y %H:%M", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M %p", "%m/%d/%y %I:%M:%S %p", "%d-%m-%y %H:%M"),
        *("%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%dT%H%M%S", "%d/%m/%YT%H:%M", "%d %b %Y %H:%M", "%Y-%m-%d %H:%M UTC"),
        *("%d/%m/%Y %H:%M+00:00", "%d/%m/%Y %H:%M:%S.%f"),
    ],
)
def test_hours_in_one_format_are_read_as_these_hours(form: str) -> None:
    panel = panel_from_frame(frame_of(HOURS.strftime(form)))
    assert panel.frequency == "h"
    assert panel.time.tz_localize(None).tolist() == HOURS.tolist()


def test_two_digit_years_with_the_day_first_keep_their_order_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    stamps = pd.date_range("2019-12-25", periods=400)
    panel = panel_from_frame(frame_of(stamps.strftime("%d/%m/%y")))
    assert panel.time.tolist() == stamps.tolist()
    assert panel.future_time(0, 1)[0] == stamps[-1] + pd.Timedelta(1, "D")
    assert logged(caplog) == ["the dates in column ds are read as %d/%m/%y: 25/12/19 is 2019-12-25"]


@pytest.mark.parametrize(
    ("first", "last", "frequency", "form", "cell"),
    [
        ("1935-12-31", "2010-12-31", "YE", "%d/%m/%y", "31/12/40"),
        ("1949-01-01", "1960-12-01", "MS", "%b-%y", "Jan-49"),
    ],
)
def test_two_digit_years_of_either_century_are_refused(
    first: str, last: str, frequency: str, form: str, cell: str
) -> None:
    text = frame_of(pd.date_range(first, last, freq=frequency).strftime(form))
    assert f"the year of {cell} may be of this century or of the last; write years with four digits" in refusal(text)


@pytest.mark.parametrize("form", ["%d.%m.%Y %H.%M", "%Y-%m-%d %H.%M"])
def test_a_dot_between_hour_and_minute_is_no_fraction_of_a_second(form: str) -> None:
    text = frame_of(pd.date_range("2020-01-01", periods=48, freq="30min").strftime(form))
    assert "is not a date; write dates like 2016-07-01 00:00:00, or give their date_format" in refusal(text)
    assert panel_from_frame(text, text=TextFormat(date_format=form)).frequency == "30min"


@pytest.mark.parametrize("form", ["%d/%m/%y", "%d/%m/%Y", "%m/%d/%Y"])
def test_of_two_formats_that_fit_the_one_with_regular_steps_is_taken(form: str) -> None:
    stamps = pd.date_range("2020-01-01", periods=30, freq="MS")
    panel = panel_from_frame(frame_of(stamps.strftime(form)))
    assert panel.frequency == "MS"
    assert panel.time.tolist() == stamps.tolist()


def test_the_longest_series_decides_between_two_formats() -> None:
    frame = long_frame({"a": 30, "b": 4}, "MS")
    frame["ds"] = frame["ds"] + pd.to_timedelta(np.where(frame["unique_id"] == "b", 4, 0), "D")
    panel = panel_from_frame(frame.assign(ds=frame["ds"].dt.strftime("%d/%m/%Y")))
    assert panel.time.tolist() == frame["ds"].tolist()


@pytest.mark.parametrize("rows", [3, 12])
def test_two_formats_that_both_give_regular_steps_are_refused_naming_both(rows: int) -> None:
    frame = frame_of(DAYS[:rows].strftime("%d/%m/%Y"))
    message = refusal(frame)
    assert "row 2: 02/01/2020 in column ds can be read as %d/%m/%Y (2020-01-02) or as %m/%d/%Y (2020-02-01)" in message
    assert message.endswith("give the right one as date_format")
    for form, frequency in (("%d/%m/%Y", "D"), ("%m/%d/%Y", "MS")):
        panel = panel_from_frame(frame, text=TextFormat(date_format=form))
        assert panel.frequency == frequency
        assert panel.time.tolist() == pd.to_datetime(frame["ds"], format=form).tolist()


@pytest.mark.parametrize(
    ("form", "cell", "said"),
    [
        ("%d/%m/%y", "31/02/20", "31/02/20 in column ds is not a date of the format %d/%m/%y that the others have"),
        ("%d/%m/%y", "2020-01-21", "2020-01-21 in column ds is not a date of the format %d/%m/%y"),
        ("%m/%d/%Y", "21/01/2020", "21/01/2020 in column ds is not a date of the format %m/%d/%Y"),
        (
            "%Y-%m-%d",
            "21/01/2020",
            "21/01/2020 in column ds is not a date; write dates like 2016-07-01",
        ),
        ("%Y%m%d", "20201301", "20201301 in column ds is not a date"),
        ("%d %b %Y", "21 Fob 2020", "21 Fob 2020 in column ds is not a date of the format %d %b %Y"),
        ("%Y-%m-%d", "10:00", "10:00 in column ds is not a date but a time of day without one"),
    ],
)
def test_the_row_that_does_not_fit_the_format_is_named(form: str, cell: str, said: str) -> None:
    texts = DAYS.strftime(form).tolist()
    texts[20] = cell
    assert f"row 21: {said}" in refusal(frame_of(texts))


def test_dates_of_one_month_with_gaps_are_read_whatever_the_length_of_its_name() -> None:
    days = pd.date_range("2020-05-01", periods=30).delete([3, 9, 10])
    assert panel_from_frame(frame_of(days.strftime("%d %b %Y"))).time[-1] == days[-1]


@pytest.mark.parametrize("texts", [["10:00", "11:00", "12:00"], ["1:00:00", "1:00:01", "1:00:02"]])
def test_times_of_day_without_a_date_are_refused(texts: list[str]) -> None:
    assert "row 1: " in refusal(frame_of(texts))
    assert "is not a date but a time of day without one" in refusal(frame_of(texts))


@pytest.mark.parametrize(
    ("texts", "frequency", "first"),
    [
        ([f"{y}Q{q}" for y in range(2000, 2010) for q in (1, 2, 3, 4)], "QS-JAN", "2000-01-01"),
        ([f"2020-W{week:02}" for week in range(1, 53)], "W-MON", "2019-12-30"),
        (pd.date_range("2020-05-01", periods=24, freq="MS").strftime("%m/%Y"), "MS", "2020-05-01"),
        (pd.date_range("2020-05-01", periods=24, freq="MS").strftime("%Y-%m"), "MS", "2020-05-01"),
        (pd.date_range("2020-05-01", periods=24, freq="MS").strftime("%b-%y"), "MS", "2020-05-01"),
        (pd.date_range("2020-05-01", periods=24, freq="MS").strftime("%B %Y"), "MS", "2020-05-01"),
        ([str(year) for year in range(1990, 2020)], "YS-JAN", "1990-01-01"),
    ],
)
def test_quarters_weeks_months_and_years_are_read(texts: list[str], frequency: str, first: str) -> None:
    panel = panel_from_frame(frame_of(texts))
    assert panel.frequency == frequency
    assert panel.time[0] == pd.Timestamp(first)
    assert len(panel.time) == len(texts)


@pytest.mark.parametrize("form", ["%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"])
def test_dates_written_as_whole_numbers_are_read(form: str) -> None:
    numbers = DAYS.strftime(form).astype("int64")
    assert panel_from_frame(frame_of(numbers)).time.tolist() == DAYS.tolist()
    months = pd.date_range("2020-01-01", periods=30, freq="MS")
    assert panel_from_frame(frame_of(months.strftime("%Y%m").astype(int))).time.tolist() == months.tolist()
    assert panel_from_frame(frame_of(numbers), text=TextFormat(date_format=form)).time.tolist() == DAYS.tolist()


def test_a_whole_number_that_is_no_date_among_dates_is_named() -> None:
    numbers = DAYS.strftime("%Y%m%d").astype(int).tolist()
    numbers[5] = 20201301
    assert "row 6: 20201301 in column ds is not a date" in refusal(frame_of(numbers))


def test_offsets_that_change_with_the_clocks_are_read() -> None:
    hours = pd.date_range("2020-03-20", periods=6000, freq="h", tz="Europe/Berlin")
    panel = panel_from_frame(frame_of(hours.astype(str)))
    assert panel.frequency == "h"
    assert str(panel.time.tz) == "UTC"
    assert (panel.time == hours).all()


@pytest.mark.parametrize(
    ("zone", "frequency"), [("Europe/Berlin", "D"), ("America/New_York", "MS"), ("Australia/Sydney", "W-SUN")]
)
def test_days_of_a_zone_stay_days_though_their_offsets_change(zone: str, frequency: str) -> None:
    days = pd.date_range("2020-01-01", periods=400, freq=frequency, tz=zone)
    panel = panel_from_frame(frame_of(days.astype(str)))
    assert panel.frequency == frequency
    assert panel.time.tolist() == days.tolist()
    assert panel.future_time(0, 200).tolist() == pd.date_range(days[-1], periods=201, freq=frequency)[1:].tolist()


def test_a_date_format_also_reads_columns_that_differ_by_series() -> None:
    frame = long_frame({"b": 40, "a": 30})
    text = frame.assign(ds=frame["ds"].dt.strftime("%d.%m.%y"))
    panel = panel_from_frame(text, text=TextFormat(date_format="%d.%m.%y"))
    expected = panel_from_frame(frame)
    assert panel.time.tolist() == expected.time.tolist()
    np.testing.assert_array_equal(panel.values, expected.values)
    assert "row 1: 01.01.20 in column ds is not a date of the format %d/%m/%y" in refusal(
        text, text=TextFormat(date_format="%d/%m/%y")
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"date_format": "DD/MM/YY"}, "'DD/MM/YY' names no year"),
        ({"date_format": "mixed"}, "names no year"),
        ({"date_format": "%Y-%Q"}, "is not understood"),
        ({"separator": "||"}, "separator must be one character"),
        ({"decimal": ""}, "decimal must be one character"),
        ({"decimal": ","}, "separator and decimal are both ','"),
        ({"encoding": "klingon"}, "'klingon' is not an encoding"),
        ({"encoding": "base64"}, "'base64' is not an encoding"),
    ],
)
def test_what_text_is_not_written_in_is_refused(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("|", r"\|")) as caught:
        TextFormat(**wrong)
    assert len(str(caught.value).splitlines()) == 1


def test_dates_are_not_read_one_by_one() -> None:
    rows = 50_000
    frame = frame_of(pd.date_range("2000-01-01", periods=rows, freq="min").strftime("%d/%m/%y %H:%M"))
    began = time.process_time()
    panel = panel_from_frame(frame)
    assert time.process_time() - began < 2.5, "a loop in Python takes ten times as long"
    assert panel.time[-1] == pd.Timestamp("2000-01-01") + pd.Timedelta(rows - 1, "min")


def test_dates_that_come_again_are_those_that_are_written() -> None:
    days = pd.date_range("2020-02-27", periods=40_000, freq="h").strftime("%Y-%m-%d %H:%M").tolist()
    for change in (None, 0, 57_000, 79_999):
        texts = [*days, *days]
        if change is not None:
            texts[change] = "2031-01-01 05:00"
        cells = pd.Series(texts, name="ds").astype(pd.StringDtype())
        expected = pd.DatetimeIndex(pd.to_datetime(cells))
        assert parse_dates(cells, str).equals(expected)
    texts[70_000] = "2031-02-29 05:00"
    with pytest.raises(UserError, match=r"^70000: 2031-02-29 05:00 in column ds is not a date"):
        parse_dates(pd.Series(texts, name="ds").astype(pd.StringDtype()), str)
