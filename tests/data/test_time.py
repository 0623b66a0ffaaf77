"""Dates in text and numbers; frequencies, their seasons and futures; and grids, where stamps lie."""

import re
import time

import numpy as np
import pandas as pd
import pytest

from tests.data.cases import assert_same, logged, long_frame, refusal, wide_frame
from tsattn.data import TableReader, future_index, panel_from_frame, season_length
from tsattn.data.frequency import OFF_GRID, Grid, normalise_frequency, try_infer_frequency, usual_frequency
from tsattn.data.stamps import time_stamps
from tsattn.data.table_options import TableOptions
from tsattn.errors import UserError

DAYS = pd.date_range("2020-01-01", periods=60)


def frame_of(stamps: object) -> pd.DataFrame:
    frame = pd.DataFrame({"ds": stamps})
    return frame.assign(y=np.arange(len(frame)) * 1.0)


FORMS = {
    "D": ["%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%d %b %Y", "%B %d, %Y", "%Y%m%d", " %Y-%m-%d ", "%Y-%m-%dT00:00:00Z"],
    "h": ["%d.%m.%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%Y%m%d%H%M", "%Y%m%dT%H%M%S"],
    "MS": ["%m/%Y", "%Y-%m", "%B %Y"],
    "YS-JAN": ["%Y"],
}


@pytest.mark.parametrize(("frequency", "form"), [(one, form) for one, forms in FORMS.items() for form in forms])
def test_dates_in_one_format_are_read_as_these(frequency: str, form: str) -> None:
    rows = 30 if frequency == "YS-JAN" else 400
    stamps = pd.date_range("1990-01-01", periods=rows, freq=frequency)
    panel = panel_from_frame(frame_of(stamps.strftime(form)))
    assert panel.frequency == frequency
    assert panel.time.tz_localize(None).tolist() == stamps.tolist()
    np.testing.assert_array_equal(panel.values[:, 0], np.arange(rows))


@pytest.mark.parametrize("form", ["%d/%m/%y", "%d/%m/%Y %I:%M %p", "%A, %d %B %Y", "%Y-W%W-%w", "%Y-%m-%d %H.%M"])
def test_other_formats_are_asked_for(form: str) -> None:
    text = frame_of(DAYS.strftime(form))
    said = "row 1: .* is not a date; write dates like 2016-07-01 00:00:00, or give `--data.date_format` .Python: `data="
    assert re.search(said, refusal(text))
    assert panel_from_frame(text, date_format=form).time.tolist() == DAYS.tolist()


def test_two_formats_that_fit_are_refused_naming_both() -> None:
    frame = frame_of(DAYS[:12].strftime("%d/%m/%Y"))
    message = refusal(frame)
    assert "row 2: 02/01/2020 in column ds can be read as %d/%m/%Y (2020-01-02) or as %m/%d/%Y (2020-02-01)" in message
    assert message.endswith('give the right `--data.date_format` (Python: `data={"date_format": ...}`)')
    for form, frequency in (("%d/%m/%Y", "D"), ("%m/%d/%Y", "MS")):
        panel = panel_from_frame(frame, date_format=form)
        assert panel.frequency == frequency
        assert panel.time.tolist() == pd.to_datetime(frame["ds"], format=form).tolist()


@pytest.mark.parametrize(
    ("form", "cell", "said"),
    [
        ("%d/%m/%Y", "31/02/2020", "31/02/2020 in column ds is not a date of the format %d/%m/%Y of the other rows"),
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


@pytest.mark.parametrize("form", ["%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S"])
def test_dates_written_as_whole_numbers_are_read(form: str) -> None:
    numbers = DAYS.strftime(form).astype("int64")
    for options in ({}, {"date_format": form}):
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
        ({"comment": "##"}, "comment must be one character"),
        ({"skip_rows": -1}, "skip_rows must be at least 0, not -1"),
        ({"max_filled": True}, "max_filled must be from 0 to 1"),
        ({"id_column": []}, r"id_column must name a column, not \[\]"),
    ],
)
def test_what_text_is_not_written_in_is_refused(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("|", r"\|")) as caught:
        TableOptions(**wrong)
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


