"""Options of Lightning's Trainer, the callbacks and loggers that a run keeps, its precision and its optimizer."""

import inspect
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import DoublePrecision, HalfPrecision, MixedPrecision, Precision
from torch import Tensor

from tests.toy_windows import rows, toy_task, toy_windows
from tests.training.toys import trainer, windows_of
from tsattn.batch import WindowUnits
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.predictors.network import NetworkPredictor
from tsattn.training import ForecastingModule, TrainerOptions, trainer_options
from tsattn.training.loggers import attached_loggers
from tsattn.training.trainer_options import TRAINER_DEFAULTS, default_precision


def words(csv: Path, run: Path) -> list[str]:
    sizes = ["--data.context_length=48", "--data.prediction_length=12", "--trainer.accelerator=cpu"]
    tiny = "--model.backbone={kind: patchtst, d_model: 8, num_heads: 2, num_layers: 1}"
    return ["fit", "--data=CSVDataModule", f"--data.path={csv}", *sizes, tiny, f"--run={run}"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit_test_batches": 2}, "limit_test_batches cannot be set: test errors always cover all windows"),
        ({"overfit_batches": 1}, "overfit_batches cannot be set: test errors always cover all windows"),
        ({"limit_predict_batches": 1}, "limit_predict_batches cannot be set: every series is forecast"),
        ({"barebones": True}, "barebones cannot be set: a run writes its curve and checkpoints"),
        ({"limit_val_batches": 0}, "limit_val_batches must be above 0: validation chooses the checkpoint"),
        ({"val_check_interval": 1.5}, "val_check_interval must be a number of steps, at least 1, or a share"),
        ({"val_check_interval": "1h"}, "val_check_interval must be a number of steps or a share of an epoch, not 1h"),
        ({"gradient_clip_val": -1.0}, r"gradient_clip_val must be at least 0 \(0 or null for no clipping\), not -1"),
        ({"max_time": "00:00:00:00"}, "max_time must be above 0: there is nothing to train"),
        ({"use_distributed_sampler": False, "devices": 2}, "share windows out: --trainer.devices must be 1, not 2"),
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


pytestmark = pytest.mark.usefixtures("undrawn")

SMALL = {"kind": "transformer", "d_model": 16, "num_heads": 2, "dropout": 0.0}
BF16 = "bf16-mixed"
FULL = "32-true"


@pytest.mark.parametrize(
    ("capabilities", "accelerator", "devices", "precision"),
    [
        ([], "auto", 1, FULL),
        ([(9, 0)], "gpu", "auto", BF16),
        ([(9, 0)], "cpu", 1, FULL),
        ([(8, 0)], "auto", 1, FULL),
        ([(9, 0), (8, 0)], "cuda", [1], FULL),
        ([(9, 0), (8, 0)], "cuda", "0,", BF16),
        ([(9, 0), (8, 0)], "cuda", -1, FULL),
        ([(9, 0)], "cuda", "many", FULL),
    ],
)
def test_bfloat16_is_the_default_where_all_devices_are_new(
    capabilities: list[tuple[int, int]], accelerator: Any, devices: Any, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capabilities))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capabilities[device])
    assert default_precision(accelerator, devices) == precision


@pytest.mark.parametrize(
    "plugin",
    [MixedPrecision("bf16-mixed", "cpu"), HalfPrecision("bf16-true"), HalfPrecision("16-true"), DoublePrecision()],
)
def test_units_of_windows_are_never_cast(plugin: Precision) -> None:
    mean = 10_000 + torch.rand(4, 3, dtype=torch.float64)
    batch = toy_windows(toy_task(), dtype=torch.float32)
    batch.units = WindowUnits(mean, mean / 3e5)
    there = rows(plugin.convert_input(batch).to("cpu"), 1, 3)
    assert there.past.dtype != torch.float32 or isinstance(plugin, MixedPrecision)
    assert torch.equal(there.units.mean, mean[1:3])
    assert torch.equal(there.units.scale, mean[1:3] / 3e5)


