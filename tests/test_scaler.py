"""Forecasts come back in the units of their own series."""

import json
from dataclasses import replace

import pytest
import torch

from tsattn.errors import UserError
from tsattn.scaler import Scaler, TargetTransform

SERIES = Scaler(
    mean=(0.0, 0.0),
    scale=(1.0, 1.0),
    scaling="series",
    ids=("small", "large"),
    series_mean=((1.0, 2.0), (100.0, 200.0)),
    series_scale=((0.1, 0.2), (10.0, 20.0)),
)


def test_a_scaler_travels_as_plain_data() -> None:
    assert Scaler.from_dict(json.loads(json.dumps(SERIES.to_dict()))) == SERIES
    with pytest.raises(TypeError, match="Scaler has no 'spread'"):
        Scaler.from_dict({**SERIES.to_dict(), "spread": 1.0})


def test_one_scale_serves_all_series() -> None:
    units = Scaler((1.0, 2.0), (3.0, 4.0)).units()
    assert units.restore(torch.ones(5, 2, 2), torch.arange(5)).unique(dim=0).tolist() == [[[4.0, 6.0]] * 2]


def test_each_series_has_its_own_scale_and_none_is_guessed_where_it_is_not_named() -> None:
    with pytest.raises(UserError, match="each of the 2 series has a scale of its own: give series_id"):
        SERIES.units().restore(torch.ones(2, 3, 2))
    restored = SERIES.units().restore(torch.ones(2, 3, 2), torch.tensor([1, 0]))
    assert restored[0, 0].tolist() == [110.0, 220.0]
    assert restored[1, 0].tolist() == pytest.approx([1.1, 2.2])


def test_what_is_no_scaler_is_refused() -> None:
    for arguments, message in (
        (((1.0,), (1.0,), "own"), "scaling must be global or series, not own"),
        (((1.0,), (1.0, 2.0)), "a scaler needs a mean and a scale for each channel, series and covariate"),
        (((1.0,), (0.0,)), "the scales of a scaler must be above 0"),
    ):
        with pytest.raises(UserError, match=message):
            Scaler(*arguments)  # type: ignore[arg-type]
    one, two = (TargetTransform("log", (0.0,) * count, (1.0,) * count, (1.0,) * count) for count in (1, 2))
    for scaler, transform in ((Scaler((1.0,), (1.0,)), two), (SERIES, two)):
        with pytest.raises(UserError, match="a transform must be of the channels and series of its scaler"):
            replace(scaler, transform=transform)
    assert replace(Scaler((1.0,), (1.0,)), transform=one).transform == one
