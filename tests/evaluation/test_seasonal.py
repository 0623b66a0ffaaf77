"""What MASE divides by, of whole, broken and short histories."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tests.wide_panels import wide_panel
from tsattn.errors import UserError
from tsattn.evaluation.measure import seasonal_error, seasonal_errors


def test_it_is_the_error_of_the_seasonal_naive_forecast() -> None:
    rng = np.random.default_rng(0)
    past = rng.standard_normal((2, 20, 3))
    past[rng.random(past.shape) < 0.2] = np.nan
    found = seasonal_error(torch.tensor(np.where(np.isnan(past), 1e9, past)), 4, torch.tensor(~np.isnan(past)))
    for n, c in np.ndindex(2, 3):
        steps = [abs(past[n, t, c] - past[n, t - 4, c]) for t in range(4, 20)]
        assert found[n, c].item() == pytest.approx(np.mean([step for step in steps if step == step]), rel=1e-12)


def test_it_is_unknown_of_a_short_history() -> None:
    past = torch.arange(6.0).view(1, 6, 1)
    assert seasonal_error(past, 2).item() == 2
    assert seasonal_error(past, 6).isnan().all()
    assert seasonal_error(past, 9).isnan().all()
    with pytest.raises(UserError, match="season_length must be at least 1, not 0"):
        seasonal_error(past, 0)


def test_of_a_panel_only_the_first_rows_are_looked_at() -> None:
    index = pd.date_range("2020-01-01", periods=10, freq="h")
    later = np.where(np.arange(10) < 5, np.arange(10.0), 1e6)
    panel = wide_panel(pd.DataFrame({"a": later, "b": [np.nan] * 9 + [1.0]}, index=index), "toy")
    found = seasonal_errors(panel, np.array([5]), 3)
    np.testing.assert_array_equal(found, [[3.0, np.nan]])
    assert np.isnan(seasonal_errors(panel, np.array([3]), 3)).all()