class Autocast:
    """Notes in which precision networks are called, in a training and after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[bool] = []
        for cls in (ForecastingModule, NetworkPredictor):
            monkeypatch.setattr(cls, "forward", self._noted(cls.forward))

    def _noted(self, forward: Any) -> Any:
        def noted(module: Any, batch: Any) -> Tensor:
            self.seen.append(torch.is_autocast_enabled("cpu"))
            return forward(module, batch)

        return noted


def test_a_run_keeps_the_precision_that_it_was_trained_in(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, asked = tmp_path / "run", []

    def new_device(accelerator: str, devices: Any) -> str:
        asked.append((accelerator, devices))
        return BF16

    monkeypatch.setattr(trainer_options, "default_precision", new_device)
    words = ["--data=CSVDataModule", f"--data.path={toy_csv}", "--data.context_length=48", "--data.prediction_length=6"]
    words += ["--model.backbone.d_model=16", "--trainer.accelerator=cpu", "--trainer.max_steps=2"]
    assert main(["fit", *words, f"--run={run}"]) == 0
    assert asked == [("cpu", 1)]
    said = capsys.readouterr().out
    assert "parameters, on cpu, bf16-mixed\n" in said
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["trainer"]["precision"] == BF16

    monkeypatch.setattr(trainer_options, "default_precision", lambda *_: FULL)
    autocast = Autocast(monkeypatch)
    assert main(["test", f"--run={run}"]) == 0
    assert autocast.seen
    assert set(autocast.seen) == {True}
    mse = json.loads((run / "metrics.json").read_text())["test"]["patchtst_standard"]["mse_scaled"]
    assert f" {mse:.3g} " in capsys.readouterr().out

    # that of a plugin takes no other beside it
    monkeypatch.setattr(trainer_options, "default_precision", new_device)
    extra = tmp_path / "plugin.yaml"
    extra.write_text("trainer: {plugins: {class_path: lightning.pytorch.plugins.DoublePrecision}}\n", encoding="utf-8")
    assert main(["fit", *words, f"--run={tmp_path / 'plugin'}", f"--config={extra}"]) == 0
    assert yaml.safe_load((tmp_path / "plugin" / "config.yaml").read_text())["trainer"]["precision"] is None


class Steps(Callback):
    """Notes the optimizer, and the gradients that it has taken a step along."""

    def __init__(self) -> None:
        self.gradients: list[Tensor] = []
        self.is_fused: bool | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.is_fused = trainer.optimizers[0].defaults["fused"]
            gradients = [weight.grad for weight in pl_module.parameters() if weight.grad is not None]
            self.gradients.append(torch.cat([gradient.flatten() for gradient in gradients]))


def steps(toy_csv: Path, tmp_path: Path, *, batch_size: int = 16, max_steps: int = 1, **more: Any) -> Steps:
    torch.manual_seed(0)
    seen = Steps()
    fitted = trainer(tmp_path, seen, max_steps=max_steps, limit_val_batches=0, **more)
    fitted.fit(ForecastingModule(SMALL, warmup_steps=0), windows_of(toy_csv, batch_size))
    return seen


@pytest.mark.parametrize(("precision", "algorithm"), [(FULL, None), (BF16, "norm"), ("bf16-true", "value")])
def test_the_optimizer_is_fused_and_its_gradients_clipped(
    toy_csv: Path, tmp_path: Path, precision: Any, algorithm: str | None
) -> None:
    free = steps(toy_csv, tmp_path, precision=precision)
    clipped = steps(toy_csv, tmp_path, precision=precision, gradient_clip_val=1e-2, gradient_clip_algorithm=algorithm)
    assert free.is_fused
    assert clipped.is_fused
    whole, part = free.gradients[0], clipped.gradients[0]
    assert whole.norm() > 0.1
    expected = whole.clamp(-1e-2, 1e-2) if algorithm == "value" else whole * 1e-2 / whole.norm()
    rtol = 2e-2 if precision == "bf16-true" else 1e-4
    torch.testing.assert_close(part, expected, rtol=rtol, atol=1e-6)


def test_gradients_of_a_scaled_loss_are_clipped_unscaled_by_an_optimizer_that_is_not_fused(
    toy_csv: Path, tmp_path: Path
) -> None:
    plain = steps(toy_csv, tmp_path, precision=FULL, gradient_clip_val=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    half = steps(toy_csv, tmp_path, plugins=[MixedPrecision("16-mixed", "cpu", scaler)], gradient_clip_val=1e-2)
    assert plain.is_fused
    assert not half.is_fused
    torch.testing.assert_close(half.gradients[0], plain.gradients[0], rtol=0.05, atol=2e-4)
