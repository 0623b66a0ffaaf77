from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tsattn.data import CARDS, ByShare, Split
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
