"""Frequencies: their names, seasons and futures; and grids: where stamps lie, and which frequency they have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tsattn.data import future_index, season_length
from tsattn.data.frequency import OFF_GRID, Grid, normalise_frequency, seconds, try_infer_frequency, usual_frequency
from tsattn.errors import UserError

# from a minute to a year, by the names that pandas infers
FREQUENCIES = [
    *("s", "min", "15min", "30min", "h", "6h", "D", "2D", "B", "W-SUN", "W-WED", "2W-MON", "MS", "ME", "2MS"),
    *("BMS", "BME", "QS-JAN", "QE-DEC", "BQS-JAN", "2QS-JAN", "YS-JAN", "YE-DEC", "YS-JUL", "BYE-DEC"),
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
    ("frequency", "unit"), [*((frequency, "us") for frequency in FREQUENCIES), ("h", "s"), ("MS", "s"), ("MS", "ns")]
)
def test_frequency_is_seen_through_gaps(frequency: str, unit: str) -> None:
    whole = stamps(frequency).as_unit(unit)
    assert usual_frequency(whole) == frequency
    assert usual_frequency(whole.delete([3, 4, 17, 30])) == frequency
    assert usual_frequency(whole.delete([1])) == frequency


def test_of_steps_that_are_as_frequent_the_smallest_is_usual() -> None:
    assert usual_frequency(pd.Index([0, 1, 2, 4, 6])) == "1"
    hours = pd.to_datetime(["2020-01-01 00:00", "2020-01-01 01:00", "2020-01-01 02:00", "2020-01-01 04:00"])
    assert usual_frequency(hours.append(pd.DatetimeIndex(["2020-01-01 06:00"]))) == "h"


@pytest.mark.parametrize("frequency", ["D", "B", "W-SUN", "MS", "QE-DEC", "YS-JAN"])
def test_time_of_day_does_not_matter(frequency: str) -> None:
    assert usual_frequency(stamps(frequency).delete(5) + pd.Timedelta(6, "h")) == frequency


@pytest.mark.parametrize(
    ("frequency", "tz"),
    [*((frequency, "Europe/Berlin") for frequency in ("30min", "h", "D", "W-SUN", "MS")), ("h", "+05:30")],
)
def test_frequency_is_seen_across_changes_of_clocks(frequency: str, tz: str) -> None:
    whole = stamps(frequency, rows=400, first="2020-03-01", tz=tz)
    assert usual_frequency(whole) == frequency
    assert usual_frequency(whole.delete([5, 300])) == frequency


def test_daily_series_needs_a_weekend_to_be_one_of_business_days() -> None:
    days = pd.DatetimeIndex(["2024-01-01", "2024-01-02", "2024-01-04", "2024-01-05"])  # Monday to Friday
    assert usual_frequency(days) == "D"
    assert usual_frequency(days.append(pd.DatetimeIndex(["2024-01-08"]))) == "B"
    assert usual_frequency(pd.DatetimeIndex(["2024-01-01", "2024-01-08", "2024-01-09", "2024-01-10"])) == "B"


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


@pytest.mark.parametrize("frequency", ["15min", "h", "D", "B", "W-SUN", "MS", "QE-DEC", "2MS", "2W-MON"])
def test_stamp_off_the_grid_has_another_phase(frequency: str) -> None:
    whole = stamps(frequency)
    moved = whole.insert(8, whole[7] + pd.Timedelta(7, "min"))
    phases = Grid(moved, frequency).split(moved)[1]
    assert np.flatnonzero(phases != phases[0]).tolist() == [8]


def test_days_that_are_skipped_by_the_calendar_are_off_the_grid() -> None:
    index = pd.DatetimeIndex(["2024-01-05", "2024-01-06", "2024-01-08"])  # Friday, Saturday, Monday
    coordinates, phases = Grid(index, "B").split(index)
    assert (phases == OFF_GRID).tolist() == [False, True, False]
    assert coordinates[2] - coordinates[0] == 1


def test_skipped_wall_clock_time_is_moved_to_just_after_the_change() -> None:
    given = pd.DatetimeIndex(["2024-03-30 02:30", "2024-04-01 02:30"], tz="Europe/Berlin")
    grid = Grid(given, "D")
    coordinates, phases = grid.split(given)
    assert (coordinates[1] - coordinates[0], phases[0]) == (2, phases[1])
    filled = grid.join(coordinates[:1] + 1, phases[:1])
    assert filled[0] == pd.Timestamp("2024-03-31 03:00", tz="Europe/Berlin")


def test_frequencies_of_all_pandas_versions_are_understood() -> None:
    for name in NAMES:
        given, normal = name.split("=")
        assert normalise_frequency(given) == normal
    assert normalise_frequency(1) == "1"


@pytest.mark.parametrize("wrong", ["", "hourly", "0D", "-1h", "X", "0", "-5", "1.5", "99999999999999999999h"])
def test_what_is_no_frequency_is_refused(wrong: str) -> None:
    with pytest.raises(UserError) as caught:
        normalise_frequency(wrong)
    assert repr(wrong) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("tz", "day"),
    [("America/Sao_Paulo", "2017-10-15"), ("Africa/Cairo", "2023-04-28"), ("America/Havana", "2023-03-12")],
)
@pytest.mark.parametrize("hours", [0, 0.5, 1, 12])
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
