"""The ridge against normal equations that numpy solves for the rows of the series."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.toy_windows import toy_task
from tsattn.data import FrameDataModule
from tsattn.data import datamodule as module
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors.ridge import Ridge
from tsattn.task import Output, Task


def oracle(data: FrameDataModule, L: int, alpha: float, every: int = 1) -> np.ndarray:
    """The map `(L, T)` of all training windows, cut from the scaled series row by row."""
    values = data.series.values.double().numpy()
    seen = np.ones(values.shape, bool) if data.series.observed is None else data.series.observed.numpy()
    T, end = data.prediction_length, data.splits[0].train_end
    gram, moment = np.zeros((L, L)), np.zeros((L, T))
    for origin in range(L, end - T + 1, every):
        for c in range(values.shape[1]):
            past, known = values[origin - L : origin, c], seen[origin - L : origin, c]
            if not seen[origin : origin + T, c].all():
                continue
            level = past[known].mean()
            x = past - level
            x[: int(np.argmax(known))] = 0
            y = values[origin : origin + T, c] - level
            gram += np.outer(x, x)
            moment += np.outer(x, y)
    return np.linalg.inv(gram + alpha * np.eye(L)) @ moment


@pytest.mark.parametrize(("own", "L"), [(None, 24), (31, 31), (24, 24), (5, 5)])
@pytest.mark.parametrize("empty", [False, True])
def test_it_solves_the_normal_equations_of_its_own_context(
    data: FrameDataModule, own: int | None, L: int, empty: bool
) -> None:
    ridge = Ridge(alpha=3.0, context_length=own)
    ridge.build(data.task, empty=empty)
    assert ridge.fit(data) == {"every": 1}
    assert ridge.context_length == L
    assert ridge.weight.dtype == torch.float64
    np.testing.assert_allclose(ridge.weight, oracle(data, L, 3.0), rtol=1e-7, atol=1e-9)


def test_of_very_many_windows_it_takes_some(data: FrameDataModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINEAR_WINDOWS", 150)
    ridge = Ridge()
    ridge.build(data.task)
    assert ridge.fit(data) == {"every": 3}
    np.testing.assert_allclose(ridge.weight, oracle(data, 24, 1000.0, every=3), rtol=1e-7, atol=1e-9)


def test_before_it_is_fitted_it_forecasts_no_numbers(data: FrameDataModule) -> None:
    ridge = build_predictor("ridge")
    ridge.build(data.task)
    assert ridge(next(iter(data.val_dataloader()))).isnan().all()


def test_it_forecasts_in_float64_from_windows_of_any_precision(data: FrameDataModule) -> None:
    ridge = Ridge()
    ridge.build(data.task)
    ridge.fit(data)
    batch = next(iter(data.val_dataloader()))
    assert batch.past.dtype == torch.float32
    assert ridge(batch).dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0}, "alpha must be a number above 0, not 0"),
        ({"context_length": 0}, "context_length must be at least 1, not 0"),
        ({"alpha": "much"}, "predictor ridge: alpha must be a number or a list of numbers, not 'much'"),
        ({"context_length": 2.5}, "context_length must be a whole number or a list of whole numbers or null, not 2.5"),
        ({"alpha": []}, r"alpha must be a number or a list of numbers to choose from, not \[\]"),
        ({"context_length": [24, 24]}, "context_length lists 24 twice"),
        ({"alpha": [1, 2], "select": "test"}, "select must be one of validation, leave_block_out, not 'test'"),
        ({"select": "leave_block_out"}, "select: leave_block_out needs a list to choose from: several of alpha or of"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_predictor({"kind": "ridge", **arguments})


def test_a_context_that_the_data_lack_is_refused(data: FrameDataModule) -> None:
    ridge = Ridge(context_length=500)
    ridge.build(toy_task(24, 8, 2))
    with pytest.raises(UserError, match="context_length 500 and prediction_length 8 need 508 rows"):
        ridge.fit(data)


def test_its_weights_stay_exact_whatever_is_cast_around_it() -> None:
    ridge = build_predictor("ridge")
    ridge.build(Task("toy", 6, 2, ("a",), "h", 24), Output())
    for cast in (ridge.half, ridge.bfloat16, ridge.float):
        assert cast().weight.dtype == torch.float64
