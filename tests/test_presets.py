"""Configurations named after data sets are those that validation chose in the records of the suite classic."""

import runpy
from pathlib import Path
from typing import Any

import yaml

from tests.leaderboard.invented import row
from tsattn.experiments import Experiment
from tsattn.leaderboard.records import Records

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "classic"
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "presets.py"))


def test_presets_are_those_of_the_records() -> None:
    made = SCRIPT["presets"](RECORDS)
    assert len(made) == 8
    for name, content in made.items():
        assert (ROOT / "configs" / name).read_text() == content, "python benchmarks/presets.py"


def test_the_model_of_the_least_validation_error_is_written_without_defaults(tmp_path: Path) -> None:
    mixed = {
        "kind": "ensemble",
        "members": [{"kind": "patchtst", "attention": {"kind": "swa", "window_size": 4}, "loss": "mae"}, "ridge"],
        "weights": [0.25, 0.75],
    }
    asked = {
        "data": {"class_path": "tsattn.PublicDataModule", "init_args": {"name": "ETTh1", "context_length": 48}},
        "model": {"backbone": mixed, "learning_rate": 0.0012345678901234},
        "trainer": {"max_steps": 70, "accelerator": "cpu"},
    }
    full = [
        Experiment.of({**asked, "seed_everything": seed}).with_values({"data.prediction_length": horizon}).to_yaml()
        for seed, horizon in ((1, 24), (2, 24), (1, 48))
    ]
    runs = [
        row("ETTh1", 24, "patchtst", "standard", 1, validation_mse=0.5),
        row("ETTh1", 48, "patchtst", "standard", 1, validation_mse=0.5),
        row("ETTh1", 24, "patchtst+ridge", "swa", 2, validation_mse=0.4, experiment=full[1]),
        row("ETTh1", 24, "patchtst+ridge", "swa", 1, validation_mse=0.4, experiment=full[0]),
        row("ETTh1", 48, "patchtst+ridge", "swa", 1, validation_mse=0.4, experiment=full[2]),
        row("ETTh1", 24, "ridge", "", None, validation_mse=0.3),
        row("ETTh1", 48, "ridge", "", None, validation_mse=0.3),
    ]
    Records.of(runs).write(tmp_path)
    ((name, text),) = SCRIPT["presets"](tmp_path).items()
    assert name == "etth1.yaml"
    said = "# ETTh1: patchtst+ridge, swa. Of models with attention it has the lowest validation MSE at 24, 48 steps\n"
    assert text.startswith(said)
    content = yaml.safe_load(text)
    assert content["model"]["backbone"]["members"][0] == mixed["members"][0]  # type: ignore[index]
    assert content["data"] == {
        "class_path": "PublicDataModule",
        "init_args": {"name": "ETTh1", "context_length": 48, "prediction_length": 24},
    }
    assert content["trainer"] == {"max_steps": 70}
    was = yaml.safe_load(full[0])
    was["trainer"].pop("accelerator")
    assert Experiment.of(content).to_dict() == Experiment.of(was).to_dict()
