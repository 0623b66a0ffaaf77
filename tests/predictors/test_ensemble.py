"""Ensembles, the mean of their members: how they are fitted, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecaster.toys import frame_of
from tests.predictors.cases import NETWORK, build, windows_for
from tests.toy_windows import LEVELS, toy_task
from tsattn import Forecaster, load
from tsattn.backbones import Backbone
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.experiments import run
from tsattn.predictors import build_predictor
from tsattn.predictors.ensemble import Ensemble
from tsattn.task import Output, Task


class Blind(Backbone):
    """A backbone that uses no covariates."""

    def __init__(self, task: Task, output: Output) -> None:
        super().__init__()
        self.T = task.prediction_length
        self.level = torch.nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> torch.Tensor:
        return batch.past[:, -1:].expand(-1, self.T, -1) + self.level


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
    alone = [copy(windows) for copies in ensemble.members for copy in copies]
    torch.testing.assert_close(ensemble(windows), torch.stack(alone).mean(0), rtol=1e-12, atol=1e-12)
    assert (ensemble.needs_fit, ensemble.is_trained, ensemble.context_length) == (False, False, 6)


def test_with_covariates_each_member_does_what_it_does_alone() -> None:
    task = toy_task(covariates=True)
    build_predictor({"kind": "ensemble", "members": ["ridge", "persistence"]}).build(task)
    ensemble = build_predictor({"kind": "ensemble", "members": ["ridge", NETWORK]})
    assert ensemble.uses_covariates
    ensemble.build(task)
    blind = build_predictor({"kind": "ensemble", "members": [f"{__name__}.Blind", NETWORK]})
    with pytest.raises(UserError, match=r"Blind uses no covariates, but the data has rain, .* with them: transf"):
        blind.build(task)

    ensemble = build_predictor({"kind": "ensemble", "members": [NETWORK, "ridge"]})
    with pytest.raises(UserError, match=r"^member ridge of the ensemble forecasts points only: leave quantiles out$"):
        ensemble.build(toy_task(), Output(LEVELS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "an ensemble needs members, a list of descriptions: transformer, patchtst, .*, ridge, seasonal_naive"),
        ({"members": "ridge"}, "predictor ensemble: members must be a list, not 'ridge'"),
        ({"members": ["lstm"]}, "unknown member of the ensemble 'lstm'; valid: transformer, patchtst, .*, ridge"),
        ({"members": [{"kind": "ensemble", "members": ["ridge"]}]}, "an ensemble cannot be a member of another"),
        (
            {"members": [{**NETWORK, "lr": 1e-3}]},
            "member patchtst of the ensemble has no argument 'lr'; valid: patch_len, .*, context_length, loss",
        ),
        ({"members": [{"kind": "persistence", "loss": "mae"}]}, "persistence .* has no argument 'loss'; valid: none"),
        ({"members": ["ridge"], "weights": [0.5, 0.5]}, "give one weight for each of the 1 members, not 2"),
        ({"members": ["ridge"] * 2, "weights": [1, -0.5]}, "weights must be numbers of at least 0, .*, not 1, -0.5"),
        ({"members": ["ridge"], "seeds": 0}, "seeds must be at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build_predictor({"kind": "ensemble", **arguments})
    assert len(str(caught.value).splitlines()) == 1


def fitted(toy_csv: Path, backbone: dict[str, Any], seed: int, context: int = 24, **model: Any) -> Any:
    sizes = {"path": str(toy_csv), "context_length": context, "prediction_length": 8}
    experiment = {
        "data": {"class_path": "CSVDataModule", "init_args": sizes},
        "model": {"backbone": backbone, **model},
        "trainer": {"max_steps": 3, "accelerator": "cpu"},
        "seed_everything": seed,
    }
    return run(experiment, test=False).fitted.predictor


def test_a_member_is_what_it_would_be_alone(toy_csv: Path) -> None:
    options, ridge = {"loss": "mae", "learning_rate": 1e-2}, {"kind": "ridge", "context_length": 40}
    member = {**NETWORK, "context_length": 30, **options}
    ensemble = fitted(toy_csv, {"kind": "ensemble", "members": [ridge, member], "seeds": 2}, seed=3)
    assert (ensemble.is_trained, ensemble.context_length) == (True, 40)
    whole = ensemble.state_dict()
    for number in (0, 1):
        alone = fitted(toy_csv, NETWORK, 3 + number, 30, **options).state_dict()
        assert all(torch.equal(whole[f"members.1.{number}.{name}"], part) for name, part in alone.items())
    assert torch.equal(whole["members.0.0.weight"], fitted(toy_csv, ridge, 0).state_dict()["weight"])


def test_a_pretrained_member_takes_series_shorter_than_its_context(tmp_path: Path) -> None:
    frame = frame_of({"a": 90, "b": 90})
    sizes: dict[str, Any] = {"prediction_length": 6, "max_steps": 2, "accelerator": "cpu"}
    forecaster = Forecaster({"kind": "ensemble", "members": ["patchtst", "tiny"]}, **sizes).fit(frame)
    assert forecaster.fitted.predictor.context_length > 90
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(frame), forecaster.predict(frame))
