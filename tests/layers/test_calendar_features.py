"""Calendar features: the same as pandas finds, and only those that a frequency has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsattn.errors import UserError
from tsattn.layers import CalendarFeatures

DAY, WEEK, YEAR = 2, 2, 2


@given(st.lists(st.datetimes(pd.Timestamp("1700-01-01"), pd.Timestamp("2250-01-01")), min_size=1, max_size=30))
def test_features_are_those_of_pandas(times: list[Any]) -> None:
    index = pd.DatetimeIndex(times).as_unit("s")
    time_of_day = (index - index.normalize()) / pd.Timedelta(1, "D")
    length = np.where(index.is_leap_year, 366, 365)
    phases = [time_of_day, index.day_of_week / 7, (index.day_of_year - 1 + time_of_day) / length]
    expected = [wave(2 * np.pi * np.asarray(phase)) for phase in phases for wave in (np.sin, np.cos)]
    found = CalendarFeatures("h")(torch.from_numpy(index.asi8.copy()), torch.float64)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, np.stack(expected, -1), atol=1e-12)


COUNTS = {
    **dict.fromkeys(("s", "h", "bh", "12h"), DAY + WEEK + YEAR),
    **dict.fromkeys(("24h", "B", "2D"), WEEK + YEAR),
    **dict.fromkeys(("W-WED", "ME", "SME", "QE-NOV", "2QE"), YEAR),
}


def test_only_what_varies_at_a_frequency() -> None:
    for frequency, count in COUNTS.items():
        features = CalendarFeatures(frequency)
        assert features.count == count
        time = pd.date_range("2016-07-01", periods=40, freq=frequency).as_unit("s").asi8.reshape(4, 10)
        found = features(torch.from_numpy(time), torch.float32)
        assert found.shape == (4, 10, count)
        everything = CalendarFeatures("s")(torch.from_numpy(time), torch.float32)
        assert torch.equal(found, everything[..., -count:])


def test_years_have_no_calendar() -> None:
    for frequency in ("YE", "BYE-JUN", "12ME"):
        with pytest.raises(UserError, match=f"need two or more steps a year, and the frequency is '{frequency}'"):
            CalendarFeatures(frequency)
