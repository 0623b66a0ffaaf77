"""The ridge against normal equations that numpy solves, and what it chooses by validation or blocks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.toy_windows import toy_task
from tsattn.data import FrameDataModule
from tsattn.data import datamodule as module
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors import ridge as ridge_choice
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
    facts = ridge.fit(data, told)  # type: ignore[arg-type]
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
        for alpha in [min(ALPHAS, key=lambda alpha, L=L: errors[L, alpha])]  # type: ignore[misc]
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


def test_one_decomposition_solves_for_every_penalty() -> None:
    x, y = torch.randn(50, 12, dtype=torch.float64), torch.randn(50, 5, dtype=torch.float64)
    x[:, 3] = x[:, 2]  # singular
    alphas = [1e-3, 1.0, 1e4]
    maps = ridge_choice.ridge_maps(x.T @ x, x.T @ y, alphas)
    for alpha, found in zip(alphas, maps, strict=True):
        expected = torch.linalg.solve(x.T @ x + alpha * torch.eye(12, dtype=torch.float64), x.T @ y)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_what_was_chosen_is_in_the_state(data: FrameDataModule) -> None:
    ridge = built(data, alpha=[1e9, 0.3], context_length=[31, 9])
    facts = ridge.fit(data)
    again = built(data, alpha=[1e9, 0.3], context_length=[31, 9])
    again.load_state_dict(ridge.state_dict())
    assert again.fitted_length == facts["chosen"]["context_length"]
    assert float(again.get_buffer("chosen_alpha")) == facts["chosen"]["alpha"]
    batch = next(iter(data.eval_dataloader("val", 31)))
    assert torch.equal(again(batch), ridge(batch))


def test_a_penalty_alone_can_be_chosen_for_the_context_of_the_task(data: FrameDataModule) -> None:
    ridge = built(data, alpha=[1e9, 0.3])
    assert ridge.fit(data)["chosen"] == {"context_length": 24, "alpha": 0.3}
    assert built(data).state_dict().keys() == {"weight"}, "what has no choice keeps none"


def test_a_choice_of_an_earlier_fit_is_taken(data: FrameDataModule) -> None:
    """As a fit to all rows takes it, which has no validation windows."""
    ridge = built(data, alpha=ALPHAS, context_length=CONTEXTS)
    chosen = {"context_length": 9, "alpha": 3000.0}
    told = Told("member_0_seed_0", {"member_0_seed_0": chosen})
    assert ridge.fit(data, told) == {"every": 1, "member": "member_0_seed_0"}  # type: ignore[arg-type]
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
