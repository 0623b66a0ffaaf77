"""Early stopping and loggers on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import yaml

from tests.cli.toy_run import TINY
from tsattn.cli import main


def test_patience_and_loggers_by_name_reach_the_training(toy_csv: Path, tmp_path: Path) -> None:
    run, own = tmp_path / "run", tmp_path / "own"
    logger = f"{{class_path: CSVLogger, init_args: {{save_dir: {own}, name: '', version: ''}}}}"
    words = ["--model.patience=2", "--model.min_delta=1e6", "--trainer.val_check_interval=1"]
    asked = [f"--data.path={toy_csv}", f"--run={run}", f"--trainer.logger=[csv, tensorboard, {logger}]"]
    assert main(["fit", *TINY, "--attention=swa", *asked, *words]) == 0
    assert json.loads((run / "metrics.json").read_text())["training"]["steps"] == 3, "the first and two without a gain"
    assert (run / "tensorboard").is_dir()
    curves = [pd.read_csv(folder / "metrics.csv") for folder in (run, own)]
    assert len(curves[0]) == len(curves[1])
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["trainer"]["logger"][:2] == ["csv", "tensorboard"]
    assert (config["model"]["patience"], config["model"]["min_delta"]) == (2, 1e6)
