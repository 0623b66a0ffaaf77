"""Naive forecasts, and the ridge against normal equations that numpy solves, with what it chooses."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.predictors.cases import windows_for
from tests.toy_windows import toy_task
from tsattn.data import FrameDataModule
from tsattn.data import datamodule as module
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors import ridge as ridge_choice
from tsattn.predictors.ridge import Ridge


@pytest.mark.parametrize(
    ("description", "season"),
    [("persistence", 1), ("seasonal_naive", 6), ({"kind": "seasonal_naive", "season_length": 31}, 31)],
)
def test_the_last_steps_come_again_and_again(description: object, season: int) -> None:
    predictor = build_predictor(description)
    assert not predictor.needs_fit
    predictor.build(toy_task(24, 13))
    assert predictor.context_length == season
    windows = windows_for(predictor, extra=2)
    forecast = predictor(windows)
    L = windows.past.shape[1]
    for step in range(13):
        source = L + step
        while source >= L:
            source -= season
        assert forecast[:, step].equal(windows.past[:, source])


@pytest.mark.parametrize(("own", "L"), [(None, 24), (5, 5)])
def test_the_mean_of_what_was_observed(own: int | None, L: int) -> None:
    predictor = build_predictor({"kind": "window_mean", "context_length": own})
    assert not predictor.needs_fit
    predictor.build(toy_task(24, 13))
    assert predictor.context_length == L
    windows = windows_for(predictor, gaps=True, extra=3)
    forecast = predictor(windows)
    assert forecast.shape == (4, 13, 3)
    for window, channel in np.ndindex(4, 3):
        values, seen = windows.past[window, -L:, channel], windows.past_observed[window, -L:, channel]
        mean = values[seen].mean() if seen.any() else values.mean()
        assert forecast[window, :, channel].tolist() == pytest.approx([float(mean)] * 13)
    with pytest.raises(UserError, match="season_length must be at least 1, not 0"):
        build_predictor({"kind": "seasonal_naive", "season_length": 0})


# The predictors on the command line, as their page shows them.


@pytest.fixture
def data(toy_frame: pd.DataFrame) -> FrameDataModule:
    """The toy frame with a few values missing, set up."""
    missing = np.random.default_rng(1).random(toy_frame.shape) < 0.002
    data = FrameDataModule(toy_frame.mask(missing), context_length=24, prediction_length=8, eval_batch_size=50)
    data.setup("fit")
    return data


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


@pytest.mark.parametrize(("own", "L", "empty"), [(None, 24, False), (31, 31, True), (5, 5, False)])
def test_it_solves_the_normal_equations_of_its_own_context(
    data: FrameDataModule, own: int | None, L: int, empty: bool
) -> None:
    ridge = Ridge(alpha=3.0, context_length=own)
    ridge.build(data.task, empty=empty)
    assert ridge.fit(data) == {"every": 1}
    assert ridge.context_length == L
    assert ridge.weight.dtype == torch.float64
    np.testing.assert_allclose(ridge.weight, oracle(data, L, 3.0), rtol=1e-7, atol=1e-9)


def test_it_is_in_float64_whatever_is_cast_around_it(data: FrameDataModule) -> None:
    ridge = build_predictor("ridge")
    ridge.build(data.task)
    batch = next(iter(data.val_dataloader()))
    assert ridge(batch).isnan().all(), "before it is fitted"
    ridge.fit(data)
    for cast in (ridge.half, ridge.bfloat16, ridge.float):
        assert cast().weight.dtype == torch.float64
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


# A ridge of several contexts and penalties: what is chosen is the best of those that are fitted alone.


ALPHAS, CONTEXTS = [0.3, 30.0, 3000.0], [24, 9, 31]


@dataclass
class Told:
    """What a ridge looks at of a training."""

    member: str = ""
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)


def built(data: FrameDataModule, **arguments: Any) -> Ridge:
    predictor = build_predictor({"kind": "ridge", **arguments})
    assert isinstance(predictor, Ridge)
    predictor.build(data.task)
    return predictor


def validation_error(data: FrameDataModule, ridge: Ridge) -> float:
    squared = count = 0.0
    for batch in data.eval_dataloader("val", ridge.context_length):
        known = torch.ones_like(batch.target) if batch.target_observed is None else batch.target_observed
        squared += float(((ridge(batch) - batch.target.double()).square() * known).sum())
        count += float(known.sum())
    return squared / count


def test_what_validation_chooses_is_the_best_of_those_fitted_alone(data: FrameDataModule) -> None:
    told = Told()
    ridge = built(data, alpha=ALPHAS, context_length=CONTEXTS)
    facts = ridge.fit(data, told)
    errors, alone = {}, {}
    for L, alpha in itertools.product(CONTEXTS, ALPHAS):
        one = alone[L, alpha] = built(data, alpha=alpha, context_length=L)
        assert one.fit(data) == {"every": 1}
        errors[L, alpha] = validation_error(data, one)
    found = {(one["context_length"], one["alpha"]): one["mse_scaled"] for one in facts["candidates"]}
    assert found == pytest.approx(errors, rel=1e-9)
    L, alpha = min(errors, key=errors.__getitem__)
    assert facts["chosen"] == {"context_length": L, "alpha": alpha}
    assert facts["every"] == 1
    best = alone[L, alpha]
    assert torch.equal(ridge.weight[31 - L :], best.weight), "to the bit"
    assert not ridge.weight[: 31 - L].any()
    assert (ridge.fitted_length, ridge.context_length, ridge.num_parameters) == (L, 31, L * 8)
    assert validation_error(data, ridge) == pytest.approx(errors[L, alpha], rel=1e-12)
    assert told.lines == [
        f"ridge (context {L}): validation MSE {errors[L, alpha]:.4g}, with alpha {alpha:g}"
        for L in CONTEXTS
        for alpha in [min(ALPHAS, key=lambda alpha, L=L: errors[L, alpha])]
    ]


def test_errors_of_blocks_are_those_of_maps_that_never_saw_them(
    data: FrameDataModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINEAR_WINDOWS", 150)  # each third window
    ridge = built(data, alpha=ALPHAS, context_length=[24, 31], select="leave_block_out")
    facts = ridge.fit(data)
    numbers = np.arange(0, len(data.windows("train", 31)), 3)
    block = np.arange(len(numbers)) * 10 // len(numbers)
    windows = data.windows("train", 31)
    for one in facts["candidates"]:
        L, alpha = one["context_length"], one["alpha"]
        squared = count = 0.0
        for place in range(10):
            rows = {}
            for inside, chosen in ((True, block == place), (False, abs(block - place) > 1)):
                batch = windows.__getitems__(numbers[chosen])
                x, y = ridge_choice.regression_rows(ridge_choice.last_context(batch, L))
                rows[inside] = x.numpy(), y.numpy()
            x, y = rows[False]
            weight = np.linalg.solve(x.T @ x + alpha * np.eye(L), x.T @ y)
            x, y = rows[True]
            squared += ((y - x @ weight) ** 2).sum()
            count += y.size
        assert one["mse_scaled"] == pytest.approx(squared / count, rel=1e-8)
    best = min(facts["candidates"], key=lambda one: one["mse_scaled"])
    assert facts["chosen"] == {name: best[name] for name in ("context_length", "alpha")}
    expected = oracle(data, best["context_length"], best["alpha"], every=facts["every"])
    np.testing.assert_allclose(ridge.weight[31 - best["context_length"] :], expected, rtol=1e-7, atol=1e-9)


def test_a_choice_of_an_earlier_fit_is_taken(data: FrameDataModule) -> None:
    """As a fit to all rows takes it, which has no validation windows."""
    ridge = built(data, alpha=ALPHAS, context_length=CONTEXTS)
    chosen = {"context_length": 9, "alpha": 3000.0}
    told = Told("member_0_seed_0", {"member_0_seed_0": chosen})
    assert ridge.fit(data, told) == {"every": 1, "member": "member_0_seed_0"}
    assert not told.lines
    alone = built(data, alpha=3000.0, context_length=9)
    alone.fit(data)
    assert torch.equal(ridge.weight[-9:], alone.weight)


def test_without_validation_windows_there_is_nothing_to_choose_by(toy_frame: pd.DataFrame) -> None:
    data = FrameDataModule(toy_frame, context_length=24, prediction_length=8)
    data.setup("fit")
    whole = data.with_all_rows()
    with pytest.raises(UserError, match="chosen by validation windows, and the data has none; give one of each"):
        built(data, alpha=ALPHAS).fit(whole)
    assert "chosen" in built(data, alpha=ALPHAS, select="leave_block_out").fit(whole)


def test_blocks_need_windows(toy_frame: pd.DataFrame) -> None:
    data = FrameDataModule(toy_frame, context_length=24, prediction_length=8)
    data.setup("fit")
    rows = len(data.windows("train", 24)) + 24
    ridge = built(data, alpha=ALPHAS, context_length=[24, rows - 5], select="leave_block_out")
    with pytest.raises(UserError, match="leave_block_out needs 10 training windows or more, and there are 5"):
        ridge.fit(data)
