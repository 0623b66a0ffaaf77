"""Loggers by name are made for the folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger

from tsattn.training.loggers import attached_loggers


class Made:
    """Stands for a logger whose package is not installed here."""

    def __init__(self, save_dir: Any) -> None:
        self.save_dir = save_dir


def test_each_name_writes_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WandbLogger", "MLFlowLogger"):
        monkeypatch.setattr(f"lightning.pytorch.loggers.{name}", Made)
    csv, wandb, mlflow = attached_loggers(["csv", "wandb", "mlflow", "wandb"], None, tmp_path)
    assert isinstance(csv, CSVLogger)
    assert Path(csv.save_dir) == tmp_path
    assert isinstance(wandb, Made)
    assert wandb.save_dir == tmp_path
    assert isinstance(mlflow, Made)
    assert mlflow.save_dir == str(tmp_path / "mlruns")
