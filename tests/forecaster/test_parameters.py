"""A Forecaster as scikit-learn takes it: parameters, clones and copies."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_parameters_are_those_that_were_given(fitted: Forecaster) -> None:
    levels = np.array([0.1, 0.5, 0.9])
    forecaster = Forecaster("patchtst", quantiles=levels, learning_rate=np.float32(0.01))
    assert forecaster.get_params()["quantiles"] is levels
    assert [*forecaster.get_params()] == [*inspect.signature(Forecaster).parameters]
    assert fitted.get_params(deep=False) == fitted.get_params()


def test_a_clone_is_equal_and_not_fitted(fitted: Forecaster) -> None:
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    assert other.fitted is None
    assert fitted.fitted is not None
    frame = frame_of({"a": 200})
    one = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    pd.testing.assert_frame_equal(clone(one).fit(frame).predict(), one.predict())


def test_other_parameters_make_it_one_that_is_not_fitted() -> None:
    forecaster = Forecaster("seasonal_naive", prediction_length=12)
    assert forecaster.set_params(prediction_length=24) is forecaster
    assert forecaster.arguments["prediction_length"] == 24
    for wrong, message in (
        (
            {"prediction_lenght": 3},
            "a Forecaster has no argument 'prediction_lenght' .did you mean prediction_length..; valid are backbone, ",
        ),
        ({"prediction_length": 0}, "prediction_length must be at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            forecaster.set_params(**wrong)
        assert forecaster.get_params()["prediction_length"] == 24


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_forecasts_the_same(copied: Any, fitted: Forecaster) -> None:
    other = copied(fitted)
    pd.testing.assert_frame_equal(other.predict(), fitted.predict())
    assert repr(other) == repr(fitted)
    other.fit(frame_of({"a": 200}))
    assert "fitted on 4 series" in repr(fitted)
