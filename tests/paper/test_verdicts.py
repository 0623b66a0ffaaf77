"""What numbers of a few seeds decide."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from benchmarks.paper.verdicts import is_lower, mean_interval, most


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ([True], True),
        ([True, True, None], True),
        ([True, None], None),
        ([True, True, False], None),
        ([False, False, None], False),
        ([None], None),
        ([], None),
    ],
)
def test_most_decide_where_none_says_the_opposite(verdicts: list[bool | None], together: bool | None) -> None:
    assert most(verdicts) is together


def test_the_interval_of_a_mean_is_that_of_student() -> None:
    values = [1.0, 2.0, 4.0]
    low, high = mean_interval(values)
    found = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((found.low, found.high))
    assert mean_interval([1.0]) == (-math.inf, math.inf)
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("errors", "others", "found"),
    [
        ([0.1, 0.11, 0.12], [0.5, 0.6, 0.55], True),
        ([0.5, 0.6, 0.55], [0.1, 0.11, 0.12], False),
        ([0.1, 0.11, 0.52], [0.5, 0.6, 0.55], None),  # one seed lies among the others
        ([0.1, 0.11, 0.12], [0.13, 0.9, 5.0], None),  # all below, but for what the spread says by chance
        ([0.1], [0.5, 0.6], None),
        ([0.1, 0.1], [0.2, 0.2], True),
        ([0.1, 0.1], [0.1, 0.1], None),
    ],
)
def test_errors_are_lower_with_every_seed_and_beyond_their_spread(
    errors: list[float], others: list[float], found: bool | None
) -> None:
    assert is_lower(errors, others) is found
