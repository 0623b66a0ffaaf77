from __future__ import annotations

import pandas as pd
import pytest

from tsattn.data import future_index, season_length
from tsattn.data.frequency import seconds, try_infer_frequency
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
    inferred = try_infer_frequency(known)
    assert inferred is not None
    assert normalise_frequency(inferred) == normalise_frequency(frequency)
    assert future_index(known[-1], inferred, 3).tolist() == whole[60:].tolist()
    assert season_length(inferred) == season


@pytest.mark.parametrize(
    ("frequency", "season"), [("2D", 3), ("2W-SUN", 26), ("3MS", 4), ("2h", 12), ("s", 86400), ("26h", 1), ("2YS", 1)]
)
def test_season_of_multiples(frequency: str, season: int) -> None:
    assert season_length(frequency) == season


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
