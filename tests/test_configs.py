"""Every shipped configuration runs, at toy size, through the command line."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from tests.chronos.tiny_models import weights_of
from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.cli import main
from tsattn.predictors import build_predictor
from tsattn.task import Task

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
WINDOWS = {  # by configuration or data set
    "chronos_mlr": 2875,
    "co2": 407,
    "ETTh1": 2785,
    "ETTh2": 2785,
    "ETTm1": 11425,
    "ETTm2": 11425,
    "exchange_rate": 1422,
    "national_illness": 170,
    "vic_electricity": 1656,
    "vic_electricity_series": 3408,
    "weather": 2525,
}
UNTIL = {  # of the largest tables
    "vic_electricity": "2012-07-01",
    "vic_electricity_series": "2012-07-01",
    "weather": "2020-04-01",
}
TOY = ["--data.context_length=16", "--data.batch_size=4", "--trainer.max_steps=2", "--trainer.val_check_interval=1"]


def needs_a_file(config: Path) -> bool:
    return yaml.safe_load(config.read_text())["data"]["class_path"] == "PublicDataModule"


@pytest.mark.usefixtures("undrawn", "short_ridge")
@pytest.mark.parametrize(
    "config",
    [pytest.param(path, id=path.name, marks=[pytest.mark.real_data] if needs_a_file(path) else []) for path in CONFIGS],
)
def test_configuration_runs(config: Path, tmp_path: Path) -> None:
    words = ["fit", "--config", config.name, "--run", str(tmp_path / "run"), *TOY]
    limits = ["--trainer.limit_val_batches=1", "--data.eval_batch_size=512", "--trainer.accelerator=cpu"]
    # the size of a GPU, with as many features a head
    size = ["d_model=64", "num_heads=1", "d_ff=64"] if "paper" in config.name else []
    few: list[str] = []
    if "chronos_mlr" in config.name:  # small weights of random numbers in the place of its own, and their horizon
        size, few = [f"weights={weights_of('bolt')}", "calibrate=2"], ["--data.prediction_length=6"]
    if config.stem in UNTIL:
        few = [f"--data.until={UNTIL[config.stem]}"]
    assert main([*words, *limits, *few, *(f"--model.backbone.{option}" for option in size)]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test_windows"] == WINDOWS.get(config.stem, WINDOWS.get(metrics["data"]))
    assert len(metrics["test"]) == 4
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    asked = yaml.safe_load(config.read_text())["model"]["backbone"]
    changed = {name: yaml.safe_load(value) for name, value in (option.split("=") for option in size)}
    assert saved["model"]["backbone"] == build_predictor({**asked, **changed}).with_context(16).description


def test_the_backbone_of_a_gpu_has_the_size_that_it_says() -> None:
    content = yaml.safe_load((CONFIGS[0].parent / "etth1_mlr_paper.yaml").read_text())
    lengths = content["data"]["init_args"]
    task = Task("toy", lengths["context_length"], lengths["prediction_length"], ("a", "b"), "h", 24)
    backbone = build_backbone(content["model"]["backbone"], task)
    assert backbone(Batch(torch.randn(1, 96, 2))).shape == (1, 96, 2)