# from a minute to a year, by the names that pandas infers
FREQUENCIES = [
    *("s", "15min", "30min", "h", "D", "2D", "B", "W-SUN", "2W-MON", "MS", "ME", "2MS"),
    *("BMS", "BME", "QS-JAN", "QE-DEC", "2QS-JAN", "YS-JUL", "YE-DEC", "BYE-DEC"),
]
NAMES = [
    *("H=h", "15T=15min", "T=min", "S=s", "M=ME", "3M=3ME", "Q=QE-DEC", "Q-MAR=QE-DEC", "QE-NOV=QE-NOV"),
    *("QE-APR=QE-OCT", "QS-OCT=QS-JAN", "2BQS-DEC=2BQS-MAR", "A=YE-DEC", "Y=YE-DEC", "AS=YS-JAN", "BM=BME"),
    *("W=W-SUN", "60min=h", "90min=90min", "120s=2min", "24h=24h", "7D=7D", "MS=MS", "B=B", "SM=SME-15"),
    *("SMS=SMS-15", "100L=100ms", "1500ms=1500ms", "2000ms=2s", "ns=ns", "5=5"),
]


def stamps(frequency: str, rows: int = 40, first: str = "2001-01-01", tz: str | None = None) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(pd.date_range(first, periods=rows, freq=frequency, tz=tz).array, freq=None)


@pytest.mark.parametrize(
    ("frequency", "unit", "tz"),
    [
        *((frequency, "us", None) for frequency in FREQUENCIES),
        *(("h", "s", None), ("MS", "s", None), ("MS", "ns", None)),
        *((frequency, "us", "Europe/Berlin") for frequency in ("30min", "h", "D", "W-SUN", "MS")),
    ],
)
def test_frequency_is_seen_through_gaps_and_changes_of_clocks(frequency: str, unit: str, tz: str | None) -> None:
    whole = stamps(frequency, 400 if tz else 40, "2020-03-01" if tz else "2001-01-01", tz).as_unit(unit)
    assert usual_frequency(whole) == frequency
    assert usual_frequency(whole.delete([3, 4, 17, 30])) == frequency
    assert usual_frequency(whole.delete([1])) == frequency
    if not frequency.endswith(("s", "min", "h")):  # the time of day does not matter
        assert usual_frequency(whole.delete(5) + pd.Timedelta(6, "h")) == frequency


def test_days_at_a_time_that_occurs_twice_are_days() -> None:
    wall = pd.date_range("2017-09-01 02:30", periods=120, freq="D")
    for is_summer in (True, False):
        days = wall.tz_localize("Europe/Berlin", ambiguous=[is_summer] * 120)
        assert usual_frequency(days) == "D"
        assert try_infer_frequency(days) == (None if is_summer else "D"), "the future of days is that of winter"


def test_the_smallest_step_and_days_of_business() -> None:
    assert usual_frequency(pd.Index([0, 1, 2, 4, 6])) == "1", "of steps that are as frequent"
    hours = pd.DatetimeIndex([f"2020-01-01 0{hour}:00" for hour in (0, 1, 2, 4, 6)])
    assert usual_frequency(hours) == "h"
    days = pd.DatetimeIndex(["2024-01-01", "2024-01-02", "2024-01-04", "2024-01-05"])  # Monday to Friday
    assert usual_frequency(days) == "D"
    assert usual_frequency(days.append(pd.DatetimeIndex(["2024-01-08"]))) == "B", "a weekend shows it"
    assert usual_frequency(pd.DatetimeIndex(["2024-01-01", "2024-01-08", "2024-01-09", "2024-01-10"])) == "B"
    one_of_two = long_frame({"a": 5, "b": 4}, "B", first="2024-01-01")  # b begins on Thursday
    assert (panel_from_frame(one_of_two).frequency, panel_from_frame(one_of_two[:5]).frequency) == ("B", "D")


@pytest.mark.parametrize(
    ("frequency", "tz"),
    [
        *((frequency, "Europe/Berlin") for frequency in (*FREQUENCIES, "bh", "WOM-3FRI", "SME")),
        *((frequency, None) for frequency in ("h", "D", "2MS", "bh")),
    ],
)
def test_grid_numbers_stamps_in_turn_and_gives_them_back(frequency: str, tz: str | None) -> None:
    whole = stamps(frequency, tz=tz)
    grid = Grid(whole, frequency)
    coordinates, phases = grid.split(whole)
    assert (np.diff(coordinates) == 1).all()
    assert (phases == phases[0]).all()
    assert phases[0] != OFF_GRID
    assert grid.join(coordinates, phases).tolist() == whole.tolist()


