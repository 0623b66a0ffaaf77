from __future__ import annotations

import pandas as pd
import pytest

from tsattn.data import future_index, infer_frequency, season_length
from tsattn.data.frequency import seconds
from tsattn.data.grid import normalise_frequency
from tsattn.errors import UserError

# steps in a season; the last line is what files of business data are inferred as, though nobody types it
SEASONS = {"h": 24, "15min": 96, "30min": 48, "10min": 144, "6h": 4, "D": 7, "B": 5, "W-SAT": 52, "MS": 12, "ME": 12}
SEASONS |= {"QS": 4, "QE": 4, "YS": 1, "YE": 1, "BME": 12, "BMS": 12}
SEASONS |= {"BQE": 4, "BQS": 4, "BYE": 1, "BYS": 1, "WOM-3FRI": 12, "bh": 8}


@pytest.mark.parametrize(("frequency", "season"), SEASONS.items())
def test_regular_index_is_recognised_continued_and_has_a_season(frequency: str, season: int) -> None:
    whole = pd.date_range("2015-01-01", periods=63, freq=frequency)
    known = pd.DatetimeIndex(whole[:60].to_numpy())
    inferred = infer_frequency(known, "toy")
    assert normalise_frequency(inferred) == normalise_frequency(frequency)
    assert infer_frequency(known, "toy", expected=inferred) == inferred
    assert future_index(known[-1], inferred, 3).tolist() == whole[60:].tolist()
    assert season_length(inferred) == season


@pytest.mark.parametrize(
    ("frequency", "season"), [("2D", 3), ("2W-SUN", 26), ("3MS", 4), ("2h", 12), ("s", 86400), ("26h", 1), ("2YS", 1)]
)
def test_season_of_multiples(frequency: str, season: int) -> None:
    assert season_length(frequency) == season


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_unit_of_the_time_stamps_does_not_matter(unit: str) -> None:
    assert infer_frequency(pd.date_range("2015-01-01", periods=9, freq="h").as_unit(unit), "toy") == "h"


def test_seconds_are_those_of_the_clock_on_the_wall() -> None:
    noon = pd.DatetimeIndex(["2020-07-01 12:00:00.5"], tz="Europe/Berlin")
    assert seconds(noon).tolist() == [int(pd.Timestamp("2020-07-01 12:00").timestamp())]
    assert seconds(pd.Index([3, 5])).tolist() == [3, 5]


@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
@pytest.mark.parametrize("frequency", ["h", "D", "MS"])
def test_a_future_beyond_the_calendar_is_refused(frequency: str, zone: str | None) -> None:
    with pytest.raises(UserError, match="pass the end of the calendar; lower `--horizon`"):
        future_index(pd.Timestamp("2020-01-01", tz=zone), frequency, 10**16)


def test_future_index_of_length_zero_is_empty() -> None:
    assert len(future_index(pd.Timestamp("2020-01-01"), "h", 0)) == 0


@pytest.mark.parametrize(
    ("frequency", "gap_at"),
    [("h", 1), ("h", 15), ("h", 38), ("W-SAT", 37), ("MS", 15), ("ME", 37), ("QS", 15), ("B", 37)],
)
def test_first_row_after_a_gap_is_named(frequency: str, gap_at: int) -> None:
    index = pd.date_range("2020-01-01", periods=40, freq=frequency).delete(gap_at)
    with pytest.raises(UserError) as caught:
        infer_frequency(index, "toy")
    message = str(caught.value)
    assert message.startswith(f"toy, row {gap_at + 1}: {index[gap_at]} ")
    assert "must be regular" in message
    assert "\n" not in message


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_too_few_rows_have_no_frequency(rows: int) -> None:
    with pytest.raises(UserError, match=f"toy has {rows} rows; at least 3"):
        infer_frequency(pd.date_range("2020-01-01", periods=rows, freq="h"), "toy")


@pytest.mark.parametrize("rows", [1, 2, 30])
@pytest.mark.parametrize("frequency", ["h", "MS", "B"])
def test_known_frequency_is_checked_on_any_number_of_rows(frequency: str, rows: int) -> None:
    index = pd.date_range("2020-01-01", periods=rows, freq=frequency)
    assert infer_frequency(index, "toy", expected=frequency) == frequency


@pytest.mark.parametrize(
    ("index", "expected", "row", "due"),
    [
        pytest.param(pd.date_range("2020-01-01", periods=9, freq="2h"), "h", 2, "2020-01-01 01:00:00", id="coarser"),
        pytest.param(pd.date_range("2020-01-01", periods=9, freq="h"), "D", 2, "2020-01-02 00:00:00", id="finer"),
        pytest.param(
            pd.date_range("2020-01-01", periods=9, freq="h").delete(5), "h", 6, "2020-01-01 05:00:00", id="gap"
        ),
        pytest.param(
            pd.date_range("2020-01-01", periods=9, freq="D"), "W-SAT", 1, "2020-01-04 00:00:00", id="start off the beat"
        ),
    ],
)
def test_other_frequency_than_the_known_one_is_refused(
    index: pd.DatetimeIndex, expected: str, row: int, due: str
) -> None:
    with pytest.raises(UserError) as caught:
        infer_frequency(index, "toy", expected=expected)
    message = str(caught.value)
    assert message.startswith(f"toy, row {row}: {index[row - 1]} ")
    assert due in message
    assert repr(expected) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("zone", "last", "shifted"),
    [
        ("Africa/Cairo", "2024-04-24", "2024-04-26 01:00+03:00"),  # midnight is skipped
        ("America/Santiago", "2024-09-06", "2024-09-08 01:00-03:00"),
        ("America/Havana", "2024-11-01", "2024-11-03 00:00-05:00"),  # midnight comes twice
    ],
)
def test_days_whose_midnight_is_skipped_or_repeated(zone: str, last: str, shifted: str) -> None:
    days = future_index(pd.Timestamp(last, tz=zone), "D", 4)
    naive = future_index(pd.Timestamp(last), "D", 4)
    assert days[1] == pd.Timestamp(shifted)
    assert [*days.date] == [*naive.date]
    assert (days[[0, 2, 3]].tz_localize(None) == naive[[0, 2, 3]]).all()
