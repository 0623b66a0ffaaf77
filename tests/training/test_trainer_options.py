"""Options of Lightning's Trainer: those that a run refuses, and the callbacks and loggers that it keeps."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger

from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.training import TrainerOptions
from tsattn.training.loggers import attached_loggers
from tsattn.training.trainer_options import TRAINER_DEFAULTS


def words(csv: Path, run: Path) -> list[str]:
    sizes = ["--data.context_length=48", "--data.prediction_length=12", "--trainer.accelerator=cpu"]
    tiny = "--model.backbone={kind: patchtst, d_model: 8, num_heads: 2, num_layers: 1}"
    return ["fit", "--data=CSVDataModule", f"--data.path={csv}", *sizes, tiny, f"--run={run}"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit_test_batches": 2}, "limit_test_batches cannot be set: test errors are always over all windows"),
        ({"overfit_batches": 1}, "overfit_batches cannot be set: test errors are always over all windows"),
        ({"limit_predict_batches": 1}, "limit_predict_batches cannot be set: every series is forecast"),
        ({"barebones": True}, "barebones cannot be set: a run writes its curve and checkpoints"),
        ({"limit_val_batches": 0}, "limit_val_batches must be above 0: validation chooses the checkpoint"),
        (
            {"val_check_interval": 1.5},
            "val_check_interval must be a number of steps, at least 1, or a share",
        ),
        ({"val_check_interval": "1h"}, "val_check_interval must be a number of steps or a share of an epoch, not 1h"),
        ({"gradient_clip_val": -1.0}, r"gradient_clip_val must be at least 0 \(0 or null for no clipping\), not -1"),
        ({"max_time": "00:00:00:00"}, "max_time must be above 0: there is nothing to train"),
        (
            {"use_distributed_sampler": False, "devices": 2},
            "share windows out: --trainer.devices must be 1, not 2",
        ),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_would_mislead_or_train_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    defaults = {name: one.default for name, one in inspect.signature(Trainer).parameters.items()}
    with pytest.raises(UserError, match=message):
        TrainerOptions.of({**defaults, **TRAINER_DEFAULTS, **given})


def test_the_folder_of_a_run_has_its_checkpoints(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(toy_csv, tmp_path / "run"), "--trainer.enable_checkpointing=false"]) == 2
    assert "--trainer.enable_checkpointing cannot be false" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_callbacks_and_loggers_of_the_configuration_are_kept(toy_csv: Path, tmp_path: Path) -> None:
    extra = tmp_path / "extra.yaml"
    extra.write_text(
        "trainer:\n"
        "  callbacks: {class_path: EarlyStopping, init_args: {monitor: val_mse_scaled, stopping_threshold: 1e9}}\n"
        f"  logger: {{class_path: CSVLogger, init_args: {{save_dir: {tmp_path / 'mine'}}}}}\n"
    )
    assert main([*words(toy_csv, tmp_path / "run"), "--config", str(extra), "--trainer.max_epochs=40"]) == 0
    assert list((tmp_path / "mine").rglob("metrics.csv"))
    assert pd.read_csv(tmp_path / "run" / "metrics.csv").val_mse_scaled.notna().sum() == 1


class Made:
    """Stands for a logger whose package is not installed here."""

    def __init__(self, save_dir: Any) -> None:
        self.save_dir = save_dir


def test_each_name_of_a_logger_writes_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WandbLogger", "MLFlowLogger"):
        monkeypatch.setattr(f"lightning.pytorch.loggers.{name}", Made)
    csv, wandb, mlflow = attached_loggers(["csv", "wandb", "mlflow", "wandb"], None, tmp_path)
    assert isinstance(csv, CSVLogger)
    assert Path(csv.save_dir) == tmp_path
    assert isinstance(wandb, Made)
    assert wandb.save_dir == tmp_path
    assert isinstance(mlflow, Made)
    assert mlflow.save_dir == str(tmp_path / "mlruns")
