"""Long and wide tables of any kind become the series they hold, or are refused in one sentence."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.data.cases import FREQUENCIES, ROLES, assert_same, covariate_frame, logged, long_frame, refusal, wide_frame
from tsattn.data import FrameDataModule, Panel, TableReader, assembly, panel_from_frame
from tsattn.data.mapped import convert
from tsattn.data.matching import in_static_categories, match_task
from tsattn.data.windows import future_for
from tsattn.errors import UserError
from tsattn.task import Task

KINDS: list[tuple[str, Callable[[pd.Series], pd.Series]]] = [
    *(("y", lambda y, to=to: y.astype(to)) for to in ("float32", "Int64", pd.ArrowDtype(pa.float64()), str)),
    *(("ds", lambda ds, to=to: ds.astype(to)) for to in (object, "category", pd.ArrowDtype(pa.timestamp("s")))),
    ("ds", lambda ds: ds.dt.date),
]


@pytest.mark.parametrize(("column", "change"), KINDS)
def test_numbers_and_time_stamps_of_all_kinds(column: str, change: Callable[[pd.Series], pd.Series]) -> None:
    frame = long_frame({"a": 15, "b": 14})
    assert_same(panel_from_frame(frame.assign(**{column: change(frame[column])})), panel_from_frame(frame))


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
    assert (panel.frequency, panel.lengths.tolist(), panel.channels) == (frequency, lengths, ("y",))
    assert panel.ids == tuple(f"s{number}" for number in range(len(lengths)))
    assert panel.time.tolist() == frame["ds"].tolist()
    np.testing.assert_array_equal(panel.values, frame[["y"]])
    np.testing.assert_array_equal(panel.past_covariates, frame[["past"]])
    assert panel.future_covariates is panel.ahead is None
    assert [panel.static_categories[0][code] for code in panel.static[:, 0]] == [name.upper() for name in panel.ids]


def test_files_and_series_are_read_as_frames(tmp_path: Path) -> None:
    wide = wide_frame().set_index("date")
    assert_same(panel_from_frame(wide["x"]), panel_from_frame(wide[["x"]]))
    assert panel_from_frame(wide["x"].rename(None)).channels == ("y",)
    frame = long_frame({"a": 9, "b": 8})
    frame.to_csv(tmp_path / "it.csv", index=False)
    assert_same(panel_from_frame(str(tmp_path / "it.csv")), panel_from_frame(frame))
    frame.astype({"y": object}).replace({"y": {3.0: "three"}}).to_csv(tmp_path / "it.csv", index=False)
    assert "it.csv, line 5: three in column y" in refusal(tmp_path / "it.csv")


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
    assert min(len(refused), len(panels)) > 12, (len(refused), len(panels))


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
    values = zip(pd.date_range("2024", periods=6), (7, 8, 9, cell, 3, 4), strict=True)
    path, german = tmp_path / "own.csv", TableReader.of({"separator": ";", "decimal": ","})
    path.write_text("\n".join(["date;y", *(f"{day};{value}" for day, value in values)]) + "\n")
    message = re.escape(f"line 5: {cell} in column y is not a number; a target needs numbers (remove thousands separat")
    with pytest.raises(UserError, match=message):
        german.read(path)
    with pytest.raises(UserError, match=message):
        convert(path, tmp_path / "arrays", german.options)
    path.write_text(path.read_text().replace(cell, "1000,5"))
    assert german.read(path).values[:, 0].tolist() == [7, 8, 9, 1000.5, 3, 4]


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


def test_rows_after_the_last_target_are_the_future_of_covariates(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    frame = covariate_frame()
    panel = panel_from_frame(frame, **ROLES)
    known, future = frame[frame["y"].notna()], frame[frame["y"].isna()]
    assert panel.lengths.tolist() == [10, 8]
    assert panel.time.tolist() == known["ds"].tolist()
    np.testing.assert_array_equal(panel.values, known[["y"]])
    np.testing.assert_array_equal(panel.past_covariates, known[["rain"]])
    np.testing.assert_array_equal(panel.future_covariates, known[["price", "promo"]].astype(float))
    assert (panel.past_names, panel.future_names) == (("rain",), ("price", "promo"))
    np.testing.assert_array_equal(panel.ahead, future[["price", "promo"]].astype(float))
    assert panel.ahead_starts.tolist() == [0, 4, 8]
    expected = future[["price", "promo"]].to_numpy(float).reshape(2, 4, 2)
    np.testing.assert_array_equal(future_for(panel, 2), expected[:, :2])
    assert panel.future_time(1, 4).tolist() == future["ds"].tolist()[4:]
    assert logged(caplog) == ["the frame: read 8 rows after the last targets as the future of the covariates"]


def test_future_may_come_in_a_frame_of_its_own() -> None:
    frame = covariate_frame()
    whole, is_future = panel_from_frame(frame, **ROLES), frame["y"].isna()
    future = frame.loc[is_future, ["price", "unique_id", "promo", "ds"]].iloc[::-1]
    assert_same(panel_from_frame(frame[~is_future], future=future, **ROLES), whole)
    # part in rows after the last target, part in the frame of future values
    early = frame["ds"] < frame.groupby("unique_id")["ds"].transform("max")
    assert_same(panel_from_frame(frame[early], future=frame.loc[~early].drop(columns="y"), **ROLES), whole)
    data = FrameDataModule(frame[~is_future], **ROLES)
    data.forecast_from(None, future)
    assert_same(data.source.load(), whole)


def test_future_that_stops_early_is_refused_with_its_place() -> None:
    panel = panel_from_frame(covariate_frame().drop(index=25), **ROLES)  # the last row of series b
    assert future_for(panel, 3).shape == (2, 3, 2)
    said = rf"covariate price stops early.*series b.*{covariate_frame()['ds'][25]}.*step 4 of the 4.*`--future FILE`"
    with pytest.raises(UserError, match=said):
        future_for(panel, 4)
    with pytest.raises(UserError, match=r"series a.*step 5 of the 6"):
        future_for(panel, 6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.assign(unique_id="c"), "has series 'c', but none of the frame; valid are 'a', 'b'"),
        (lambda f: f.assign(ds=f["ds"] - pd.Timedelta(6, "D")), "of future values, row 1: .* twice"),
        (lambda f: f.drop(columns="promo"), "has no future covariate column promo"),
        (lambda f: f.assign(ds=f["ds"].dt.tz_localize("UTC")), "time zone UTC"),
        (lambda f: f.assign(ds=f["ds"] + pd.Timedelta(1, "h")), "of future values, row 1: .* grid"),
    ],
)
def test_unusable_future_is_refused(change: Callable[[pd.DataFrame], object], said: str) -> None:
    frame = covariate_frame()
    future = frame.loc[frame["y"].isna(), ["unique_id", "ds", "price", "promo"]]
    message = refusal(frame[frame["y"].notna()], future=change(future), **ROLES)
    assert "frame of future values" in message
    assert re.search(said, message), message


def test_a_future_within_a_gap_of_the_history_is_refused() -> None:
    frame = long_frame({"a": 9}).assign(x=1.0)
    gap = frame.loc[[4], ["unique_id", "ds", "x"]]
    message = refusal(frame.drop(index=4), future=gap, future_covariates=["x"])
    assert "row 1: time stamp 2020-01-05 00:00:00 of series a is not after the last row with a target" in message


def test_future_of_other_series_is_left_out_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    frame = covariate_frame()
    known, future = frame[frame["y"].notna()], frame.loc[frame["y"].isna(), ["unique_id", "ds", "price", "promo"]]
    more = pd.concat([future.assign(unique_id="x")[:3], future, future.assign(unique_id="z")])
    assert_same(panel_from_frame(known, future=more, **ROLES), panel_from_frame(frame, **ROLES))
    assert logged(caplog) == ["the frame of future values: left out 2 series that are not in the frame: 'x', 'z'"]
    more.iloc[4, more.columns.get_loc("ds")] = more.iloc[3]["ds"]
    message = refusal(known, future=more, **ROLES)
    assert message.startswith("the frame of future values, row 5: time stamp")
    assert "first in the frame of future values, row 4" in message


def test_future_may_write_ids_as_text_that_are_numbers_in_the_table() -> None:
    frame = covariate_frame()
    frame["unique_id"] = frame["unique_id"].map({"a": 1, "b": 2})
    known = frame[frame["y"].notna()]
    future = frame.loc[frame["y"].isna(), ["unique_id", "ds", "price", "promo"]].astype({"unique_id": str})
    more = pd.concat([future, future[future["unique_id"] == "2"].assign(unique_id="9")])
    for table in (future, more):
        assert_same(panel_from_frame(known, future=table, **ROLES), panel_from_frame(frame, **ROLES))
    message = refusal(known, future=future.replace({"unique_id": {"1": "8", "2": "9"}}), **ROLES)
    assert "has series '8', '9', but none of the frame; valid are 1, 2" in message


def test_covariates_without_any_future_are_named() -> None:
    frame = covariate_frame()
    panel = panel_from_frame(frame[frame["y"].notna()], **ROLES)
    advice = r"pass them with `--future FILE` \(Python: `future=frame`\)"
    with pytest.raises(UserError, match=f"^`price`, `promo` have no values for the next 3 steps; {advice}$"):
        future_for(panel, 3)
    frame.loc[frame["y"].isna(), "price"] = np.nan
    with pytest.raises(UserError, match="`price` has no values for the next 3 steps"):
        future_for(panel_from_frame(frame, **ROLES), 3)


def test_rows_without_a_target_need_not_repeat_the_category() -> None:
    frame = covariate_frame().assign(shop=lambda frame: frame["unique_id"].map({"a": "south", "b": "north"}))
    options: dict[str, Any] = {**ROLES, "static": "shop"}
    whole = panel_from_frame(frame, **options)
    is_future = frame["y"].isna()
    assert_same(panel_from_frame(frame.assign(shop=frame["shop"].mask(is_future)), **options), whole)
    first = frame.assign(shop=frame["shop"].mask(frame.index == 0))
    assert "row 1: the category in static column shop is missing" in refusal(first, **options)
    other = frame.assign(shop=frame["shop"].where(~is_future, "west"))
    assert "shop changes within series a, to west" in refusal(other, **options)
    flags = frame.assign(price=pd.Series([True, None] * 13, dtype=object))
    assert panel_from_frame(flags, **ROLES).future_covariates[:2, 0].tolist() == [1, pytest.approx(np.nan, nan_ok=True)]


def test_categories_of_training_number_those_of_later(caplog: pytest.LogCaptureFixture) -> None:
    frame = long_frame({"a": 4, "b": 3}).assign(shop=["south"] * 4 + ["west"] * 3, floor=2.0)
    panel = panel_from_frame(frame, static=["shop", "floor"])
    names, known = ("shop", "floor"), (("north", "south", "west"), ("1", "2"))
    later = in_static_categories(panel.select(static=names), known, "it")
    assert later.static.tolist() == [[1, 1], [2, 1]]
    assert (later.static_names, later.static_categories) == (names, known)
    swapped = in_static_categories(panel.select(static=names[::-1]), known[::-1], "it")
    assert swapped.static.tolist() == [[1, 1], [1, 2]]
    assert panel.select(static=()).static is None
    unseen = in_static_categories(panel.select(static=names), (("north", "south"), ("2",)), "it")
    assert unseen.static.tolist() == [[1, 0], [-1, 0]]
    assert unseen.to_frame()["shop"].unique().tolist() == ["south", "(not seen in training)"]
    assert in_static_categories(unseen, known, "it").static.tolist() == [[1, 1], [-1, 1]]
    assert ["series b has category west, not seen in training" in said for said in caplog.messages] == [True]
    with pytest.raises(UserError, match="it lacks the static column 'region' that the model was trained with"):
        match_task(panel, Task("toy", 4, 2, ("y",), "D", 7, static=("region",), categories=(("north",),)), "it")


@pytest.mark.parametrize(
    ("frequency", "zone"),
    [
        *((frequency, None) for frequency in ("min", "B", "YE-DEC")),
        *((frequency, "Europe/Berlin") for frequency in ("30min", "D")),
    ],
)
def test_gaps_are_filled_as_missing_and_logged(
    frequency: str, zone: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    whole = long_frame({"a": 400, "b": 30, "c": 10} if zone else {"a": 40, "b": 30, "c": 10}, frequency, "2020-03-01")
    whole["ds"] = whole["ds"].dt.tz_localize(zone)
    gone = [10, 28, 29, len(whole) - 20]
    panel = panel_from_frame(whole.drop(index=gone))
    assert panel.frequency == frequency
    assert panel.time.tolist() == whole["ds"].tolist()
    assert panel.lengths.tolist() == [len(whole) - 40, 30, 10]
    np.testing.assert_array_equal(panel.values[:, 0], whole["y"].mask(whole.index.isin(gone)))
    assert logged(caplog) == ["the frame: filled 4 missing time stamps in 2 of 3 series"]


def test_unit_and_time_zone_are_kept() -> None:
    frame = long_frame({"a": 5, "b": 4}, "h").drop(index=2)
    for unit in ("s", "ns"):
        assert panel_from_frame(frame.assign(ds=frame["ds"].dt.as_unit(unit))).time.unit == unit
    for zone in ("Europe/Berlin", "+05:30"):
        panel = panel_from_frame(frame.assign(ds=frame["ds"].dt.tz_localize(zone)))
        assert panel.time[0] == pd.Timestamp("2020-01-01", tz=zone)
    assert str(panel_from_frame(frame.assign(ds=frame["ds"].astype(str) + "Z")).time.tz) == "UTC"


@pytest.mark.parametrize(("one", "other"), [("D", "h"), ("MS", "QS-JAN")])
def test_mixed_frequencies_are_refused(one: str, other: str) -> None:
    frame = pd.concat([long_frame({"a": 30}, one), long_frame({"b": 20}, other)], ignore_index=True)
    assert re.search(f"row 31.*series b have frequency {other!r}, not {one!r} like series a", refusal(frame))


@pytest.mark.parametrize(("frequency", "row"), [("h", 0), ("MS", 20), ("B", 20)])
def test_row_off_the_grid_is_named(frequency: str, row: int) -> None:
    frame = long_frame({"a": 40, "b": 30}, frequency)
    frame.loc[40 + row, "ds"] += pd.Timedelta(7, "min")
    message = refusal(frame)
    assert f"the frame, row {41 + row}: time stamp {frame['ds'][40 + row]} of series b" in message
    assert repr(frequency) in message
    mend = "date months by their" if frequency == "MS" else "round the time stamps to one frequency, or give the right"
    assert mend in message


def test_no_more_rows_are_filled_than_fit_whatever_share_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_FREE_ROWS", 10)
    frame = long_frame({"a": 20})
    frame.loc[19, "ds"] = frame["ds"][0] + pd.Timedelta(100, "D")
    assert len(panel_from_frame(frame, max_filled=1.0).time) == 101
    frame.loc[19, "ds"] = frame["ds"][0] + pd.Timedelta(300, "D")
    assert refusal(frame, max_filled=1.0).endswith("but only 20 rows; check its dates")
