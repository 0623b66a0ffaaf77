"""Forecasts come back in the units of their own series; transformed targets exactly, quantile by quantile."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from tsattn.data.data_options import check_transform
from tsattn.errors import UserError
from tsattn.scaler import Scaler, SeriesTransform, TargetTransform, Units, restored, transformed

FITTED = TargetTransform(
    "box_cox", (0.5,), (7.0,), (2.0,), ((0.0,), (1.3,)), series_mean=((5.0,), (9.0,)), series_scale=((1.0,), (3.0,))
)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.2, 1.0, 2.0])
def test_box_cox_is_that_of_scipy_there_and_back(rate: float) -> None:
    values = np.random.default_rng(0).lognormal(2.0, 3.0, (5, 7, 3))
    there = transformed("box_cox", values, np.full(3, rate))
    np.testing.assert_allclose(there, special.boxcox(values, rate))
    back = restored("box_cox", torch.from_numpy(there), torch.full((3,), rate, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(back, special.inv_boxcox(there, rate), rtol=1e-9)
    np.testing.assert_allclose(back, values, rtol=1e-6)


def test_the_logarithms_are_those_of_numpy() -> None:
    values, zero = np.array([0.0, 1e-12, 3.0, 1e9]), torch.zeros((), dtype=torch.float64)
    for kind, there, back in (("log", np.log, np.exp), ("log1p", np.log1p, np.expm1)):
        given = values[1:] if kind == "log" else values
        made = transformed(kind, given, np.zeros(()))
        np.testing.assert_allclose(made, there(given), rtol=1e-14)
        np.testing.assert_allclose(restored(kind, torch.from_numpy(made), zero), back(made), rtol=1e-14)


@pytest.mark.parametrize(("kind", "rate"), [("log", 0.0), ("log1p", 0.0), ("box_cox", 0.4), ("box_cox", 2.0)])
def test_the_way_back_rises_and_is_never_below_zero(kind: str, rate: float) -> None:
    values = torch.linspace(-50, 50, 1001, dtype=torch.float64)
    back = restored(kind, values, torch.tensor(rate, dtype=torch.float64))
    assert bool((back.diff() >= 0).all())
    assert back.min() >= 0
    assert back[-1] > 5


def test_each_series_comes_back_by_its_own_lambda_and_scores_by_its_own_values() -> None:
    scaler = Scaler((0.0,), (1.0,), "series", ("a", "b"), ((1.0,), (2.0,)), ((0.5,), (0.25,)), transform=FITTED)
    assert Scaler.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler
    units, scaled = scaler.units(), torch.randn(3, 4, 1, 5)
    series = torch.tensor([1, 0, 1])
    back = units.restore(scaled, series)
    for window, (rate, mean, scale) in enumerate([(1.3, 2.0, 0.25), (0.0, 1.0, 0.5), (1.3, 2.0, 0.25)]):
        expected = special.inv_boxcox(scaled[window].double().numpy() * scale + mean, rate)
        np.testing.assert_allclose(back[window], expected)
    torch.testing.assert_close(units.scaled(back, series), scaled.double())
    mean, scale = units.of(series)
    assert (mean.flatten().tolist(), scale.flatten().tolist()) == ([9.0, 5.0, 9.0], [3.0, 1.0, 3.0])
    torch.testing.assert_close(units.standardised(scaled, series), (back - mean[..., None]) / scale[..., None])
    ordered = scaled.sort(-1).values  # quantiles stay quantiles
    assert bool((units.restore(ordered, series).diff(dim=-1) >= 0).all())
    with pytest.raises(UserError, match="the 2 series have different scales: give series_id"):
        units.restore(scaled)
    with pytest.raises(TypeError, match="Scaler has no 'spread'"):
        Scaler.from_dict({**scaler.to_dict(), "spread": 1.0})


def test_without_a_transform_nothing_is_computed() -> None:
    scaled = torch.randn(2, 3, 1)
    assert Units([[1.0]], [[2.0]]).standardised(scaled) is scaled
    torch.testing.assert_close(Units([[1.0]], [[2.0]]).scaled(scaled), (scaled.double() - 1) / 2)
    for kind, inverse in (("log", torch.exp), ("log1p", torch.expm1)):
        one = SeriesTransform(kind, np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)))
        units, positive = Units([[1.0]], [[2.0]], one), scaled.abs()
        torch.testing.assert_close(units.restore(positive), inverse(positive.double() * 2 + 1))
        torch.testing.assert_close(units.scaled(units.restore(positive)), positive.double())


REFUSED: list[tuple[Any, str]] = [
    ("sqrt", "unknown transform sqrt; valid: log, log1p, box_cox"),
    (3, "transform must be one of log, log1p, box_cox"),
    ({"kind": "log", "lambda": 0.5}, "transform log has no argument 'lambda'; valid: none"),
    ({"kind": "box_cox", "lambda": -0.5}, "must be a number from 0 to 2, not -0.5"),
    ({"kind": "box_cox", "lambda": True}, "must be a number from 0 to 2, not True"),
    ({"kind": "box_cox", "power": 1}, "has no argument 'power'; valid: lambda"),
]


def test_what_is_no_transform_is_refused() -> None:
    for given, message in REFUSED:
        with pytest.raises(UserError, match=message):
            check_transform(given)


def test_a_description_is_plain_data() -> None:
    assert check_transform(None) is None
    assert check_transform("log") == {"kind": "log"}
    assert check_transform({"kind": "box_cox", "lambda": 1}) == {"kind": "box_cox", "lambda": 1.0}


def test_one_scale_serves_all_series() -> None:
    units = Scaler((1.0, 2.0), (3.0, 4.0)).units()
    assert units.restore(torch.ones(5, 2, 2), torch.arange(5)).unique(dim=0).tolist() == [[[4.0, 6.0]] * 2]


def test_what_is_no_scaler_is_refused() -> None:
    for arguments, message in (
        (((1.0,), (1.0,), "own"), "scaling must be global or series, not own"),
        (((1.0,), (1.0, 2.0)), "a scaler needs a mean and a scale for each channel, series and covariate"),
        (((1.0,), (0.0,)), "the scales of a scaler must be above 0"),
    ):
        with pytest.raises(UserError, match=message):
            Scaler(*arguments)  # type: ignore[arg-type]
    one, two = (TargetTransform("log", (0.0,) * count, (1.0,) * count, (1.0,) * count) for count in (1, 2))
    series = Scaler((0.0,), (1.0,), "series", ("a", "b"), ((1.0,), (2.0,)), ((0.5,), (0.25,)))
    for scaler, transform in ((Scaler((1.0,), (1.0,)), two), (series, one)):
        with pytest.raises(UserError, match="a transform must be of the channels and series of its scaler"):
            replace(scaler, transform=transform)
    assert replace(Scaler((1.0,), (1.0,)), transform=one).transform == one
