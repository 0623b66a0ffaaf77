"""Dates in text and numbers: ISO 8601, one format of a short list for a whole column, or the one given."""

from __future__ import annotations

import re
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


def frame_of(stamps: object) -> pd.DataFrame:
    frame = pd.DataFrame({"ds": stamps})
    return frame.assign(y=np.arange(len(frame)) * 1.0)


@pytest.mark.parametrize(
    "form",
    [
        *("%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y"),
        *("%Y%m%d", "%Y/%m/%d", "%Y.%m.%d", " %Y-%m-%d ", "%Y-%m-%dT00:00:00Z"),
        *("%d.%m.%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%dT%H%M%S", "%d %b %Y %H:%M"),
    ],
)
def test_days_and_hours_in_one_format_are_read_as_these(form: str) -> None:
    frequency = "h" if "%H" in form else "D"
    stamps = pd.date_range("2020-01-01", periods=400, freq=frequency)
    panel = panel_from_frame(frame_of(stamps.strftime(form)))
    assert panel.frequency == frequency
    assert panel.time.tz_localize(None).tolist() == stamps.tolist()
    np.testing.assert_array_equal(panel.values[:, 0], np.arange(400))


@pytest.mark.parametrize("form", ["%d/%m/%y", "%d/%m/%Y %I:%M %p", "%A, %d %B %Y", "%Y-W%W-%w", "%Y-%m-%d %H.%M"])
def test_other_formats_are_asked_for(form: str) -> None:
    text = frame_of(DAYS.strftime(form))
    said = "row 1: .* is not a date; write dates like 2016-07-01 00:00:00, or give their date_format"
    assert re.search(said, refusal(text))
    assert panel_from_frame(text, text=TextFormat(date_format=form)).time.tolist() == DAYS.tolist()


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


def test_months_and_years_are_read() -> None:
    months = pd.date_range("2020-05-01", periods=24, freq="MS")
    for texts in (months.strftime("%m/%Y"), months.strftime("%Y-%m"), months.strftime("%B %Y")):
        panel = panel_from_frame(frame_of(texts))
        assert (panel.frequency, panel.time.tolist()) == ("MS", months.tolist())
    years = panel_from_frame(frame_of([str(year) for year in range(1990, 2020)]))
    assert (years.frequency, years.time[0], len(years.time)) == ("YS-JAN", pd.Timestamp("1990-01-01"), 30)


@pytest.mark.parametrize("form", ["%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"])
def test_dates_written_as_whole_numbers_are_read(form: str) -> None:
    numbers = DAYS.strftime(form).astype("int64")
    for options in ({}, {"text": TextFormat(date_format=form)}):
        assert panel_from_frame(frame_of(numbers), **options).time.tolist() == DAYS.tolist()
    months = pd.date_range("2020-01-01", periods=30, freq="MS")
    assert panel_from_frame(frame_of(months.strftime("%Y%m").astype(int))).time.tolist() == months.tolist()
    with pytest.raises(UserError, match="2020070112 in column ds is not a date"):
        time_stamps(pd.Series(["2020070112", "2020070212"], name="ds"), "row {}".format)


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


def test_offsets_that_change_with_the_clocks() -> None:
    hours = pd.date_range("2020-03-20", periods=6000, freq="h", tz="Europe/Berlin")
    panel = panel_from_frame(frame_of(hours.astype(str)))
    assert (panel.frequency, str(panel.time.tz)) == ("h", "UTC")
    assert (panel.time == hours).all()
    days = pd.date_range("2020-03-20", periods=20, tz="Europe/Berlin")
    frame = pd.DataFrame({"ds": days, "y": range(20)})
    written = frame.assign(ds=days.astype(str))
    said = r"row 11: 2020-03-30 00:00:00\+02:00 in column ds has another time zone.*write all dates without a zone"
    with pytest.raises(UserError, match=said):
        TableReader().read(written)
    assert TableReader(zone_of=days[:0]).read(written).time.equals(TableReader().read(frame).time)
    named = [f"{day} Europe/Berlin" for day in pd.date_range("2020-07-01", periods=9)]
    with pytest.raises(UserError, match=r"ends in no offset such as \+02:00; write time zones so, or leave them out"):
        time_stamps(pd.Series(named), "row {}".format, date_format="%Y-%m-%d %H:%M:%S %Z")
