"""What is missing is missing for the model; far from 0 no digits are lost."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.chronos.tiny_models import FAMILIES, series, weights_of
from tests.pretrained.small_models import small_weights
from tests.toy_windows import toy_task
from tsattn import Forecaster
from tsattn.batch import Batch, WindowUnits
from tsattn.chronos import open_pipeline
from tsattn.predictors import Predictor, build_predictor
from tsattn.task import Output

LEVELS = (0.1, 0.5, 0.9)


def frame(rows: int, name: str, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng([seed, rows])
    dates = pd.date_range(end="2024-06-01", periods=rows, freq="D")
    y, x = 10 + rng.standard_normal(rows).cumsum(), 50 + rng.standard_normal(rows)
    return pd.DataFrame({"unique_id": name, "ds": dates, "y": y, "x": x})


def forecaster(**columns: Any) -> Forecaster:
    described = {"kind": "chronos", "weights": weights_of("chronos2")}
    return Forecaster(described, prediction_length=4, scaling="series", **columns)


def numbers(forecast: pd.DataFrame) -> Any:
    return forecast[["0.1", "0.5", "0.9"]].to_numpy()


def own(past: pd.DataFrame, future: pd.DataFrame | None = None) -> Any:
    """What the pipeline makes of the numbers themselves."""
    given: dict[str, Any] = {"target": past.y.to_numpy(np.float32)}
    given["past_covariates"] = {"x": past.x.to_numpy(np.float32)}
    if future is not None:
        given["future_covariates"] = {"x": future.x.to_numpy(np.float32)}
    pipeline = open_pipeline(weights_of("chronos2"), dtype="float32")
    found, _ = pipeline.predict_quantiles([given], prediction_length=4, quantile_levels=[*LEVELS])
    return found[0][0].numpy()


@pytest.mark.parametrize("sort", ["past_covariates", "future_covariates"])
def test_a_forecast_with_covariates_is_the_same_beside_longer_series(sort: str) -> None:
    short, long = frame(16, "a"), frame(64, "b")
    columns: dict[str, Any] = {sort: ["x"]}
    cut = {"past_covariates": 0, "future_covariates": 4}[sort]
    both, alone = pd.concat([short, long]), short
    if cut:
        both, alone = both.copy(), short.copy()
        for part in (both, alone):
            part["y"] = part.y.where(part.ds <= "2024-05-28")
    found = forecaster(**columns).predict(both)
    expected = own(short) if not cut else own(short[:-4], short[-4:])
    np.testing.assert_allclose(numbers(forecaster(**columns).predict(alone)), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(numbers(found[found.unique_id == "a"]), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("gap", [slice(4, 8), slice(0, 8), slice(30, 36)])
def test_missing_covariates_are_missing_for_the_model(gap: slice) -> None:
    past = frame(40, "a")
    past.loc[past.index[gap], "x"] = np.nan
    found = numbers(forecaster(past_covariates=["x"]).predict(past))
    np.testing.assert_allclose(found, own(past), rtol=1e-5, atol=1e-4)
    assert np.abs(found - numbers(forecaster(past_covariates=["x"]).predict(past.ffill().bfill()))).max() > 1e-4


@pytest.mark.parametrize(("amplitude", "scaling"), [(1.0, "series"), (100.0, "global")])
def test_a_covariate_that_changes_ahead_alone_is_seen_in_original_units(amplitude: float, scaling: str) -> None:
    """As a promotion that begins now: the model divides by 1e-5, so that its answer depends on the unit."""
    past, future = frame(200, "a"), frame(4, "a")
    past["x"] = 7 + (np.arange(200) < 20).astype(float)
    future["ds"] = pd.date_range(past.ds.iloc[-1], periods=5, freq="D")[1:]
    future["x"] = 7 + amplitude * np.array([0.0, 1.0, 1.0, 0.0])
    described = {"kind": "chronos", "weights": weights_of("chronos2"), "context_length": 48}
    made = Forecaster(described, prediction_length=4, scaling=scaling, future_covariates=["x"])
    found = made.predict(pd.concat([past, future.assign(y=np.nan)]))
    expected = own(past[-48:], future)
    np.testing.assert_allclose(numbers(found), expected, rtol=1e-5, atol=1e-4)
    same = future.assign(x=7.0)
    assert np.abs(expected - own(past[-48:], same)).max() > 1e-2, "and it counts"


def test_training_sees_missing_covariates_too() -> None:
    from tsattn.chronos.chronos_predictor import ChronosNetwork

    task = toy_task(24, 4, 1, covariates=True)
    network = ChronosNetwork(task, Output(LEVELS), weights=weights_of("chronos2"), trained="all").eval()
    past, target = torch.randn(2, 24, 1), torch.randn(2, 4, 1)
    known, ahead = torch.randn(2, 24, 2), torch.randn(2, 28, 2)
    seen, seen_ahead = torch.rand(2, 24, 2) > 0.3, torch.rand(2, 28, 2) > 0.3
    batch = Batch(past, target, past_covariates=known, future_covariates=ahead)
    batch = replace(batch, past_covariates_observed=seen, future_covariates_observed=seen_ahead)
    other = replace(batch, past_covariates=known.where(seen, 9.0), future_covariates=ahead.where(seen_ahead, 9.0))
    assert torch.equal(network.own_loss(batch), network.own_loss(other))
    assert not torch.equal(network.own_loss(batch), network.own_loss(replace(batch, past_covariates_observed=None)))


@pytest.mark.parametrize("family", ["native", *FAMILIES])
def test_a_context_without_a_value_is_forecast_where_its_series_lies(family: str) -> None:
    """And not where numbers without a unit lie, whatever computes it."""
    weights = small_weights() if family == "native" else weights_of(family)
    found = []
    for mean, scale in ((0.0, 1.0), (1e4, 5.0)):
        predictor = build_predictor({"kind": "chronos", "weights": weights})
        predictor.build(toy_task(64, 4, 2), Output(LEVELS))
        observed = torch.ones(3, 64, 2, dtype=torch.bool)
        observed[1] = False
        units = WindowUnits(torch.full((3, 2), mean), torch.full((3, 2), scale))
        torch.manual_seed(0)
        found.append(predictor(Batch(torch.randn(3, 64, 2), past_observed=observed, units=units)))
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_is_not_decided_by_contexts_that_never_change(family: str) -> None:
    """A sensor that stands still and then moves: its scale is that of rounding, and its loss would be astronomic."""
    from tsattn.chronos.chronos_predictor import ChronosNetwork

    torch.manual_seed(0)
    network = ChronosNetwork(toy_task(24, 4, 2), Output(LEVELS), weights=weights_of(family), trained="all").eval()
    past, target = torch.randn(2, 24, 2), torch.randn(2, 4, 2)
    past[0, :, 1] = 0.1 + past[0, 0, 1]
    usual = network.own_loss(Batch(torch.randn(2, 24, 2), target))
    loss = network.own_loss(Batch(past, target))
    assert loss < 10 * usual
    if family == "bolt":
        observed = torch.ones(2, 4, 2, dtype=torch.bool)
        observed[0, :, 1] = False
        assert torch.equal(loss, network.own_loss(Batch(past, target, target_observed=observed)))
    alone = past[:1, :, 1:].expand(2, -1, 2)
    assert network.own_loss(Batch(alone, target)).isfinite()


# Series far from 0: single precision has no digits for their changes there, and models that need no level get none.


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
