"""Arguments of a Forecaster: refused before any data is read, and cloned and copied as scikit-learn takes them."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from tests.forecaster.toys import SMALL, frame_of
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_length": 48.0}, "context_length must be a whole number, not 48.0"),
        ({"seed": 1 << 70}, "seed must be at most"),
        ({"learning_rate": "fast"}, "learning_rate must be a number above 0, not 'fast'"),
        ({"quantiles": 0.5}, r"quantiles must be a list of numbers, such as \[0.1, 0.5, 0.9\], not 0.5"),
        ({"target": 2.5}, "target must be the name of a column or a list of names, not 2.5"),
        ({"id_column": [None]}, "id_column must be the name of a column or a list of names, not"),
        ({"frequency": 2.5}, "frequency must be a text such as h, D or MS, or for steps a whole number, not 2.5"),
        ({"frequency": "cake"}, "cake. is not a frequency"),
        ({"backbone": "cake"}, "unknown predictor 'cake'; valid: transformer, patchtst, .*, ridge"),
        ({"backbone": 3}, "predictor must be one of transformer, patchtst, .*, or {kind: NAME, argument: value}, not"),
        ({"context_length": 0}, "context_length must be at least 1"),
        ({"quantiles": [0.1, 0.9]}, "must include 0.5"),
        ({"scaling": "robust"}, "scaling must be one of"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        (
            {"val_rows": 3, "test_rows": 3, "data": {"val_from": "2024", "test_from": "2025"}},
            "data is split in one way",
        ),
        ({"accelerator": "cake"}, "accelerator must be one of"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Forecaster(**{**SMALL, **options})


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_an_accelerator_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=f"accelerator {name} is not on this machine; valid are auto, cpu"):
        Forecaster(**{**SMALL, "accelerator": name})


def test_wrong_numbers_of_a_call_are_refused_before_a_frame_is_read(fitted: Forecaster) -> None:
    calls = {
        "horizon": lambda value: fitted.predict("nowhere.csv", horizon=value),
        "windows": lambda value: fitted.cross_validate("nowhere.csv", windows=value),
        "step": lambda value: fitted.cross_validate("nowhere.csv", step=value),
    }
    for name, call in {**calls, "step ": lambda value: fitted.evaluate("nowhere.csv", step=value)}.items():
        for value in (1.0, "3", True):
            with pytest.raises(UserError, match=f"{name.strip()} must be a whole number, not {value!r}"):
                call(value)
        with pytest.raises(UserError, match=f"{name.strip()} must be at least 1, not 0"):
            call(0)
    assert fitted.predict(horizon=np.int64(3)).groupby("unique_id").size().eq(3).all()


def test_levels_are_rounded_to_what_they_mean() -> None:
    forecaster = Forecaster(**{**SMALL, "quantiles": np.arange(0.1, 0.95, 0.1)})
    levels = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert forecaster.arguments["quantiles"] == forecaster.experiment.output.quantiles == levels
    one_less = [1 - 0.9, 0.1 + 0.2, 1.1 - 0.6, 0.7]  # the median, too, is what it means
    assert Forecaster(**{**SMALL, "quantiles": one_less}).arguments["quantiles"] == (0.1, 0.3, 0.5, 0.7)
    with pytest.raises(UserError, match="quantiles must lie between 0 and 1"):
        Forecaster(**{**SMALL, "quantiles": [1e-12, 0.5]})


def test_another_default_dtype_is_refused_before_anything_is_trained() -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with pytest.raises(
            UserError, match=r"default dtype is torch\.float64, but networks are trained and forecast in"
        ):
            Forecaster(**SMALL).fit(frame_of())
    finally:
        torch.set_default_dtype(before)


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
