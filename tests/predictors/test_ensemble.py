"""Ensembles, the mean of their members, and distilled networks: how they are fitted, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from tests.experiments.golden import NETWORK as STUDENT
from tests.experiments.golden import described
from tests.forecaster.toys import frame_of
from tests.predictors.cases import NETWORK, build, windows_for
from tests.toy_windows import LEVELS, toy_task
from tsattn import Forecaster, load
from tsattn.backbones import Backbone
from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.experiments import resume, run
from tsattn.experiments.result import fitted_in
from tsattn.experiments.run_folder import RunFolder
from tsattn.predictors import Predictor, build_predictor, ensemble
from tsattn.predictors.ensemble import Ensemble
from tsattn.task import Output, Task
from tsattn.training import ForecastingModule, Training
from tsattn.training.train import all_fits


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
    with pytest.raises(UserError, match=r"Blind uses no covariates, and the data has rain, .* those that do: transf"):
        blind.build(task)

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
        ({"members": [{"kind": "persistence", "loss": "mae"}]}, "persistence .* has no argument 'loss'; valid: none"),
        ({"members": ["ridge"], "weights": [0.5, 0.5]}, "weights must be as many as the members, 1, not 2"),
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


MIXED = {"kind": "ensemble", "members": ["ridge", STUDENT]}


class Told(Predictor):
    """A teacher that notes what it is given, and forecasts one number."""

    asked: ClassVar[list[Batch]] = []
    is_trained = True

    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        return {}

    def forward(self, batch: Batch) -> torch.Tensor:
        self.asked.append(batch)
        return torch.full((len(batch), self.task.prediction_length, batch.past.shape[-1]), 3.0)


def distilled(teacher: Any, weight: float = 0.25, **student: Any) -> dict[str, Any]:
    return {"kind": "distilled", "student": {**STUDENT, **student}, "teacher": teacher, "weight": weight}


def test_training_targets_alone_are_mixed_with_what_the_teacher_says_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Batch]] = {"before": [], "training": [], "validation": []}

    def note(owner: Any, name: str, part: str) -> None:
        call = getattr(owner, name)

        def noted(*given: Any) -> Any:
            batch = next(one for one in given if isinstance(one, Batch))
            seen[part].append(replace(batch) if part == "before" else batch)
            return call(*given)

        monkeypatch.setattr(owner, name, noted)

    note(ensemble, "mixed_target", "before")
    note(ForecastingModule, "training_step", "training")
    note(ForecastingModule, "validation_step", "validation")
    Told.asked.clear()
    told = f"{__name__}.Told"
    run(described(tmp_path, distilled(told), trainer={"max_steps": 3}), test=False)
    assert len(seen["training"]) == len(Told.asked) == 3, "the teacher is asked for training batches alone"
    for before, batch, asked in zip(seen["before"], seen["training"], Told.asked, strict=True):
        torch.testing.assert_close(batch.target, 0.75 * before.target + 0.25 * 3.0)
        assert batch.target_observed is before.target_observed
        assert torch.equal(asked.past, batch.past)
        assert (asked.target, asked.target_observed, asked.target_weight) == (None, None, None)
    assert any(not batch.target_observed.all() for batch in seen["training"] if batch.target_observed is not None)
    targets = torch.cat([batch.target for batch in seen["validation"] if batch.target is not None])
    assert targets.std() > 0.5, "validation is by what came"


def test_the_student_alone_is_kept(tmp_path: Path) -> None:
    result = run(described(tmp_path, distilled(MIXED)), tmp_path / "run", refit=True, test=False)
    ridge, (network,), (student,) = result.fit["members"]
    steps = {"teacher.member_1_seed_0": network["best_step"], "student": student["best_step"]}
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["refit"] == {"rows": "all", "steps": steps}
    predictor = result.fitted.predictor
    assert {name.split(".")[0] for name in predictor.state_dict()} == {"student"}
    assert ridge[0]["chosen"]["maps"]
    assert (network["member"], student["member"]) == ("teacher.member_1_seed_0", "student")
    folder = RunFolder(tmp_path / "run")
    loaded = fitted_in(folder, folder.best).predictor
    (batch,) = [next(iter(result.data.eval_dataloader("val")))]
    assert torch.equal(loaded(batch), predictor(batch))
    alone = build_predictor(STUDENT)
    alone.build(result.data.task)
    assert predictor.num_parameters == alone.num_parameters
    assert [*predictor.attending()] == [""]


def test_as_members_of_an_ensemble_each_keeps_to_itself_and_goes_on_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lasts = {"max_steps": 4, "val_check_interval": 2}
    # hidden patches and dropout of the rest of a student's training are those of the first
    members = [STUDENT, distilled(MIXED), distilled("persistence", 1.0, dropout=0.4, patch_mask=0.4)]
    experiment = described(tmp_path, {"kind": "ensemble", "members": members}, trainer=lasts)
    whole = run(experiment, tmp_path / "whole", test=False, refit=True)
    networks = [
        *("member_0_seed_0", "member_1_seed_0.teacher.member_1_seed_0"),
        *("member_1_seed_0.student", "member_2_seed_0.student"),
    ]
    fits = all_fits(whole.fit)
    assert [fit["member"] for fit in fits if "training" in fit] == networks
    refitted = json.loads((tmp_path / "whole" / "metrics.json").read_text())["refit"]["steps"]
    assert refitted == {fit["member"]: fit["best_step"] for fit in fits if "training" in fit}
    assert sorted(path.name for path in (tmp_path / "whole" / "members").iterdir()) == sorted(networks)

    puts, done = ensemble.mixed_target, []

    def stop_in_the_second_student(batch: Batch, forecast: torch.Tensor, weight: float) -> torch.Tensor:
        if len(done) == 4 + 3:
            raise RuntimeError("killed")
        done.append(batch)
        return puts(batch, forecast, weight)

    monkeypatch.setattr(ensemble, "mixed_target", stop_in_the_second_student)
    with pytest.raises(RuntimeError, match="killed"):
        run(experiment, tmp_path / "broken", test=False)
    monkeypatch.undo()
    expected = whole.fitted.predictor.state_dict()
    for name, weight in resume(tmp_path / "broken").fitted.predictor.state_dict().items():
        assert torch.equal(weight, expected[name]), name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"teacher": None}, "a distilled network needs a teacher"),
        ({"teacher": {"kind": "distilled", "teacher": "ridge"}}, "a distilled network is no teacher of another"),
        ({"teacher": "lstm"}, "unknown teacher 'lstm'; valid: transformer, patchtst"),
        ({"student": "ridge"}, "a student is a network, transformer, patchtst, .*, not ridge"),
        ({"weight": 0.0}, r"weight of the teacher must be above 0 and at most 1, not 0\.0"),
    ],
)
def test_what_it_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_predictor({**distilled("ridge"), **changed})


def test_a_teacher_of_a_longer_context_is_refused_before_anything_is_fitted(tmp_path: Path) -> None:
    teacher = {"kind": "ensemble", "members": [STUDENT, {"kind": "ridge", "context_length": 40}]}
    with pytest.raises(UserError, match=r"^the teacher looks at 40 past steps, and the student is given 24: give both"):
        run(described(tmp_path, distilled(teacher)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pretrained_member_takes_series_shorter_than_its_context(tmp_path: Path) -> None:
    frame = frame_of({"a": 90, "b": 90})
    sizes: dict[str, Any] = {"prediction_length": 6, "max_steps": 2, "accelerator": "cpu"}
    forecaster = Forecaster({"kind": "ensemble", "members": ["patchtst", "tiny"]}, **sizes).fit(frame)
    assert forecaster.fitted.predictor.context_length > 90
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(frame), forecaster.predict(frame))
