"""Members of an ensemble that were fitted before: they are what the ensemble would have fitted, to the digit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tsattn.errors import UserError
from tsattn.experiments import Experiment, Hooks, RunFolder, run
from tsattn.leaderboard.plan import member_experiments
from tsattn.predictors.network import NetworkPredictor

NETWORK: dict[str, Any] = {
    **{"kind": "patchtst", "patch_len": 8, "stride": 8, "d_model": 8, "num_heads": 2, "num_layers": 1},
    **{"dropout": 0.1, "attention": {"kind": "mlr", "ranks": [2, 2]}},
}


def experiment(backbone: Any, **values: Any) -> Experiment:
    sizes = {"context_length": 48, "prediction_length": 8, "batch_size": 32}
    return Experiment.of(
        {
            "seed_everything": 3,
            "data": {"class_path": "CO2DataModule", "init_args": sizes},
            "model": {"backbone": backbone, "learning_rate": 0.01},
            "trainer": {"max_steps": 6, "val_check_interval": 2, "accelerator": "cpu"},
        }
    ).with_values(values)


OTHER = {
    **NETWORK,
    "attention": "standard",
    "context_length": 64,
    "loss": "mae",
    "learning_rate": 0.002,
    "max_steps": 4,
}
MIXED = {"kind": "ensemble", "members": [NETWORK, "ridge", OTHER], "weights": [2, 1, 1], "seeds": 2}


def test_an_ensemble_of_stored_members_is_the_one_that_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = experiment(MIXED)
    whole = run(ensemble)
    folders = {}
    for name, alone in member_experiments(ensemble).items():
        result = run(alone, tmp_path / name, hooks=Hooks(beside=False))
        folders[name] = tmp_path / name
        assert list(result.tables) == [result.fitted.predictor.name]  # no baseline beside it
        assert not (tmp_path / name / "forecast.png").exists()

    def never(*args: object, **options: object) -> None:
        raise AssertionError("a member was trained again")

    said: list[str] = []
    monkeypatch.setattr(NetworkPredictor, "fit", never)
    hooks = Hooks(fitted=folders.get, say=said.append)
    for folder in folders.values():
        RunFolder(folder).note("earlier_seconds", 1000.0)  # as if it had been interrupted
    again = run(ensemble, tmp_path / "ensemble", hooks=hooks)
    earlier = [one.get("earlier_fit_seconds") for copies in again.fit["members"] for one in copies]
    known = [seconds for seconds in earlier if seconds is not None]
    assert len(known) == len(folders)
    assert all(1000 < seconds < 1100 for seconds in known)
    assert again.key == whole.key
    assert sum("as it was fitted in" in line for line in said) == 4
    state, expected = again.fitted.predictor.state_dict(), whole.fitted.predictor.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in state)
    assert again.scores.equals(whole.scores)
    for fit in (whole.fit, again.fit):
        for one in (copy for copies in fit["members"] for copy in copies):
            for name in ("training", "earlier_fit_seconds"):
                one.pop(name, None)
    assert again.fit["members"] == whole.fit["members"]
    monkeypatch.undo()
    refitted = run(ensemble, tmp_path / "refitted", refit=True, hooks=hooks).refitted
    assert not torch.equal(*(one.predictor.state_dict()["members.1.0.weight"] for one in (refitted, whole.fitted)))
    name = next(name for name in state if name.startswith("members.0.0.") and state[name].dim() > 1)
    assert not torch.equal(refitted.predictor.state_dict()[name], state[name])  # trained once more, to all rows


def test_a_run_of_something_else_is_not_taken(tmp_path: Path) -> None:
    run(experiment(NETWORK, **{"model.backbone.num_layers": 2}), tmp_path / "wide", hooks=Hooks(beside=False))
    with pytest.raises(UserError, match="checkpoint is of another model"):
        run(experiment(MIXED), hooks=Hooks(fitted=lambda one: tmp_path / "wide"))
    shorter = experiment(NETWORK, **{"data.context_length": 40})
    run(shorter, tmp_path / "short", hooks=Hooks(beside=False))
    with pytest.raises(UserError, match=r"the run .*short was fitted to other data"):
        run(experiment(MIXED), hooks=Hooks(fitted=lambda one: tmp_path / "short"))
