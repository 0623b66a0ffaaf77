"""What a run refuses before anything is computed, and how large it says a predictor is."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tsattn
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.predictors import build_predictor
from tsattn.predictors.base import Predictor
from tsattn.training import ForecastingModule, TrainerOptions, Training

NETWORK: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "patch_len": 8}


def described(path: Path, backbone: Any, trainer: dict[str, Any] | None = None, **model: Any) -> Experiment:
    data = {"path": str(path), "context_length": 24, "prediction_length": 6, "batch_size": 64}
    return Experiment.of(
        {
            "data": {"class_path": "CSVDataModule", "init_args": data},
            "model": {"backbone": backbone, **model},
            "trainer": {"max_steps": 2, "accelerator": "cpu", **(trainer or {})},
        }
    )


def check(experiment: Experiment) -> Predictor:
    data, trainer = experiment.data_module(), TrainerOptions.of(experiment.trainer_arguments())
    data.setup("fit")
    predictor = build_predictor(experiment.model["backbone"])
    predictor.build(data.task, empty=True)
    before = torch.get_rng_state(), dict(vars(data))
    try:
        predictor.check_fit(data, Training(trainer, experiment.training_options))
    finally:
        assert torch.equal(torch.get_rng_state(), before[0])  # nothing was drawn
        assert vars(data) == before[1]  # and nothing noted
    return predictor


@pytest.mark.parametrize(
    ("trainer", "model", "said"),
    [
        (
            {"val_check_interval": 1, "accumulate_grad_batches": 2},
            {},
            "val_check_interval 1 must be a multiple of accumulate_grad_batches 2",
        ),
        ({"max_steps": 0}, {}, "there is nothing to train"),
        ({"strategy": "none"}, {}, "the trainer cannot be made: .*none"),
        ({}, {"learning_rate": -1.0}, "learning_rate must be above 0, not -1"),
        ({}, {"compile_mode": "fast"}, "compile_mode must be one of"),
        ({}, {"loss": "pinball"}, "loss pinball needs quantiles"),
    ],
)
def test_a_training_that_cannot_be(trainer: dict[str, Any], model: dict[str, Any], said: str, toy_csv: Path) -> None:
    with pytest.raises(UserError, match=said):
        check(described(toy_csv, {"kind": "ensemble", "members": ["ridge", NETWORK]}, trainer, **model))


@pytest.mark.parametrize(
    "backbone",
    [
        {"kind": "ridge", "context_length": 500},
        {"kind": "seasonal_naive", "season_length": 500},
        {"kind": "ensemble", "members": [NETWORK, {"kind": "ridge", "context_length": 500}]},
        {"kind": "ensemble", "members": ["ridge", {**NETWORK, "context_length": 500}]},
    ],
)
def test_a_context_that_the_data_do_not_hold(backbone: Any, toy_csv: Path) -> None:
    with pytest.raises(UserError, match="context_length 500"):
        check(described(toy_csv, backbone))


def test_the_member_that_cannot_be_trained_is_found_before_the_first_is(
    toy_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForecastingModule, "training_step", lambda *_: pytest.fail("it was trained"))
    members = [NETWORK, {**NETWORK, "learning_rate": -1.0}]
    with pytest.raises(UserError, match="learning_rate must be above 0"):
        tsattn.run(described(toy_csv, {"kind": "ensemble", "members": members}), test=False)


_RIDGE = {"kind": "ridge", "context_length": 40}


@pytest.mark.parametrize(
    ("backbone", "expected"),
    [
        ("persistence", 0),
        ("seasonal_naive", 0),
        (_RIDGE, 2 * (40 + 13) * 6),
        ({"kind": "ensemble", "members": [_RIDGE, "persistence", {**_RIDGE, "context_length": 9}]}, 2 * (49 + 26) * 6),
    ],
)
def test_the_numbers_that_a_closed_form_is_fitted_by(backbone: Any, expected: int, toy_csv: Path) -> None:
    assert check(described(toy_csv, backbone)).num_parameters == expected
    result = tsattn.run(described(toy_csv, backbone), test=False)
    assert result.fit["parameters"] == result.fitted.predictor.num_parameters
    assert result.fit["parameters"] <= expected  # fewer where channels share a map


def test_the_parameters_of_an_ensemble_are_those_of_all_its_networks(toy_csv: Path) -> None:
    network = check(described(toy_csv, NETWORK))
    assert network.num_parameters == sum(weight.numel() for weight in network.parameters()) > 0
    both = check(described(toy_csv, {"kind": "ensemble", "members": [NETWORK, "ridge"], "seeds": 2}))
    assert both.num_parameters == 2 * network.num_parameters + 2 * (24 + 13) * 6


def test_a_run_without_a_folder_leaves_out_the_checkpoints_of_a_callback(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saving = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": {"dirpath": "kept"}}
    before = set(tmp_path.iterdir())
    experiment = described(toy_csv, NETWORK, {"callbacks": [saving]})
    check(experiment)
    assert tsattn.run(experiment, test=False).fit["best_step"] in (1, 2)
    assert set(tmp_path.iterdir()) == before
