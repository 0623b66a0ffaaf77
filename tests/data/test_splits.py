"""Many series in one data set are split alike, each by its own rows."""

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
from tsattn.data.splits import LastTenth, all_origins, asked_rule
from tsattn.errors import UserError

SPLIT = Split(train_end=100, val_end=130, test_end=200)


@settings(deadline=None)
@given(st.integers(1, 10**9), st.integers(1, 98), st.integers(1, 98))
def test_shares_in_percent_are_rounded_as_fractions(rows: int, train: int, val: int) -> None:
    assume(train + val < 99)
    split = ByShare(train / 100, val / 100).split(range(rows))
    assert (split.train_end, split.val_end - split.train_end) == (rows * train // 100, rows * val // 100)


def test_benchmark_shares_are_rounded_as_the_literature_does() -> None:
    """Training and test rows of weather, exchange rate, ILI and electricity, as Autoformer's loader cuts them."""
    rows = [(36887, 5270, 10539), (5311, 760, 1517), (676, 97, 193), (18412, 2632, 5260)]
    for train, val, test in rows:
        whole = train + val + test
        assert CARDS["weather"].split(range(whole)) == Split(train, train + val, whole)
    for shares in ((0, 0.1), (0.7, 0), (-0.1, 0.5), (0.7, 0.3), (0.9, 0.2), (1.0, 0.1), (float("nan"), 0.1)):
        with pytest.raises(UserError, match=f"above 0 and sum to less than 1.*{shares[0]}"):
            ByShare(*shares)


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
    assert 20 < sum(map(bool, found)) < len(found) - 20, "both kinds were drawn, and often"


def test_lengths_that_do_not_fit_are_refused_with_the_longest_valid() -> None:
    for part, word, rows in (("train", "training", 100), ("val", "validation", 30), ("test", "test", 70)):
        with pytest.raises(UserError, match=f"prediction_length {rows + 1} .*{word} part.*1 to {rows}"):
            SPLIT.origins(part, 1, rows + 1)
    assert list(SPLIT.origins("train", 92, 8)) == [92]
    with pytest.raises(UserError, match=r"context_length 93 and prediction_length 8 need 101 rows.* 100; lower them"):
        SPLIT.origins("train", 93, 8)
    for part, start in (("val", 100), ("test", 130)):
        assert SPLIT.origins(part, start, 8)[0] == start
        with pytest.raises(UserError, match=f"context_length {start + 1}"):
            SPLIT.origins(part, start + 1, 8)
        for origins in all_origins([Split(40, 60, 80), Split(0, 30, 60), Split(0, 0, 50), Split(0, 3, 3)], part, 12, 4):
            assert not origins or origins[0] >= 1, "no window is without context"
    for part, split in (("training", Split(0, 5, 9)), ("validation", Split(5, 5, 9)), ("test", Split(5, 9, 9))):
        with pytest.raises(UserError, match=f"the {part} part of the data has no rows; move `val_rows` and"):
            split.origins({"training": "train", "validation": "val", "test": "test"}[part], 2, 2)
    splits = [Split(20, 20, 60), Split(90, 100, 110)]  # of which the one that lacks least is spoken of
    with pytest.raises(UserError, match="context_length 200 is longer than the 100 rows before the test part"):
        all_origins(splits, "test", 200, 8)


def test_each_series_is_split_by_the_same_counts_or_dates() -> None:
    frame = long_frame(LENGTHS)[["unique_id", "ds", "y"]]
    data = prepared(frame, val_rows=5, test_rows=8)
    assert data.splits == [Split(47, 52, 60), Split(32, 37, 45), Split(0, 1, 9), Split(87, 92, 100)]
    assert ByCount(5, 8).split(range(6)) == Split(0, 0, 6)
    dates = {"val_from": "2020-02-10", "test_from": "2020-02-20 00:00"}
    data = prepared(frame, **dates)
    for number, split in enumerate(data.splits):
        stamps = data.panel.time_of(number)
        before, between = (stamps < "2020-02-10").sum(), (stamps < "2020-02-20").sum()
        assert split == Split(int(before), int(between), len(stamps))
    zoned = prepared(frame.assign(ds=frame.ds.dt.tz_localize("Europe/Berlin")), **dates)
    assert zoned.splits == data.splits


def test_rules_and_cuts_count_rows() -> None:
    assert SPLIT.with_validation(0.0, 0.8) == Split(100, 124, 200)
    assert SPLIT.with_validation(0.8, 1.0) == Split(124, 130, 200)
    for rows, left in ((100, 90), (50, 42), (27, 27), (28, 20)):  # a horizon of 8 at least, and a whole window before
        assert LastTenth(12, 8).split(range(rows)) == Split(left, rows, rows)
    steps = asked_rule(val_from="2020-02-10", test_from="2020-02-20")
    with pytest.raises(UserError, match="the data count steps and have no dates: give val_rows"):
        steps.split(pd.RangeIndex(50))
    with pytest.raises(UserError, match=r"'30' is not a date; .*, or split data that count steps by val_rows"):
        asked_rule(val_from="30", test_from="40")
    assert all_origins([SPLIT], "val", 20, 8) == [range(100, 123)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_fraction": 0.5, "val_rows": 3}, "split in one way only: leave out train_fraction and val_fraction"),
        ({"test_from": "2020-02-01"}, "needs both val_from and test_from$"),
        ({"test_rows": 3}, "needs both val_rows and test_rows; give the other, too, 0 for none"),
        ({"val_rows": -1, "test_rows": 3}, "val_rows must be at least 0, not -1"),
        ({"val_rows": 0.2, "test_rows": 3}, "val_rows must be a whole number, not 0.2"),
        ({"train_fraction": "0.7"}, "train_fraction and val_fraction must be above 0 and sum to less than 1"),
        ({"val_from": "soon", "test_from": "2020-02-01"}, "'soon' is not a date; write it like 2016-07-01"),
        ({"val_from": "2020-02-02", "test_from": "2020-02-01"}, "validation part must start before the test part"),
        ({"val_from": "2020-02-01", "test_from": "2020-02-01"}, "validation part must start before the test part"),
        ({"val_from": "2020-02-02T00Z", "test_from": "2020-03-01"}, "the data have no time zone, so val_from"),
        ({"scaling": "none"}, "scaling must be one of global, series, not 'none'"),
        ({"batch_size": None}, "batch_size must be a whole number, not None"),  # as of a key of YAML without a value
        ({"num_workers": -1}, "num_workers must be at least 0, not -1"),
        ({"resident_gb": float("nan")}, "resident_gb must be at least 0"),
        ({"context_length": 0}, "^context_length must be at least 1, not 0$"),
        (
            {"prediction_length": 11},
            "every series is too short.* prediction_length 11 .*validation part.*valid: 1 to 10",
        ),
        ({"context_length": 67}, "series is too short.*context_length 67 .* need 71 rows, .*training part has 70"),
        (
            {"context_length": 28, "val_from": "2020-02-01", "test_from": "2020-03-01"},
            "too short, even the longest: context_length 28 and prediction_length 4 need 32 rows.* has 31",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        prepared(long_frame(LENGTHS)[["unique_id", "ds", "y"]], **options)
    assert len(str(caught.value).splitlines()) == 1


def test_the_longest_series_may_be_too_new_to_train_on() -> None:
    old, new = long_frame({"old": 60}), long_frame({"new": 90})
    frame = pd.concat([old, new.assign(ds=new.ds + pd.Timedelta(50, "D"))], ignore_index=True)
    data = prepared(frame[["unique_id", "ds", "y"]], val_from="2020-02-10", test_from="2020-02-20")
    assert data.splits == [Split(0, 0, 90), Split(40, 50, 60)]
    assert [len(data.windows(part)) for part in ("train", "val", "test")] == [25, 7, 7 + 86]
    assert baseline_scores(data)["persistence"]["windows"] == 93


def test_short_series_are_padded_or_left_out_which_is_said(caplog: pytest.LogCaptureFixture) -> None:
    data = prepared(long_frame({"long": 100, "short": 20, "tiny": 5})[["unique_id", "ds", "y"]])
    rows = f"context_length {L} + prediction_length {T}"
    assert logged(caplog) == [
        "1 of 3 series are too short for a training window",
        "2 of 3 series are too short for a validation window",
        "1 of 3 series are too short for a test window",
        f"2 of 3 series have fewer training rows than {rows}; their contexts are padded",
    ]
    train, test = (everything(list(data.eval_dataloader(part))) for part in ("train", "test"))
    assert torch.bincount(train["series_id"]).tolist() == [70 - L - T + 1, 1]
    # 14 training rows: ten of context, the rest padded
    assert train["past_observed"][-1, :, 0].tolist() == [False] * 2 + [True] * 10
    assert train["target_observed"][-1].all()
    assert torch.bincount(test["series_id"]).tolist() == [17, 1]
