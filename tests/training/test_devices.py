"""A training that goes on on another device comes to the same weights, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from tests.training.toys import trainer, windows_of
from tsattn.training import ForecastingModule
from tsattn.training.callbacks import ExactResume

STEPS = 9


class Keep(Callback):
    """Saves a checkpoint after some steps."""

    def __init__(self, folder: Path, *steps: int) -> None:
        self.folder, self.steps = folder, steps

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        if trainer.global_step in self.steps:
            trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")


def train(device: str, csv: Path, folder: Path, keep: tuple[int, ...], start: Path | None = None) -> Tensor:
    """The weights after all steps on a device, from the start or from a checkpoint."""
    torch.manual_seed(0)
    backbone = {"kind": "transformer", "attention": "mlr", "d_model": 16, "num_heads": 2, "dropout": 0.0}
    made = trainer(folder, Keep(folder, *keep), ExactResume(), accelerator=device, max_steps=STEPS)
    model = ForecastingModule(backbone, learning_rate=1e-2)
    made.fit(model, windows_of(csv), ckpt_path=start, weights_only=False if start else None)
    assert made.global_step == STEPS
    return torch.cat([weight.detach().cpu().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("other", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_training_goes_to_another_device_and_back(toy_csv: Path, tmp_path: Path, other: str) -> None:
    whole = train("cpu", toy_csv, tmp_path, (3,))
    there = train(other, toy_csv, tmp_path, (6,), tmp_path / "3.ckpt")
    back = train("cpu", toy_csv, tmp_path, (), tmp_path / "6.ckpt")
    # Adam makes much of small gradients, in whose last digits devices differ
    tolerance = 1e-6 if other == "cpu" else 1e-2
    for weights in (there, back):
        assert (weights - whole).norm() <= tolerance * whole.norm()
