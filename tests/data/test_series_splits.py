"""Many series in one data set are split alike, each by its own rows."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from tests.baseline_scores import baseline_scores
from tests.data.cases import logged
from tests.data.many_series import LENGTHS, L, T, everything, long_frame, prepared
from tsattn.data import ByCount, Split
from tsattn.data.splits import all_origins
from tsattn.errors import UserError


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
