"""A distilled network: what its student is trained towards, what is kept of its teacher, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.experiments.golden import NETWORK, described
from tsattn.batch import Batch
from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.experiments import resume, run
from tsattn.experiments.recording import fitted_in
from tsattn.experiments.run_folder import RunFolder
from tsattn.predictors import Predictor, build_predictor, ensemble
from tsattn.training import ForecastingModule, Training
from tsattn.training.train import all_fits

MIXED = {"kind": "ensemble", "members": ["ridge", NETWORK]}


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
    return {"kind": "distilled", "student": {**NETWORK, **student}, "teacher": teacher, "weight": weight}


def test_training_targets_alone_are_mixed_with_what_the_teacher_says_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Batch]] = {"before": [], "training": [], "validation": []}
    puts, trains, validates = (
        ensemble.mixed_target,
        ForecastingModule.training_step,
        ForecastingModule.validation_step,
    )

    def put(batch: Batch, forecast: torch.Tensor, weight: float) -> torch.Tensor:
        seen["before"].append(replace(batch))
        return puts(batch, forecast, weight)

    def train(self: ForecastingModule, batch: Batch, batch_idx: int) -> torch.Tensor:
        seen["training"].append(batch)
        return trains(self, batch, batch_idx)

    def validate(self: ForecastingModule, batch: Batch, batch_idx: int) -> None:
        seen["validation"].append(batch)
        validates(self, batch, batch_idx)

    monkeypatch.setattr(ensemble, "mixed_target", put)
    monkeypatch.setattr(ForecastingModule, "training_step", train)
    monkeypatch.setattr(ForecastingModule, "validation_step", validate)
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


def network_steps(fit: dict[str, Any], member: int) -> int:
    steps: int = fit["members"][member][0]["best_step"]
    return steps


def test_the_student_alone_is_kept(tmp_path: Path) -> None:
    result = run(described(tmp_path, distilled(MIXED)), tmp_path / "run", refit=True, test=False)
    steps = {"teacher.member_1_seed_0": network_steps(result.fit, 1), "student": network_steps(result.fit, 2)}
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["refit"] == {"rows": "all", "steps": steps}
    predictor = result.fitted.predictor
    assert {name.split(".")[0] for name in predictor.state_dict()} == {"student"}
    ridge, network, student = result.fit["members"]
    assert ("every" in ridge[0], network[0]["member"], student[0]["member"]) == (
        True,
        "teacher.member_1_seed_0",
        "student",
    )
    folder = RunFolder(tmp_path / "run")
    loaded = fitted_in(folder, folder.best).predictor
    (batch,) = [next(iter(result.data.eval_dataloader("val")))]
    assert torch.equal(loaded(batch), predictor(batch))
    alone = build_predictor(NETWORK)
    alone.build(result.data.task)  # type: ignore[arg-type]
    assert predictor.num_parameters == alone.num_parameters
    assert [*predictor.attending()] == [""]


def test_a_run_that_is_killed_while_the_student_learns_ends_as_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lasts = {"max_steps": 8, "val_check_interval": 2}
    experiment = described(tmp_path, distilled(MIXED, dropout=0.4, patch_mask=0.4), trainer=lasts)
    whole = run(experiment, tmp_path / "whole", test=False)
    puts, done = ensemble.mixed_target, []

    def stop(batch: Batch, forecast: torch.Tensor, weight: float) -> torch.Tensor:
        if len(done) == 5:
            raise RuntimeError("killed")
        done.append(batch)
        return puts(batch, forecast, weight)

    monkeypatch.setattr(ensemble, "mixed_target", stop)
    with pytest.raises(RuntimeError, match="killed"):
        run(experiment, tmp_path / "broken", test=False)
    assert not (tmp_path / "broken" / "metrics.json").exists()
    monkeypatch.undo()
    again = resume(tmp_path / "broken")
    expected = whole.fitted.predictor.state_dict()
    for name, weight in again.fitted.predictor.state_dict().items():
        assert torch.equal(weight, expected[name]), name
    # hidden patches and dropout of the rest of the student's training are those of the first
    assert again.fit["members"][-1][0]["validation_error"] == whole.fit["members"][-1][0]["validation_error"]


def test_as_members_of_an_ensemble_each_keeps_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lasts = {"max_steps": 4, "val_check_interval": 2}
    members = [NETWORK, distilled(MIXED), distilled("persistence", 1.0)]
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
        ({"weight": 1.5}, r"weight of the teacher must be above 0 and at most 1, not 1\.5"),
        ({"weight": "half"}, "weight must be a number, not 'half'"),
    ],
)
def test_what_it_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_predictor({**distilled("ridge"), **changed})


def test_a_teacher_of_a_longer_context_is_refused_before_anything_is_fitted(tmp_path: Path) -> None:
    teacher = {"kind": "ensemble", "members": [NETWORK, {"kind": "ridge", "context_length": 40}]}
    with pytest.raises(UserError, match=r"^the teacher looks at 40 past steps, and the student is given 24: give both"):
        run(described(tmp_path, distilled(teacher)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
