"""Forecasts under each precision of a training: the level of a series is rounded by none."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.chronos.saved_weights import weights_of
from tsattn import Forecaster


@functools.cache
def forecast(family: str, precision: str) -> Any:
    """Quantiles of a series far from zero after a training that changes nothing."""
    frame = pd.DataFrame(
        {"y": 10_000 + np.sin(np.arange(200.0))}, index=pd.date_range("2024", periods=200, freq="D", name="ds")
    )
    forecaster = Forecaster(
        {"kind": "chronos", "weights": weights_of(family), "trained": "all"},
        context_length=24,
        prediction_length=3,
        max_steps=1,
        learning_rate=1e-9,
        val_rows=20,
        test_rows=20,
        val_windows=4,
        trainer={"precision": precision},
    )
    return forecaster.fit(frame).predict(frame)[["0.1", "0.5", "0.9"]].to_numpy()


# paths of Chronos-T5 are drawn: rounded weights now and then draw others
@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("family", ["bolt", "chronos2"])
def test_forecasts_far_from_zero_are_those_of_full_precision(family: str, precision: str) -> None:
    found, expected = forecast(family, precision), forecast(family, "32-true")
    assert np.abs(found - expected).max() < 0.02 * np.ptp(expected)
