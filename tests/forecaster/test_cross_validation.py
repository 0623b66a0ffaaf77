"""Rolling origins: what each model sees, and what its forecasts are paired with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.forecaster.toys import SMALL, T, frame_of, promotions
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_cross_validation_pairs_forecasts_with_what_came() -> None:
    frame = frame_of({"a": 200, "b": 150})
    result = Forecaster(**{**SMALL, "max_steps": 5}).cross_validate(frame, windows=3, step=7)
    assert result.columns.tolist() == ["unique_id", "ds", "cutoff", "predictions", "0.1", "0.5", "0.9", "y"]
    assert len(result) == 3 * 2 * T
    truth = frame.set_index(["unique_id", "ds"])["y"]
    found = truth.loc[pd.MultiIndex.from_frame(result[["unique_id", "ds"]])].to_numpy()
    np.testing.assert_array_equal(result["y"], found)
    ends = frame.groupby("unique_id")["ds"].max()
    for (name, cutoff), part in result.groupby(["unique_id", "cutoff"]):
        hours = [(ends[name] - cutoff) / pd.Timedelta(hours=1)]
        assert hours[0] in (T, T + 7, T + 14)
        assert part["ds"].tolist() == pd.date_range(cutoff, periods=T + 1, freq="h")[1:].tolist()


@pytest.mark.parametrize("refit", [False, True])
def test_cross_validation_never_sees_what_comes(refit: bool) -> None:
    frame = frame_of({"a": 200, "b": 160})
    forecaster = Forecaster(**{**SMALL, "max_steps": 5})
    honest = forecaster.cross_validate(frame, windows=2, refit=refit)
    first = honest["cutoff"].groupby(honest["unique_id"]).min()
    changed = frame.copy()
    after = changed["ds"] > changed["unique_id"].map(first)
    changed.loc[after, "y"] = changed.loc[after, "y"] * 100 - 7
    spoilt = forecaster.cross_validate(changed, windows=2, refit=refit)
    is_first = honest["cutoff"] == honest["unique_id"].map(first)
    assert is_first.sum() == 2 * T
    np.testing.assert_array_equal(spoilt.loc[is_first, "predictions"], honest.loc[is_first, "predictions"])
    assert not spoilt.loc[~is_first, "predictions"].equals(honest.loc[~is_first, "predictions"])


def test_cross_validation_says_which_windows_are_short(caplog: pytest.LogCaptureFixture) -> None:
    forecaster = Forecaster(**{**SMALL, "max_steps": 2})
    result = forecaster.cross_validate(frame_of({"a": 200, "b": 2 * T}), windows=2)
    assert "window 1 of 2 has 1 of 2 series" in caplog.text
    assert result.groupby("unique_id")["cutoff"].nunique().to_dict() == {"a": 2, "b": 1}
    with pytest.raises(UserError, match=r"no series is long enough for 20 windows: the longest has 50 rows, but 241"):
        forecaster.cross_validate(frame_of({"a": 50}), windows=20)
    assert forecaster.fitted is None, "cross-validation leaves the forecaster as it is"


def test_cross_validation_fills_what_covariates_lack_in_rows_that_have_come() -> None:
    """A number or a whole row may be missing in a horizon of the past; ahead of the data each step needs one."""
    frame = promotions(120).drop(columns="region")
    frame.loc[frame.index[[110, 111]], "promotion"] = np.nan
    frame = frame.drop(index=frame.index[[230]])
    forecaster = Forecaster(**{**SMALL, "max_steps": 2, "future_covariates": ["promotion"]})
    result = forecaster.cross_validate(frame, windows=2)
    assert len(result) == 2 * 2 * T
    assert np.isfinite(result["predictions"]).all()
    assert result["y"].isna().sum() == 1, "of the row that is not there"
    with pytest.raises(UserError, match="stops early"):
        forecaster.fit(frame[frame["ds"] < "2023-04-20"]).predict(future=frame[frame["ds"] >= "2023-04-20"])
