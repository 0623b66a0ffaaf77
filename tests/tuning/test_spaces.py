"""Spaces over every key of an experiment: kinds of predictors, members of an ensemble, closed forms, losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from optuna.trial import TrialState

import tsattn
from tests.tuning.cases import toy
from tsattn.cli import main
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.configs import with_values

NETWORK: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "patch_len": 8}


def table(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "study" / "trials.csv")


def scored(base: Experiment, values: dict[str, Any]) -> float:
    """The validation error of an experiment with other values, as a run of its own has it."""
    error: float = tsattn.run(base, overrides=values, test=False).fit["validation_error"]
    return error


def test_the_kind_of_the_predictor_with_arguments_of_its_own(tmp_path: Path) -> None:
    kind = "model.backbone.kind"
    space = {
        "sampler": "grid",
        "parameters": {
            kind: ["transformer", "patchtst", "ridge", "seasonal_naive"],
            "model.backbone.patch_len": {"type": "categorical", "choices": [8], "when": {kind: "patchtst"}},
            "model.backbone.d_model": {"type": "categorical", "choices": [8], "when": {kind: "patchtst"}},
            "attention.kind": {"type": "categorical", "choices": ["swa"], "when": {kind: "patchtst"}},
            "attention.window_size": {"type": "categorical", "choices": [2], "when": {"attention.kind": "swa"}},
            "model.backbone.alpha": {"type": "categorical", "choices": [0.1, 1e4], "when": {kind: "ridge"}},
            "model.learning_rate": {
                "type": "categorical",
                "choices": [0.02],
                "when": {kind: ["transformer", "patchtst"]},
            },
        },
    }
    made = toy(tmp_path, space)
    assert made.tune() == 0
    found = table(tmp_path).set_index(kind)
    assert found.state.tolist() == ["complete"] * 5
    assert sorted(found.index) == ["patchtst", "ridge", "ridge", "seasonal_naive", "transformer"]
    rate = {"model.learning_rate": 0.02}
    patched = {"kind": "patchtst", "patch_len": 8, "d_model": 8, "attention": {"kind": "swa", "window_size": 2}}
    runs = {
        "transformer": rate,
        "patchtst": {**rate, "model.backbone": patched},
        "seasonal_naive": {"model.backbone": "seasonal_naive"},
    }
    for name, values in runs.items():
        assert found.error[name] == scored(made.base(), values)
    ridges = found.loc["ridge"].set_index("model.backbone.alpha")
    for alpha in (0.1, 1e4):
        assert ridges.error[alpha] == scored(made.base(), {"model.backbone": {"kind": "ridge", "alpha": alpha}})
    assert found.parameters["seasonal_naive"] == found.flops["seasonal_naive"] == 0
    assert set(ridges.parameters) == {24 * 6}
    assert set(ridges.flops) == {2 * 24 * 6 * 2}  # a multiply-add for each weight and channel
    assert found.step.notna().to_dict() == {**dict.fromkeys(found.index, False), "transformer": True, "patchtst": True}
    # what the best was is a file that `fit` takes, whatever the kind
    best = yaml.safe_load((made.study / "best.yaml").read_text())
    assert best["model"]["backbone"]["kind"] == found.error.idxmin()
    assert main(["fit", "--config", str(made.study / "best.yaml"), "--run", str(tmp_path / "run")]) == 0


def test_the_arguments_of_a_closed_form_without_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning.pytorch.Trainer", lambda **_: pytest.fail("a Trainer was made"))
    alpha = {"type": "float", "low": 0.01, "high": 1e3, "log": True}
    parameters = {"model.backbone.alpha": alpha, "model.backbone.context_length": [12, 48]}
    made = toy(tmp_path, {"objectives": ["error", "parameters", "seconds", "memory"], "parameters": parameters})
    assert made.tune("--model.backbone", "ridge", "--trials", "6") == 0
    found = table(tmp_path)
    assert found.state.tolist() == ["complete"] * 6
    assert (found.parameters == 6 * found["model.backbone.context_length"]).all()
    assert (found.seconds > 0).all()
    assert (found.memory > 50_000_000).all()
    for row in found.to_dict("records")[:2]:
        values = {name: row[name] for name in parameters}
        values["model.backbone.context_length"] = int(values["model.backbone.context_length"])
        assert row["error"] == scored(made.base(), {"model.backbone": "ridge", **values})


def test_members_and_weights_of_an_ensemble(tmp_path: Path) -> None:
    backbone = {"kind": "ensemble", "members": ["ridge", NETWORK], "weights": [1, 1]}
    parameters = {
        "model.backbone.members.0.alpha": [1.0, 1e3],
        "model.backbone.members.1.d_model": [8, 16],
        "model.backbone.members.1.context_length": [16, 24],
        "model.backbone.members.1.learning_rate": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True},
        "model.backbone.weights": {"type": "categorical", "choices": {"even": [1, 1], "linear": [3, 1]}},
    }
    made = toy(tmp_path, {"parameters": parameters}, backbone=backbone)
    assert made.tune("--trials", "4") == 0
    found = table(tmp_path)
    assert found.state.tolist() == ["complete"] * 4
    assert found["model.backbone.weights"].nunique() == 2
    sizes = found.set_index("model.backbone.members.1.d_model").parameters
    assert sizes[[8]].max() < sizes[[16]].min()
    row = found.to_dict("records")[3]
    weights = {"even": [1, 1], "linear": [3, 1]}[row["model.backbone.weights"]]
    values = {name: row[name] for name in parameters if name != "model.backbone.weights"}
    for name in ("d_model", "context_length"):
        values[f"model.backbone.members.1.{name}"] = int(values[f"model.backbone.members.1.{name}"])
    assert row["error"] == scored(made.base(), {**values, "model.backbone.weights": weights})
    assert not any(trial.intermediate_values for trial in made.trials()), "no step of a member prunes an ensemble"


def test_another_loss_is_compared_by_the_error_of_the_base(tmp_path: Path) -> None:
    made = toy(tmp_path, {"sampler": "grid", "parameters": {"model.loss": ["mse", "mae", "huber"]}})
    assert made.tune() == 0
    trials = made.trials()
    assert [trial.user_attrs["selected_by"] for trial in trials] == ["mse_scaled"] * 3
    assert len({trial.value for trial in trials}) == 3
    assert made.summary()["configuration_as_it_is"]["trial"] == 0  # its loss is mse, which nobody wrote
    for trial in trials:
        values = {"model.loss": trial.params["model.loss"], "model.selection": "mse"}
        assert trial.value == scored(made.base(), values)


def test_quantiles_are_compared_by_their_crps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = toy(tmp_path, {"parameters": {"model.learning_rate": [0.01, 0.02]}}, quantiles=[0.1, 0.5, 0.9])
    assert made.tune("--trials", "2") == 0
    assert made.summary()["best"]["selected_by"] == "crps_scaled"
    assert "validation CRPS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"model": [{"quantiles": [0.5]}]}, "model decides what is scored"),
        ({"trainer": [{"limit_val_batches": 1}]}, "trainer decides what is scored"),
        ({"data.val_windows": [3]}, "data.init_args.val_windows decides what is scored"),
        ({"trainer.devices": [1, 2]}, "devices cannot be 2: a trial runs on one device: .* must be 1, not 2; run"),
        ({"model.backbone.members.2.kind": ["ridge"]}, "members is a list of 2, so there is no .*members.2$"),
        ({"model.backbone.members.0.alfa": [1.0]}, "cannot be 1.0: member ridge of the ensemble has no argument"),
        (
            {"model.backbone.members.0.context_length": [24, 900]},
            "context_length cannot be 900: ridge has",
        ),
        ({"model.backbone.weights": [[1, 1], [1]]}, "cannot be .*weights must be as many as the members, 2, not 1"),
        ({"trainer.accumulate_grad_batches": [1, 2]}, "cannot be 2: val_check_interval 1 must be a multiple of "),
        ({"model.learning_rate": [0.1, -1.0]}, "cannot be -1.0: learning_rate must be above 0"),
        ({"model.loss": ["mse", "pinball"]}, "cannot be 'pinball': loss pinball needs quantiles"),
    ],
)
def test_what_is_refused_before_the_first_trial(parameters: dict[str, Any], said: str, tmp_path: Path) -> None:
    made = toy(tmp_path, {"parameters": parameters}, backbone={"kind": "ensemble", "members": ["ridge", NETWORK]})
    with pytest.raises(UserError, match=said):
        made.check({"parameters": parameters})


def test_conditions_that_are_left_out_make_trials_that_say_why(tmp_path: Path) -> None:
    parameters = {"model.backbone.kind": ["ridge", "patchtst"], "model.backbone.alpha": [1.0]}
    made = toy(tmp_path, {"sampler": "grid", "parameters": parameters}, backbone="ridge")
    assert made.tune() == 0
    ridge, network = made.trials()
    assert ridge.state == TrialState.COMPLETE
    assert network.state == TrialState.PRUNED
    assert "refused: backbone patchtst has no argument 'alpha'" in network.user_attrs["reason"]


def test_values_inside_what_a_configuration_leaves_out() -> None:
    assert with_values({}, {"trainer.max_steps": 3}) == {"trainer": {"max_steps": 3}}
    default = {"kind": "patchtst", "d_model": 32, "num_heads": 4, "linear_path": "ridge", "dropout": 0.2}
    assert with_values({}, {"model.backbone.num_layers": 3}) == {"model": {"backbone": {**default, "num_layers": 3}}}
    assert default == DEFAULT_BACKBONE, "it was copied before it was changed"
    switched = with_values(
        {"model": {"backbone": "ridge"}}, {"model.backbone.kind": "transformer", "model.backbone.attention.kind": "swa"}
    )
    assert switched["model"]["backbone"] == {"kind": "transformer", "attention": {"kind": "swa"}}
