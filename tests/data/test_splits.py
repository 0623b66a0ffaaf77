"""Many series in one data set are split alike, each by its own rows."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.baseline_scores import baseline_scores
from tests.data.cases import logged
from tests.data.many_series import LENGTHS, L, T, everything, long_frame, prepared
from tsattn.data import CARDS, ByCount, ByShare, Split
from tsattn.data.splits import all_origins
from tsattn.errors import UserError

SPLIT = Split(train_end=100, val_end=130, test_end=200)


@given(st.integers(1, 10**9), st.integers(1, 98), st.integers(1, 98))
def test_shares_in_percent_are_rounded_as_fractions(rows: int, train: int, val: int) -> None:
    assume(train + val < 99)
    split = ByShare(train / 100, val / 100).split(range(rows))
    assert (split.train_end, split.val_end - split.train_end) == (rows * train // 100, rows * val // 100)


@pytest.mark.parametrize(
    ("rows", "train", "val", "test"),
    [(52696, 36887, 5270, 10539), (7588, 5311, 760, 1517), (966, 676, 97, 193), (26304, 18412, 2632, 5260)],
)
def test_benchmark_shares_are_rounded_as_the_literature_does(rows: int, train: int, val: int, test: int) -> None:
    """Training and test rows of weather, exchange rate, ILI and electricity, as Autoformer's loader cuts them."""
    assert CARDS["weather"].split(range(rows)) == Split(train, train + val, rows)
    assert train + val + test == rows


@pytest.mark.parametrize(
    ("train", "val"), [(0, 0.1), (0.7, 0), (-0.1, 0.5), (0.7, 0.3), (0.9, 0.2), (1.0, 0.1), (float("nan"), 0.1)]
)
def test_by_share_refuses_shares_that_leave_a_part_empty(train: float, val: float) -> None:
    with pytest.raises(UserError, match="above 0 that sum to less than 1") as caught:
        ByShare(train, val)
    assert str(train) in str(caught.value)


def test_windows_are_all_there_or_refused_and_never_leak() -> None:
    found = []

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(
        sizes=st.tuples(*[st.integers(1, 60)] * 3),
        part=st.sampled_from(["train", "val", "test"]),
        context=st.integers(1, 60),
        horizon=st.integers(1, 60),
    )
    def check(sizes: tuple[int, int, int], part: str, context: int, horizon: int) -> None:
        ends = tuple(accumulate(sizes))
        start, end = {"train": (0, ends[0]), "val": ends[:2], "test": ends[1:]}[part]
        # training windows lie in their part with their context, the others may reach back
        first = start + context if part == "train" else start
        expected = [row for row in range(first, end) if row + horizon <= end and row >= context]
        complete = part == "train" or context <= start
        split = Split(*ends)
        try:
            origins = list(split.origins(part, context, horizon))
        except UserError:
            origins = []
        assert origins == (expected if complete else [])
        try:
            fits = bool(all_origins([split, split], part, context, horizon))
        except UserError:
            fits = False
        assert fits == (len(origins) > 0)
        found.append(origins)

    check()
    assert 50 < sum(map(bool, found)) < len(found) - 50, "both kinds were drawn, and often"


@pytest.mark.parametrize(
    ("part", "word", "rows"), [("train", "training", 100), ("val", "validation", 30), ("test", "test", 70)]
)
def test_horizon_longer_than_the_part_is_refused_with_the_longest_valid(part: str, word: str, rows: int) -> None:
    with pytest.raises(UserError) as caught:
        SPLIT.origins(part, 1, rows + 1)
    message = str(caught.value)
    assert f"prediction_length {rows + 1}" in message
    assert f"{word} part" in message
    assert f"1 to {rows}" in message


def test_context_too_long_for_training_is_refused() -> None:
    assert list(SPLIT.origins("train", 92, 8)) == [92]
    with pytest.raises(UserError, match=r"context_length 93 and prediction_length 8 need 101 rows.* 100; lower them"):
        SPLIT.origins("train", 93, 8)


@pytest.mark.parametrize(("part", "start"), [("val", 100), ("test", 130)])
def test_context_longer_than_all_rows_before_the_part_is_refused_not_cut_short(part: str, start: int) -> None:
    assert SPLIT.origins(part, start, 8)[0] == start
    with pytest.raises(UserError, match=f"context_length {start + 1}"):
        SPLIT.origins(part, start + 1, 8)


def test_a_part_without_rows_is_said_to_be_one() -> None:
    for part, split in (("training", Split(0, 5, 9)), ("validation", Split(5, 5, 9)), ("test", Split(5, 9, 9))):
        with pytest.raises(UserError, match=f"the {part} part of the data has no rows; move `val_rows` and"):
            split.origins({"training": "train", "validation": "val", "test": "test"}[part], 2, 2)


def test_each_series_is_split_by_the_same_counts() -> None:
    data = prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]], val_rows=5, test_rows=8)
    assert data.splits == [Split(47, 52, 60), Split(32, 37, 45), Split(0, 1, 9), Split(87, 92, 100)]
    assert ByCount(5, 8).split(range(6)) == Split(0, 0, 6)


