"""Trials that share their data: each is what it would be alone, and what `fit` makes of its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import torch

from tests.tuning.cases import Toy, toy
from tsattn.cli import main
from tsattn.experiments import Experiment, Result, run
from tsattn.experiments.recording import fitted_in
from tsattn.experiments.run_folder import RunFolder
from tsattn.tuning import Fold, HeldData, run_trial
from tsattn.tuning import trial as trial_module

pytestmark = pytest.mark.usefixtures("undrawn")

NETWORK: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "patch_len": 8}
ENSEMBLE: dict[str, Any] = {"kind": "ensemble", "members": ["ridge", {**NETWORK, "context_length": 30}], "seeds": 2}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """What trials came to, in their order."""
    found: list[Result] = []

    def kept(*given: Any, **options: Any) -> Result:
        found.append(run(*given, **options))
        return found[-1]

    monkeypatch.setattr(trial_module, "run", kept)
    return found


def one_trial(experiment: Experiment, made: Toy, held: HeldData, folds: int = 0) -> optuna.trial.FrozenTrial:
    space = made.search({"pruner": "none", "parameters": {"model.learning_rate": [0.01]}})
    study = optuna.create_study()
    trial = study.ask()
    study.tell(trial, run_trial(trial, experiment, {}, search=space, held=held, folds=folds))
    return study.trials[0]


def assert_same(one: Result, other: Result) -> None:
    states = [result.fitted.predictor.state_dict() for result in (one, other)]
    assert states[0].keys() == states[1].keys()
    for name, weight in states[0].items():
        assert torch.equal(weight, states[1][name]), name
    assert one.fit["validation_error"] == other.fit["validation_error"]
    assert one.fitted.scaler == other.fitted.scaler
    assert one.key == other.key


@pytest.mark.parametrize(("backbone", "folds"), [(None, 2), (ENSEMBLE, 0)], ids=str)
def test_equal_trials_are_equal_whatever_lies_between(
    backbone: Any, folds: int, results: list[Result], tmp_path: Path
) -> None:
    made = toy(tmp_path, **({} if backbone is None else {"backbone": backbone}))
    base, held = made.base(), HeldData()
    others: list[dict[str, Any]] = [
        {},
        {"trainer.max_steps": 5, "trainer.val_check_interval": 2, "model.learning_rate": 0.1},
        {"data.batch_size": 16, "data.context_length": 40, "data.eval_batch_size": 7},
        {},
    ]
    trials = [one_trial(base.with_values(values), made, held, folds) for values in others]
    alone = one_trial(base, made, HeldData(), folds)
    times = max(1, folds)
    assert len(results) == times * 5
    for fold in range(times):
        first, *between, again, fresh = results[fold::times]
        assert_same(first, again)
        assert_same(first, fresh)
        assert all(other.key != first.key for other in between)
    attributes = ("errors", "step", "parameters", "flops", "seed", "device")
    for name in attributes:
        assert trials[0].user_attrs[name] == trials[3].user_attrs[name] == alone.user_attrs[name]
    assert trials[2].user_attrs["errors"] != trials[0].user_attrs["errors"]


def test_what_a_training_notes_in_its_data_is_gone(results: list[Result], tmp_path: Path) -> None:
    made, held = toy(tmp_path), HeldData()
    base = made.base()
    before = held.of(base)
    one_trial(base, made, held)
    assert results[0].data.training_batches is None
    after = held.of(base)
    for data in (before, after):
        assert (data.trainer, data.training_batches, data.scored_windows) == (None, None, None)
    assert after.scaler is before.scaler
    assert after.task == before.task
    held.check(base.to_dict())  # plans a training, too
    assert held.of(base).training_batches is None
    assert held.of(base, Fold(0, 2)).scaler != before.scaler


def test_each_fold_knows_the_categories_of_its_own_training_rows(results: list[Result], tmp_path: Path) -> None:
    made = toy(tmp_path, backbone={**NETWORK, "linear_path": "none"})
    table = pd.read_csv(tmp_path / "toy.csv")
    rows = np.arange(len(table))
    # training rows end at 300, 360 and 420 in the folds, at 420 without them
    table["kind"] = np.select([rows < 310, rows < 370], [np.array(["a", "b"])[rows % 2], "c"], "d")
    table.to_csv(tmp_path / "toy.csv", index=False)
    base = made.base().with_values({"data.target": ["wave", "drift"], "data.future_covariates": ["kind"]})
    held = HeldData()
    held.check(base.to_dict())
    for fold in [*range(3), None]:
        split = None if fold is None else Fold(fold, 3)
        panel, alone = held.of(base, split).panel, HeldData().of(base, split).panel
        assert panel is not None
        assert alone is not None
        assert panel.covariate_categories == alone.covariate_categories
        assert panel.covariate_categories["kind"] == ("a", "b", "c", "d")[: 4 if fold is None else 2 + fold]
    errors = one_trial(base, made, held, folds=3).user_attrs["errors"]
    for fold, error in enumerate(errors):
        read_anew = run(base, data=HeldData().of(base, Fold(fold, 3)), test=False)
        assert read_anew.fit["validation_error"] == error


def test_fit_of_the_best_has_its_weights(results: list[Result], tmp_path: Path) -> None:
    space = {"parameters": {"seed_everything": [1, 2], "data.batch_size": [32, 64]}}
    made = toy(tmp_path, space, backbone=ENSEMBLE)
    assert made.tune("--trials", "3") == 0
    best = made.summary()["best"]
    trial = results[best["trial"]]
    assert trial.fit["validation_error"] == best["values"][0]
    assert main(["fit", "--config", str(made.study / "best.yaml"), "--run", str(tmp_path / "run")]) == 0
    fitted = fitted_in(RunFolder(tmp_path / "run"))
    expected = trial.fitted.predictor.state_dict()
    assert fitted.predictor.state_dict().keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in fitted.predictor.state_dict().items())
    assert_same(run(made.study / "best.yaml", test=False), trial)
