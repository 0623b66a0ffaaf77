"""Series far from 0: single precision has no digits for their changes there, and models that need no level get none."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.chronos.tiny_models import series, weights_of
from tests.toy_windows import toy_task
from tsattn import Forecaster
from tsattn.batch import Batch, WindowUnits
from tsattn.predictors import Predictor, build_predictor
from tsattn.task import Output

LEVELS = (0.1, 0.5, 0.9)
LEVEL = 1e8

without_level = pytest.mark.parametrize("family", ["bolt", "chronos2"])


def batch_at(level: float) -> Batch:
    """Windows whose values in original units have that level and a spread of about 1."""
    past = torch.stack(series(64, 64))[..., None]
    units = WindowUnits(torch.full((2, 1), level), torch.ones(2, 1))
    return Batch(past, torch.stack(series(4, 4))[..., None], units=units)


def built(weights: str, **arguments: Any) -> Predictor:
    predictor = build_predictor({"kind": "chronos", "weights": weights, **arguments})
    predictor.build(toy_task(64, 4, 1), Output(LEVELS))
    return predictor.eval()


@without_level
@pytest.mark.parametrize("attention", [None, "standard"])
def test_forecasts_do_not_lose_digits_at_a_high_level(family: str, attention: str | None) -> None:
    predictor = built(weights_of(family), attention=attention)
    torch.testing.assert_close(predictor(batch_at(LEVEL)), predictor(batch_at(0.0)), rtol=1e-5, atol=1e-5)


@without_level
def test_a_context_of_one_number_is_forecast_in_original_units(family: str) -> None:
    """The models divide by 1e-5 there, which the scale of the batch must not change."""
    predictor = built(weights_of(family))
    flat = Batch(torch.full((1, 64, 1), 0.3, dtype=torch.float64))
    one, other = (
        replace(flat, units=WindowUnits(torch.full((1, 1), mean), torch.full((1, 1), scale)))
        for mean, scale in ((0.0, 1.0), (LEVEL, 1e3))
    )
    spread = predictor(one) - 0.3
    assert spread.abs().max() > 1e-6
    torch.testing.assert_close((predictor(other) - 0.3) * 1e3, spread, rtol=1e-5, atol=1e-9)


def test_t5_keeps_the_level_and_says_what_it_cannot_see() -> None:
    predictor = built(weights_of("t5"))
    predictor(batch_at(0.0))
    with pytest.warns(UserWarning, match="tells steps of 17 % of the level of a series apart, and some series change"):
        predictor(batch_at(LEVEL))
    predictor(Batch(torch.full((1, 64, 1), 5.0)))


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
        data={"val_windows": 4},
        training={"trainer": {"precision": precision}},
    )
    return forecaster.fit(frame).predict(frame)[["0.1", "0.5", "0.9"]].to_numpy()


# paths of Chronos-T5 are drawn: rounded weights now and then draw others
@pytest.mark.parametrize(("family", "precision"), [("bolt", "bf16-mixed"), ("chronos2", "bf16-true")])
def test_forecasts_far_from_zero_are_those_of_full_precision(family: str, precision: str) -> None:
    found, expected = forecast(family, precision), forecast(family, "32-true")
    assert np.abs(found - expected).max() < 0.02 * np.ptp(expected)
