"""A training step gives the device work and waits for nothing: no number travels back to the host."""

import traceback
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.toys import trainer, windows_of
from tsattn.data import CSVDataModule
from tsattn.training import ForecastingModule
from tsattn.training.callbacks import FiniteLoss, Progress
from tsattn.training.length import train_as_one_epoch

LOOKS = 10  # steps between two lines of the curve, two looks of FiniteLoss, and two pictures of the bar
STEPS = 22  # fewer than an epoch has, so that validation comes at the end

# what reads a number of the device, finds a size there, or (lift_fresh) makes a tensor of numbers of the host
WAITING = (
    torch.ops.aten._local_scalar_dense,
    torch.ops.aten.nonzero,
    torch.ops.aten.equal,
    torch.ops.aten.is_nonzero,
    torch.ops.aten.masked_select,
    torch.ops.aten.unique_consecutive,
    torch.ops.aten._unique2,
    torch.ops.aten.lift_fresh,
)
INDEXING = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_, torch.ops.aten._index_put_impl_)


class Watch(TorchDispatchMode):
    """Notes each operation of a training step that would wait for a device, with the step and where it was called."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.trainer = trainer
        self.found: list[tuple[int, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        by_mask = packet in INDEXING and any(index is not None and index.dtype == torch.bool for index in args[1])
        if (packet in WAITING or by_mask) and self.trainer.training:
            stack = [frame for frame in traceback.extract_stack() if frame.filename != __file__]
            # the loader works on the host
            if not any("/tsattn/data/" in frame.filename or "fetchers" in frame.filename for frame in stack):
                place = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in stack[:-9:-1])
                self.found.append((self.trainer.global_step, f"{packet} at {place}"))
        return func(*args, **(kwargs or {}))


class Forbid(Callback):
    """Lets CUDA raise an error where a step waits that neither logs nor looks."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step + 1
        torch.cuda.set_sync_debug_mode("error" if 2 < step < STEPS and step % LOOKS else "default")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        torch.cuda.set_sync_debug_mode("default")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        torch.cuda.set_sync_debug_mode("default")


class Impatient(Callback):
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        outputs["loss"].item()


MLR = {"kind": "mlr", "ranks": [4, 2, 2], "scaling": "mup"}
KINDS: dict[str, Any] = {
    "mlr": MLR,
    "mlr by the calendar": {"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["month", "day"]}},
    "mlr by change points": {"kind": "mlr", "ranks": [4, 4], "blocks": {"change_points": [1, 4]}},
    "standard": "standard",
    "swa": {"kind": "swa", "window_size": 3},
    "global_swa": {"kind": "global_swa", "window_size": 3},
    "btt": "btt",
    "bilinear_mlr": "bilinear_mlr",
    "mlbtc": "mlbtc",
    "identity": "identity",
    "uniform": "uniform",
    "fixed_mixing": "fixed_mixing",
}


def model(attention: Any = MLR, **more: Any) -> ForecastingModule:
    backbone = {"kind": "transformer", "d_model": 16, "num_heads": 2, "attention": attention, "positions": "rotary"}
    return ForecastingModule(backbone, mup=True, quantiles=[0.1, 0.5, 0.9], **more)


def data(toy_frame: pd.DataFrame, tmp_path: Path) -> CSVDataModule:
    toy_frame.iloc[::7, 0] = None
    toy_frame.to_csv(tmp_path / "gaps.csv")
    windows = windows_of(tmp_path / "gaps.csv", 16)
    windows.setup("fit")
    return windows


def watched(tmp_path: Path, *callbacks: Callback, **more: Any) -> Trainer:
    length = {"max_epochs": 1, "limit_train_batches": STEPS}
    looks = {"gradient_clip_val": 1.0, "log_every_n_steps": LOOKS, "enable_progress_bar": True}
    return trainer(tmp_path, FiniteLoss(), Progress(), *callbacks, **length, **looks, **more)


def waits(found: list[tuple[int, str]]) -> set[str]:
    """What waits in the steps that neither log nor look; the first, which fills caches, and the last are left out."""
    # after the optimizer, global_step counts the step already
    return {what for step, what in found if 1 < step < STEPS - 1 and step % LOOKS and (step + 1) % LOOKS}


@pytest.mark.parametrize(("is_patient", "precision"), [(True, "32-true"), (True, "bf16-mixed"), (False, "32-true")])
def test_no_operation_of_a_step_waits(
    toy_frame: pd.DataFrame, tmp_path: Path, is_patient: bool, precision: Any
) -> None:
    extra = [] if is_patient else [Impatient()]
    fitted, windows = watched(tmp_path, *extra, precision=precision), data(toy_frame, tmp_path)
    _, windows = train_as_one_epoch(fitted, windows)
    with Watch(fitted) as watch:
        fitted.fit(model(warmup_steps=3), windows)
    assert fitted.global_step == STEPS
    (bar,) = (callback for callback in fitted.callbacks if isinstance(callback, Progress))
    assert bar._steps == STEPS, "a training of epochs has a total, too"
    shown = bar._values(fitted, fitted.lightning_module)
    assert set(shown) == {"train_loss", "val_crps_scaled"}
    assert shown["train_loss"] == fitted.callback_metrics["train_loss"].item()
    assert watch.found, "the steps that look are seen to look"
    if is_patient:
        assert waits(watch.found) == set()
    else:
        assert all("_local_scalar_dense" in what for what in waits(watch.found))
        assert waits(watch.found)


# on a CPU blocks that the data make are laid out batch by batch, by the host itself; Triton needs no such plan
@pytest.mark.parametrize("kind", ["global_swa", "mlbtc"])
def test_no_attention_waits(toy_frame: pd.DataFrame, tmp_path: Path, kind: str) -> None:
    fitted, windows = watched(tmp_path), data(toy_frame, tmp_path)
    _, windows = train_as_one_epoch(fitted, windows)
    with Watch(fitted) as watch:
        fitted.fit(model(KINDS[kind], activation_checkpointing=True), windows)
    assert fitted.global_step == STEPS
    assert waits(watch.found) == set()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_sees_no_step_wait(toy_frame: pd.DataFrame, tmp_path: Path, kind: str) -> None:
    fitted = watched(tmp_path, Forbid(), accelerator="cuda", precision="bf16-mixed")
    windows = data(toy_frame, tmp_path)
    _, windows = train_as_one_epoch(fitted, windows)
    fitted.fit(model(KINDS[kind], warmup_steps=3), windows)
    assert fitted.global_step == STEPS


@pytest.mark.gpu
def test_cuda_sees_a_step_wait(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    fitted = watched(tmp_path, Forbid(), Impatient(), accelerator="cuda", precision="bf16-mixed")
    windows = data(toy_frame, tmp_path)
    _, windows = train_as_one_epoch(fitted, windows)
    with pytest.raises(RuntimeError, match="synchroniz"):
        fitted.fit(model(warmup_steps=3), windows)
