"""Ensembles: the mean of their members, how these are fitted, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.predictors.cases import NETWORK, SMALL, build, windows_for
from tests.toy_windows import LEVELS, toy_task
from tsattn.backbones import Backbone
from tsattn.batch import Batch
from tsattn.data import ForecastDataModule, FrameDataModule
from tsattn.errors import UserError
from tsattn.experiments import run
from tsattn.predictors import build_predictor
from tsattn.predictors.ensemble import Ensemble
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, Task


class Blind(Backbone):
    """A backbone that uses no covariates."""

    def __init__(self, task: Task, output: Output) -> None:
        super().__init__()
        self.T = task.prediction_length
        self.level = torch.nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> torch.Tensor:
        return batch.past[:, -1:].expand(-1, self.T, -1) + self.level


@dataclass(frozen=True)
class Recorded:
    """A training that writes down what is asked of it."""

    seed: int = 7
    member: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def of_member(self, name: str, seed_offset: int = 0, **options: Any) -> Recorded:
        return replace(self, seed=self.seed + seed_offset, member=name, options=options)

    def fitted(self, member: str, predictor: object) -> None:
        return None

    def say(self, line: str) -> None:
        assert line.startswith(f"{self.member}: ")


def test_the_forecast_is_the_weighted_mean_of_members_and_seeds() -> None:
    ensemble = build("ensemble", toy_task())
    assert isinstance(ensemble, Ensemble)
    windows = windows_for(ensemble)
    ridge, networks, naive = ensemble.members
    assert [len(part) for part in (ridge, networks, naive)] == [1, 2, 1]
    forecasts = [[copy(windows).detach().numpy() for copy in part] for part in (ridge, networks, naive)]
    assert not np.allclose(*forecasts[1])
    expected = (1 * forecasts[0][0] + 2 * (forecasts[1][0] + forecasts[1][1]) / 2 + 0.5 * forecasts[2][0]) / 3.5
    np.testing.assert_allclose(ensemble(windows).detach(), expected, rtol=1e-12, atol=1e-12)


def test_members_weigh_alike_by_default() -> None:
    members = ["seasonal_naive", "persistence", {"kind": "seasonal_naive", "season_length": 4}]
    ensemble = build_predictor({"kind": "ensemble", "members": members})
    ensemble.build(toy_task())
    windows = windows_for(ensemble)
    alone = []
    for member in members:
        predictor = build_predictor(member)  # type: ignore[arg-type]
        predictor.build(toy_task())
        alone.append(predictor(windows).numpy())
    np.testing.assert_allclose(ensemble(windows), np.mean(alone, 0), rtol=1e-12)
    assert not ensemble.needs_fit
    assert not ensemble.is_trained
    assert ensemble.context_length == 6


def test_quantiles_are_averaged_level_by_level() -> None:
    ensemble = build("ensemble-networks", toy_task(), Output(LEVELS))
    windows = windows_for(ensemble)
    parts = [copy(windows).detach() for copies in ensemble.members for copy in copies]  # type: ignore[union-attr]
    torch.testing.assert_close(ensemble(windows).detach(), (parts[0] + parts[1]) / 2, rtol=1e-12, atol=1e-12)


def test_a_closed_form_in_an_ensemble_is_fitted_as_alone(data: FrameDataModule) -> None:
    ensemble = build_predictor({"kind": "ensemble", "members": ["ridge", {"kind": "ridge", "context_length": 40}]})
    ensemble.build(data.task, empty=True)
    assert ensemble.fit(data, Recorded()) == {"members": [[{"every": 1}], [{"every": 1}]]}  # type: ignore[arg-type]
    for number, context in enumerate((None, 40)):
        alone = build_predictor({"kind": "ridge", "context_length": context})
        alone.build(data.task)
        alone.fit(data, Recorded())  # type: ignore[arg-type]
        assert torch.equal(ensemble.state_dict()[f"members.{number}.0.weight"], alone.state_dict()["weight"])
    assert ensemble.context_length == 40


def test_each_member_is_trained_on_its_own_loss_context_and_seeds(
    data: FrameDataModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[tuple[Any, ...]] = []

    def fit(self: NetworkPredictor, given: ForecastDataModule, training: Any) -> dict[str, Any]:
        assert self.task == given.task, "built for the data that it is given"
        fits.append((self.name, training.member, training.seed, given.context_length, training.options))
        return {"best_step": len(fits)}

    def check_fit(self: NetworkPredictor, given: ForecastDataModule, training: Any) -> None:
        assert not fits, "a member was trained before all were checked"
        checked.append(training.member)

    checked: list[str] = []
    monkeypatch.setattr(NetworkPredictor, "fit", fit)
    monkeypatch.setattr(NetworkPredictor, "check_fit", check_fit)
    other = {"kind": "transformer", **SMALL, "loss": "mae", "context_length": 40, "learning_rate": 1e-4, "max_steps": 9}
    ensemble = build_predictor({"kind": "ensemble", "members": [NETWORK, "ridge", other], "seeds": 2})
    ensemble.build(data.task)
    assert ensemble.is_trained
    facts = ensemble.fit(data, Recorded())  # type: ignore[arg-type]
    options = {"loss": "mae", "learning_rate": 1e-4, "max_steps": 9}
    assert fits == [
        ("patchtst_standard", "member_0_seed_0", 7, 24, {}),
        ("patchtst_standard", "member_0_seed_1", 8, 24, {}),
        ("transformer_standard", "member_2_seed_0", 7, 40, options),
        ("transformer_standard", "member_2_seed_1", 8, 40, options),
    ]
    steps = [{"best_step": number} for number in (1, 2, 3, 4)]
    assert facts == {"members": [steps[:2], [{"every": 1}], steps[2:]]}
    assert checked == ["member_0_seed_0", "member_2_seed_0"]
    assert data.context_length == 24


def test_with_covariates_each_member_does_what_it_does_alone() -> None:
    task = toy_task(covariates=True)
    build_predictor({"kind": "ensemble", "members": ["ridge", "persistence"]}).build(task)
    ensemble = build_predictor({"kind": "ensemble", "members": ["ridge", NETWORK]})
    assert ensemble.uses_covariates
    ensemble.build(task)
    blind = build_predictor({"kind": "ensemble", "members": [f"{__name__}.Blind", NETWORK]})
    with pytest.raises(UserError, match=r"Blind uses no covariates, and the data has rain, .* those that do: transf"):
        blind.build(task)


def test_a_member_that_forecasts_points_is_named_where_quantiles_are_asked_for() -> None:
    ensemble = build_predictor({"kind": "ensemble", "members": [NETWORK, "ridge"]})
    with pytest.raises(UserError, match=r"^member ridge of the ensemble forecasts points only: it takes no quantiles$"):
        ensemble.build(toy_task(), Output(LEVELS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "an ensemble needs members, a list of descriptions: transformer, patchtst, .*, ridge, seasonal_naive"),
        ({"members": "ridge"}, "predictor ensemble: members must be a list, not 'ridge'"),
        ({"members": ["lstm"]}, "unknown member of the ensemble 'lstm'; valid: transformer, patchtst, .*, ridge"),
        ({"members": [{"kind": "ensemble", "members": ["ridge"]}]}, "an ensemble is no member of another"),
        (
            {"members": [{**NETWORK, "lr": 1e-3}]},
            "member patchtst of the ensemble has no argument 'lr'; valid: patch_len, .*, context_length, loss",
        ),
        (
            {"members": [{"kind": "ridge", "loss": "mae"}]},
            "member ridge .* no argument 'loss'; valid: alpha, context_len",
        ),
        (
            {"members": [{"kind": "persistence", "context_length": 3}]},
            "member persistence of the ensemble has no argument 'context_length'; valid: none",
        ),
        (
            {"members": [{**NETWORK, "context_length": 0}]},
            "context_length must be at least 1, not 0",
        ),
        ({"members": ["ridge"], "weights": [0.5, 0.5]}, "weights must be as many as the members, 1, not 2"),
        (
            {"members": ["ridge", "ridge"], "weights": [1, -0.5]},
            "weights must be numbers of at least 0, .*, not 1, -0.5",
        ),
        (
            {"members": ["ridge", "ridge"], "weights": [0, 0]},
            "weights must be numbers of at least 0, not all 0, not 0, 0",
        ),
        ({"members": ["ridge"], "seeds": 0}, "seeds must be at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build_predictor({"kind": "ensemble", **arguments})
    assert len(str(caught.value).splitlines()) == 1


def test_a_trained_member_is_what_it_would_be_alone(toy_csv: Path) -> None:
    def state(backbone: dict[str, Any], seed: int, context: int = 24, **model: Any) -> dict[str, torch.Tensor]:
        experiment = {
            "data": {
                "class_path": "CSVDataModule",
                "init_args": {"path": str(toy_csv), "context_length": context, "prediction_length": 8},
            },
            "model": {"backbone": backbone, **model},
            "trainer": {"max_steps": 3, "accelerator": "cpu"},
            "seed_everything": seed,
        }
        return run(experiment, test=False).fitted.predictor.state_dict()

    options = {"loss": "mae", "learning_rate": 1e-2}
    member = {**NETWORK, "context_length": 30, **options}
    whole = state({"kind": "ensemble", "members": ["ridge", member], "seeds": 2}, seed=3)
    for number in (0, 1):
        alone = state(NETWORK, 3 + number, 30, **options)
        assert {f"members.1.{number}.{name}" for name in alone} <= set(whole)
        assert all(torch.equal(whole[f"members.1.{number}.{name}"], part) for name, part in alone.items())
    ridge = state({"kind": "ridge"}, seed=0)
    assert torch.equal(whole["members.0.0.weight"], ridge["weight"])