def test_frequencies_of_all_pandas_versions_are_understood() -> None:
    for name in NAMES:
        given, normal = name.split("=")
        assert normalise_frequency(given) == normal
    assert normalise_frequency(1) == "1"
    for wrong in ("", "hourly", "0D", "-1h", "X", "0", "-5", "1.5", "99999999999999999999h"):
        with pytest.raises(UserError, match=f"^[^\n]*{wrong!r}[^\n]*$"):
            normalise_frequency(wrong)


@pytest.mark.parametrize(
    ("tz", "day", "hours"),
    [("America/Sao_Paulo", "2017-10-15", 0), ("Africa/Cairo", "2023-04-28", 0.5), ("America/Havana", "2023-03-12", 12)],
)
def test_a_midnight_that_a_change_of_clocks_skips_is_on_the_grid(tz: str, day: str, hours: float) -> None:
    """Its stamp is that of the first moment after the change, as `join` writes it and pandas moves it."""
    wall = pd.date_range(pd.Timestamp(day) - pd.Timedelta(3, "D"), periods=6, freq="D") + pd.Timedelta(hours, "h")
    index = wall.tz_localize(tz, nonexistent="shift_forward")
    assert index[3] == pd.Timestamp(f"{day} 01:00", tz=tz) or hours == 12
    grid = Grid(index, "D")
    coordinates, phases = grid.split(index)
    assert np.diff(coordinates).tolist() == [1] * 5
    assert (phases == phases[0]).all()
    assert grid.join(coordinates, phases).equals(index)
    if hours == 0:  # alone it stands for what it is most often
        alone = grid.split(index[3:4])
        assert (alone[0][0], alone[1][0]) == (coordinates[3], phases[3])


# steps in a season; the last ones are what files of business data are inferred as, though nobody types them
SEASONS = {"h": 24, "15min": 96, "10min": 144, "6h": 4, "D": 7, "B": 5, "W-SAT": 52, "MS": 12, "ME": 12, "QS": 4}
SEASONS |= {"QE": 4, "YS": 1, "BME": 12, "BQS": 4, "BYE": 1, "WOM-3FRI": 12, "bh": 8}
MULTIPLES = {"2D": 3, "2W-SUN": 26, "3MS": 4, "2h": 12, "s": 86400, "26h": 1, "2YS": 1}


@pytest.mark.parametrize(("frequency", "season"), SEASONS.items())
def test_regular_index_is_recognised_continued_and_has_a_season(frequency: str, season: int) -> None:
    whole = pd.date_range("2015-01-01", periods=63, freq=frequency)
    known = pd.DatetimeIndex(whole[:60].to_numpy())
    inferred = try_infer_frequency(known)
    assert normalise_frequency(inferred) == normalise_frequency(frequency)
    assert future_index(known[-1], inferred, 3).tolist() == whole[60:].tolist()
    assert len(future_index(known[-1], inferred, 0)) == 0
    assert season_length(inferred) == season
    assert {multiple: season_length(multiple) for multiple in MULTIPLES} == MULTIPLES


@pytest.mark.parametrize(("frequency", "zone"), [("h", None), ("D", "Europe/Paris"), ("MS", None)])
def test_a_future_beyond_the_calendar_is_refused(frequency: str, zone: str | None) -> None:
    with pytest.raises(UserError, match="pass the end of the calendar; lower `--horizon`"):
        future_index(pd.Timestamp("2020-01-01", tz=zone), frequency, 10**16)


FROM = "2020-01-01"