def test_each_series_is_split_at_the_same_dates() -> None:
    dates = {"val_from": "2020-02-10", "test_from": "2020-02-20 00:00"}
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    data = prepared(frame, **dates)
    for number, split in enumerate(data.splits):
        stamps = data.panel.time_of(number)
        assert (stamps[: split.train_end] < "2020-02-10").all()
        assert (stamps[split.train_end : split.val_end] >= "2020-02-10").all()
        assert (stamps[split.train_end : split.val_end] < "2020-02-20").all()
        assert (stamps[split.val_end :] >= "2020-02-20").all()
        assert split.test_end == len(stamps)
    zoned = prepared(frame.assign(ds=frame.ds.dt.tz_localize("Europe/Berlin")), **dates)
    assert zoned.splits == data.splits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_fraction": 0.5, "val_rows": 3}, "split in one way: train_fraction and val_fraction, or val_rows"),
        ({"val_rows": 3, "test_rows": 3, "val_from": "2020"}, "in one way: val_rows and test_rows, or val_from"),
        ({"val_rows": 3}, "needs both val_rows and test_rows"),
        ({"test_from": "2020-02-01"}, "needs both val_from and test_from"),
        ({"val_rows": -1, "test_rows": 3}, "val_rows must be at least 0, not -1"),
        ({"val_from": "soon", "test_from": "2020-02-01"}, "'soon' is not a date; write it like 2016-07-01"),
        ({"val_from": "2020-02-02", "test_from": "2020-02-01"}, "validation part must start before the test part"),
        ({"val_from": "2020-02-02T00Z", "test_from": "2020-03-01"}, "the data have no time zone, so val_from"),
        ({"scaling": "none"}, "scaling must be one of global, series, not 'none'"),
        (
            {"prediction_length": 11},
            "no series is long enough.* prediction_length 11 .*validation part.*valid: 1 to 10",
        ),
        ({"context_length": 67}, "no series is long enough.*context_length 67 .* need 71 rows, .*training part has 70"),
        (
            {"context_length": 28, "val_from": "2020-02-01", "test_from": "2020-03-01"},
            "not even the longest: context_length 28 and prediction_length 4 need 32 rows.* has 31",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]], **options)
    assert len(str(caught.value).splitlines()) == 1


def test_the_longest_series_may_be_too_new_to_train_on(caplog: pytest.LogCaptureFixture) -> None:
    old, new = long_frame({"old": 60}), long_frame({"new": 90})
    frame = pd.concat([old, new.assign(ds=new.ds + pd.Timedelta(50, "D"))], ignore_index=True)
    data = prepared(frame[["unique_id", "ds", "y"]], val_from="2020-02-10", test_from="2020-02-20")
    assert data.splits == [Split(0, 0, 90), Split(40, 50, 60)]
    assert logged(caplog)[:2] == [
        "1 of 2 series are too short for a training window",
        "1 of 2 series are too short for a validation window",
    ]
    assert [len(data.windows(part)) for part in ("train", "val", "test")] == [25, 7, 7 + 86]
    assert baseline_scores(data)["persistence"]["windows"] == 93


def test_short_series_are_padded_or_left_out_which_is_said(caplog: pytest.LogCaptureFixture) -> None:
    data = prepared(long_frame({"long": 100, "short": 20, "tiny": 5})[["unique_id", "ds", "y"]])
    rows = "context_length 12 + prediction_length 4"
    assert logged(caplog) == [
        "1 of 3 series are too short for a training window",
        "2 of 3 series are too short for a validation window",
        "1 of 3 series are too short for a test window",
        f"2 of 3 series have fewer training rows than {rows}; their contexts are padded",
    ]
    train = everything(list(data.eval_dataloader("train")))
    assert torch.bincount(train["series_id"]).tolist() == [70 - L - T + 1, 1]
    # 14 training rows: ten of context, the rest padded
    assert train["past_observed"][-1, :, 0].tolist() == [False] * 2 + [True] * 10
    assert train["target_observed"][-1].all()
    test = everything(list(data.eval_dataloader("test")))
    assert torch.bincount(test["series_id"]).tolist() == [17, 1]


def test_of_series_that_are_all_too_short_the_one_that_lacks_least_is_spoken_of() -> None:
    splits = [Split(20, 20, 60), Split(90, 100, 110)]  # both test parts hold the horizon of 8 rows
    with pytest.raises(UserError, match="context_length 200 is longer than the 100 rows before the test part"):
        all_origins(splits, "test", 200, 8)


@pytest.mark.parametrize("part", ["val", "test"])
def test_no_window_is_without_context(part: str) -> None:
    splits = [Split(40, 60, 80), Split(0, 30, 60), Split(0, 0, 50), Split(0, 3, 3)]
    for origins in all_origins(splits, part, 12, 4):
        assert not origins or origins[0] >= 1
