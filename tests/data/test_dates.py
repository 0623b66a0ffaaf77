"""Dates in text and numbers: ISO 8601, one format of a short list for a whole column, or the one given."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import refusal
from tsattn.data.reader import TableReader, panel_from_frame
from tsattn.data.stamps import time_stamps
from tsattn.data.table_options import TextFormat
from tsattn.errors import UserError

DAYS = pd.date_range("2020-01-01", periods=60)
HOURS = pd.date_range("2020-01-01", periods=1000, freq="h")


def frame_of(stamps: object) -> pd.DataFrame:
    frame = pd.DataFrame({"ds": stamps})
    return frame.assign(y=np.arange(len(frame)) * 1.0)


@pytest.mark.parametrize(
    "form",
    [
        *("%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y"),
        *("%Y%m%d", "%Y/%m/%d", "%Y.%m.%d", " %Y-%m-%d ", "%Y-%m-%dT00:00:00Z"),
    ],
)
def test_days_in_one_format_are_read_as_these_days(form: str) -> None:
    panel = panel_from_frame(frame_of(DAYS.strftime(form)))
    assert panel.frequency == "D"
    assert panel.time.tz_localize(None).tolist() == DAYS.tolist()
    np.testing.assert_array_equal(panel.values[:, 0], np.arange(60))


@pytest.mark.parametrize(
    "form", [*("%d.%m.%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%dT%H%M%S", "%d %b %Y %H:%M")]
)
def test_hours_in_one_format_are_read_as_these_hours(form: str) -> None:
    panel = panel_from_frame(frame_of(HOURS.strftime(form)))
    assert panel.frequency == "h"
    assert panel.time.tz_localize(None).tolist() == HOURS.tolist()


@pytest.mark.parametrize("form", ["%d/%m/%y", "%d/%m/%Y %I:%M %p", "%A, %d %B %Y", "%Y-W%W-%w"])
def test_other_formats_are_asked_for(form: str) -> None:
    text = frame_of(DAYS.strftime(form))
    assert "row 1: " in refusal(text)
    assert "is not a date; write dates like 2016-07-01 00:00:00, or give their date_format" in refusal(text)
    assert panel_from_frame(text, text=TextFormat(date_format=form)).time.tolist() == DAYS.tolist()


@pytest.mark.parametrize("form", ["%d.%m.%Y %H.%M", "%Y-%m-%d %H.%M"])
def test_a_dot_between_hour_and_minute_is_no_fraction_of_a_second(form: str) -> None:
    text = frame_of(pd.date_range("2020-01-01", periods=48, freq="30min").strftime(form))
    assert "is not a date; write dates like 2016-07-01 00:00:00, or give their date_format" in refusal(text)
    assert panel_from_frame(text, text=TextFormat(date_format=form)).frequency == "30min"


def test_two_formats_that_fit_are_refused_naming_both() -> None:
    frame = frame_of(DAYS[:12].strftime("%d/%m/%Y"))
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
        ("%d/%m/%Y", "31/02/2020", "31/02/2020 in column ds is not a date of the format %d/%m/%Y that the others have"),
        ("%d/%m/%Y", "2020-01-21", "2020-01-21 in column ds is not a date of the format %d/%m/%Y"),
        ("%m/%d/%Y", "21/01/2020", "21/01/2020 in column ds is not a date of the format %m/%d/%Y"),
        ("%Y-%m-%d", "21/01/2020", "21/01/2020 in column ds is not a date; write dates like 2016-07-01"),
        ("%Y%m%d", "20201301", "20201301 in column ds is not a date"),
        ("%d %b %Y", "21 Fob 2020", "21 Fob 2020 in column ds is not a date of the format %d %b %Y"),
        ("%Y-%m-%d", "10:00", "10:00 in column ds is not a date"),
    ],
)
def test_the_row_that_does_not_fit_the_format_is_named(form: str, cell: str, said: str) -> None:
    texts = DAYS.strftime(form).tolist()
    texts[20] = cell
    assert f"row 21: {said}" in refusal(frame_of(texts))


@pytest.mark.parametrize(
    ("texts", "frequency", "first"),
    [
        (pd.date_range("2020-05-01", periods=24, freq="MS").strftime("%m/%Y"), "MS", "2020-05-01"),
        (pd.date_range("2020-05-01", periods=24, freq="MS").strftime("%Y-%m"), "MS", "2020-05-01"),
        (pd.date_range("2020-05-01", periods=24, freq="MS").strftime("%B %Y"), "MS", "2020-05-01"),
        ([str(year) for year in range(1990, 2020)], "YS-JAN", "1990-01-01"),
    ],
)
def test_months_and_years_are_read(texts: list[str], frequency: str, first: str) -> None:
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


def test_offsets_that_change_with_the_clocks_are_read() -> None:
    hours = pd.date_range("2020-03-20", periods=6000, freq="h", tz="Europe/Berlin")
    panel = panel_from_frame(frame_of(hours.astype(str)))
    assert panel.frequency == "h"
    assert str(panel.time.tz) == "UTC"
    assert (panel.time == hours).all()


def test_days_whose_offsets_change_are_refused() -> None:
    days = pd.date_range("2020-01-01", periods=400, tz="Europe/Berlin")
    message = refusal(frame_of(days.astype(str)))
    assert "row 90: 2020-03-30 00:00:00+02:00 in column ds has another time zone than the rows before" in message


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
    frame = frame_of(pd.date_range("2000-01-01", periods=rows, freq="min").strftime("%d/%m/%Y %H:%M"))
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
        assert time_stamps(cells, str).equals(expected)
    texts[70_000] = "2031-02-29 05:00"
    with pytest.raises(UserError, match=r"^70000: 2031-02-29 05:00 in column ds is not a date"):
        time_stamps(pd.Series(texts, name="ds").astype(pd.StringDtype()), str)


def test_a_zone_that_is_no_offset_at_the_end_is_refused() -> None:
    days = [f"{day} Europe/Berlin" for day in pd.date_range("2020-07-01", periods=9)]
    with pytest.raises(UserError, match=r"ends in no offset such as \+02:00; write time zones so, or leave them out"):
        time_stamps(pd.Series(days), "row {}".format, date_format="%Y-%m-%d %H:%M:%S %Z")


def test_digits_without_separators_are_of_one_length() -> None:
    stamps = pd.date_range("2020-01-01 00:15", periods=50, freq="15min")
    for form in ("%Y%m%d%H%M", "%Y%m%d%H%M%S"):
        texts = pd.Series(stamps.strftime(form), dtype=object)
        assert time_stamps(texts, "row {}".format).tolist() == stamps.tolist()
    with pytest.raises(UserError, match="2020070112 in column ds is not a date"):
        time_stamps(pd.Series(["2020070112", "2020070212"], name="ds"), "row {}".format)


def test_offsets_that_change_are_those_of_a_zone_that_is_known() -> None:
    days = pd.date_range("2020-03-20", periods=20, tz="Europe/Berlin")
    frame = pd.DataFrame({"ds": days, "y": range(20)})
    written = frame.assign(ds=days.astype(str))
    with pytest.raises(UserError, match="write all dates without a zone"):
        TableReader().read(written)
    assert TableReader(zone_of=days[:0]).read(written).time.equals(TableReader().read(frame).time)