@pytest.mark.parametrize(("gaps", "zone"), [([], None), ([4, 9, 10], "Europe/Berlin")])
@pytest.mark.parametrize(
    ("stamps", "frequency"),
    [
        (pd.date_range(FROM, periods=80, freq="MS") + pd.Timedelta(14, "D"), "MS"),
        (pd.date_range("2020-02-01", periods=80, freq="3MS") + pd.Timedelta(14, "D"), "QS-FEB"),
        (pd.to_datetime([f"{y}-07-04" for y in range(1950, 2020)]), "YS-JUL"),
        *((pd.date_range(FROM, periods=80, freq=name), name) for name in ("100ms", "250us")),
    ],
    ids=str,
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
    assert logged(caplog) == ["column ds has whole numbers that are not dates; they are read as steps"]
    holes = panel_from_frame(frame.drop(index=[3, 4, 30]), frequency=step)
    assert holes.time.tolist() == frame["ds"].tolist()
    assert_same(panel_from_frame(panel.to_frame(), frequency=panel.frequency), panel)
    for index in (pd.RangeIndex(40), pd.Index(range(5, 45), name="t")):
        panel = panel_from_frame(pd.DataFrame({"a": np.arange(40.0), "b": 1.0}, index=index))
        assert (panel.frequency, panel.channels, panel.time_name) == ("1", ("a", "b"), index.name or "ds")
        assert panel.future_time(0, 2).tolist() == [index[-1] + 1, index[-1] + 2]


def test_steps_and_time_stamps_are_told_apart() -> None:
    steps, days = frame_of(range(30)), frame_of(pd.date_range("2020-01-01", periods=30))
    assert "row 1: 0 in column ds is not a date" in refusal(steps, frequency="h")
    assert "has time stamps, but frequency '1' counts steps; valid are, for example" in refusal(days, frequency=1)
    assert "has steps, but the training data has time stamps" in refusal(steps, zone_of=pd.DatetimeIndex(days["ds"]))
    twice = frame_of([0, 1, 2, 2, 3])
    assert "row 4: time stamp 2 is there twice" in refusal(twice)
    assert "row 4: time stamp 5 comes 1 after the row before, but is not on the grid" in refusal(
        frame_of([0, 2, 4, 5, 8])
    )


@pytest.mark.parametrize("first_days", [10, 200])
def test_hourly_and_daily_rows_in_one_series_are_filled_where_that_is_asked_for(first_days: int) -> None:
    days = pd.date_range("2020-01-01", periods=first_days)
    hours = pd.date_range(days[-1] + pd.Timedelta(1, "D"), periods=3000, freq="h")
    frame = frame_of(days.append(hours))
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
    assert message.endswith('or raise `--data.max_filled` (Python: `data={"max_filled": ...}`)')
    assert len(panel_from_frame(thin, max_filled=0.76).time) == 200
    assert "max_filled 0.1 allows" in refusal(frame.drop(index=range(5, 25)), max_filled=0.1)
    assert "max_filled must be from 0 to 1" in refusal(frame, max_filled=1.5)


def test_a_series_without_any_value_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 20, "b": 15, "c": 10}).assign(kind="x", price=1.0)
    empty = frame.assign(y=frame["y"].where(frame["unique_id"] != "b"))
    roles = {"static": ["kind"], "future_covariates": ["price"]}
    assert_same(panel_from_frame(empty, **roles), panel_from_frame(frame[frame["unique_id"] != "b"], **roles))
    assert logged(caplog) == ["the frame: left out 1 of 3 series without any value: 'b'"]
    broken = empty.assign(y=empty["y"].where(empty.index != 40, np.inf))
    assert "row 41" in refusal(broken)


def test_a_saved_index_is_no_series(caplog: pytest.LogCaptureFixture) -> None:
    frame = wide_frame()
    saved = frame.copy()
    saved.insert(0, "Unnamed: 0", range(len(frame)))
    assert panel_from_frame(saved).channels == ("x", "z")
    assert logged(caplog)[0].startswith("the frame: column 'Unnamed: 0' only numbers the rows, as a saved index does")
    assert panel_from_frame(saved, target=["Unnamed: 0", "x"]).channels == ("Unnamed: 0", "x")
    message = refusal(saved.assign(**{"Unnamed: 0": 5.0}))
    assert "column 'Unnamed: 0' of the frame has no name in the file" in message
    dates = frame.rename(columns={"date": "Unnamed: 0"}).astype({"Unnamed: 0": str})
    assert panel_from_frame(dates).time_name == "ds"
    assert_same(panel_from_frame(dates), panel_from_frame(frame))


def test_ids_and_time_stamps_named_like_a_column_of_forecasts_are_refused() -> None:
    frame = long_frame({"a": 9, "b": 9}).rename(columns={"y": "sold"})
    for name in ("predictions", "0.5", ".9", "cutoff", "y", "target_name"):
        for column, role, what in (("unique_id", "id_column", "ids"), ("ds", "time_column", "time stamps")):
            named = {"id_column": "unique_id", role: name}
            message = refusal(frame.rename(columns={column: name}), target="sold", **named)
            assert message.startswith(f"column {name} of the frame holds {what}, but forecasts have a column of that")
