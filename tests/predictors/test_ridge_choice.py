"""A ridge of several contexts and penalties: what is chosen is the best of those that are fitted alone."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.predictors.test_ridge import oracle
from tsattn.data import FrameDataModule
from tsattn.data import datamodule as module
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors import ridge as ridge_choice
from tsattn.predictors.ridge import Ridge

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
