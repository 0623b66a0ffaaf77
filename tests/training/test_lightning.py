"""What the room relies on inside of Lightning: each test fails where a new Lightning does it otherwise."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from tests.training.toys import trainer, windows_of
from tsattn.data import CSVDataModule
from tsattn.errors import DivergedError, UserError
from tsattn.training import ForecastingModule, callbacks
from tsattn.training.callbacks import (
    BestCheckpoint,
    ExactResume,
    FiniteLoss,
    SaveProgress,
    StopEarly,
    Throughput,
    stop_at,
)
from tsattn.training.length import train_as_one_epoch

SMALL = {"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.2}
BATCHES = 6  # in an epoch: 361 training windows of 64


class Diary(Callback):
    def __init__(self) -> None:
        self.notes: list[tuple[str, int]] = []

    def steps(self, what: str) -> list[int]:
        return [step for name, step in self.notes if name == what]

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.notes.append(("epoch", trainer.global_step))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.notes.append(("batch", batch_idx))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.notes.append(("validation", trainer.global_step))


def data(path: Path) -> CSVDataModule:
    windows = windows_of(path)
    windows.setup("fit")
    assert len(windows.train_dataloader()) == BATCHES
    return windows


def module(attention: str | None = None, **options: Any) -> ForecastingModule:
    torch.manual_seed(0)
    return ForecastingModule(SMALL if attention is None else {**SMALL, "attention": attention}, **options)


@pytest.mark.parametrize(
    ("options", "batches", "validations"),
    [
        ({"max_epochs": 2}, 2 * BATCHES, [BATCHES, 2 * BATCHES]),
        ({"max_steps": 8, "val_check_interval": 4}, 8, [4, 8]),
        ({"max_epochs": 2, "check_val_every_n_epoch": 2}, 2 * BATCHES, [2 * BATCHES]),
        ({"max_epochs": 2, "limit_train_batches": 4, "val_check_interval": 0.5}, 8, [2, 4, 6, 8]),
        ({"max_steps": 4, "accumulate_grad_batches": 2, "val_check_interval": 4}, 8, [2, 4]),
        # a step of what is left would be a smaller one
        ({"max_epochs": 1, "accumulate_grad_batches": BATCHES - 1}, BATCHES - 1, [1]),
    ],
)
def test_a_trainer_whose_limits_are_set_after_it_was_made_obeys_them_in_one_epoch(
    options: dict[str, Any], batches: int, validations: list[int], toy_csv: Path, tmp_path: Path
) -> None:
    diary, windows = Diary(), data(toy_csv)
    made = trainer(tmp_path, diary, **options)
    _, windows = train_as_one_epoch(made, windows)
    made.fit(module(), windows)
    assert diary.steps("epoch") == [0], "one epoch, whatever was asked for"
    assert diary.steps("batch") == [*range(batches)]
    assert diary.steps("validation") == validations
    assert made.estimated_stepping_batches == batches // options.get("accumulate_grad_batches", 1)


def saved(folder: Path, csv: Path, steps: int, *more: Callback) -> tuple[Path, Trainer]:
    """A training with all that keeps it, and its last checkpoint."""
    best = BestCheckpoint(folder, "val_mse_scaled")
    stopping = StopEarly("val_mse_scaled")
    callbacks = [best, stopping, SaveProgress(folder / "last.ckpt"), ExactResume(), FiniteLoss(), *more]
    made, windows = trainer(folder, *callbacks, max_steps=steps, val_check_interval=4), data(csv)
    _, windows = train_as_one_epoch(made, windows)
    made.fit(module(), windows)
    return folder / "last.ckpt", made


def test_a_checkpoint_has_the_keys_that_are_read(toy_csv: Path, tmp_path: Path) -> None:
    last, _ = saved(tmp_path, toy_csv, 8)
    content = torch.load(last, weights_only=True)
    assert content["global_step"] == 8
    assert all(name.startswith("network.backbone.") for name in content["state_dict"])
    assert {"ExactResume", "StopEarly"} <= {name.partition("{")[0] for name in content["callbacks"]}
    loop = content["loops"]["fit_loop"]
    assert {"total", "current"} == set(loop["epoch_progress"])
    for part in loop["epoch_progress"].values():
        assert {"ready", "started", "processed", "completed"} <= set(part)
    assert "is_last_batch" in loop["epoch_loop.batch_progress"]
    assert set(content["tsattn"]) == {"format", "task", "scaler", "output", "predictor"}


class AtTheEnd(Callback):
    """Saves once the epoch is over, as a ModelCheckpoint of a user's own may."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self.path)


@pytest.mark.parametrize(("first", "is_over"), [(4, False), (8, True)])
def test_a_training_that_came_to_its_end_goes_on_in_the_middle_of_its_one_epoch(
    first: int, is_over: bool, toy_csv: Path, tmp_path: Path
) -> None:
    """The loop's counts are set so that Lightning takes the next batch, not a new epoch, and ends where it should."""
    over = tmp_path / "over.ckpt"
    last, _ = saved(tmp_path / "one", toy_csv, first, AtTheEnd(over))
    last = over if is_over else last
    loop = torch.load(last, weights_only=True)["loops"]["fit_loop"]
    assert loop["epoch_progress"]["current"]["processed"] == is_over
    assert loop["epoch_loop.batch_progress"]["current"]["completed"] == first
    diary = Diary()
    made, windows = trainer(tmp_path / "on", diary, ExactResume(), max_steps=12, val_check_interval=4), data(toy_csv)
    _, windows = train_as_one_epoch(made, windows)
    made.fit(module(), windows, ckpt_path=last, weights_only=True)
    assert diary.steps("batch") == [*range(first, 12)]
    assert diary.steps("validation") == [step for step in (8, 12) if step > first]


@pytest.mark.parametrize("is_mup", [False, True])
def test_a_training_in_two_parts_is_bit_equal_to_one(toy_csv: Path, tmp_path: Path, is_mup: bool) -> None:
    """Dropout, the order of windows and the optimizer go on: the learning rates are those of the same whole plan.

    It is cut at a validation, and between two, where muP holds the factors of the attention to a size.
    """
    stop = 6 if is_mup else 8
    options = {"attention": "btt", "mup": True, "learning_rate": 1e-2} if is_mup else {}

    def end(folder: Path, *stops: Callback, checkpoint: Path | None = None) -> Path:
        windows, last = data(toy_csv), folder / "last.ckpt"
        # the last checkpoint comes of SaveProgress at the end, or of a validation
        best = BestCheckpoint(folder, "val_mse_scaled")
        made = trainer(folder, best, SaveProgress(last), ExactResume(), *stops, max_steps=12, val_check_interval=4)
        _, windows = train_as_one_epoch(made, windows)
        made.fit(module(**options), windows, ckpt_path=checkpoint, weights_only=True)
        return last

    whole = end(tmp_path / "whole")
    part = end(tmp_path / "part", stop_at(stop))
    assert torch.load(part, weights_only=True)["global_step"] == stop
    torch.manual_seed(99)
    joined = end(tmp_path / "joined", checkpoint=part)
    one, other = (torch.load(path, weights_only=True)["state_dict"] for path in (whole, joined))
    assert all(torch.equal(one[name], other[name]) for name in one)


STEPS = 9


class Keep(Callback):
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


@pytest.mark.gpu
def test_a_training_goes_to_another_device_and_back(toy_csv: Path, tmp_path: Path) -> None:
    whole = train("cpu", toy_csv, tmp_path, (3,))
    there = train("cuda", toy_csv, tmp_path, (6,), tmp_path / "3.ckpt")
    back = train("cpu", toy_csv, tmp_path, (), tmp_path / "6.ckpt")
    # Adam makes much of small gradients, in whose last digits devices differ
    for weights in (there, back):
        assert (weights - whole).norm() <= 1e-2 * whole.norm()


class Clock(Callback):
    """A step takes half a second, each of the first four a minute; a validation, and what follows it, an hour."""

    def __init__(self) -> None:
        self.now = 0.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.now += 60.0 if batch_idx < 4 else 0.5

    def on_validation_batch_start(self, *_: Any) -> None:
        self.now += 3600.0

    def on_validation_end(self, *_: Any) -> None:
        self.now += 3600.0


def test_neither_validation_nor_checkpoints_nor_warming_up_count(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, measured = Clock(), Throughput()
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    made = trainer(tmp_path, clock, measured, max_steps=18, val_check_interval=4, num_sanity_val_steps=2)
    torch.manual_seed(0)
    made.fit(ForecastingModule({"kind": "transformer", "d_model": 8, "num_heads": 2}), windows_of(toy_csv, 16))
    assert clock.now > 8 * 3600
    assert measured.windows_per_second == 16 / 0.5
    assert measured.peak_memory_bytes is None


class Break(Callback):
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx >= 21:
            torch.nn.init.constant_(next(pl_module.parameters()), torch.nan)


def test_a_loss_that_is_not_finite_is_named_by_its_step_and_batch(toy_csv: Path, tmp_path: Path) -> None:
    last, _ = saved(tmp_path / "one", toy_csv, 8)
    for name, resumed in (("whole", None), ("on", last)):
        options = {"accumulate_grad_batches": 4, "val_check_interval": 4}
        made = trainer(tmp_path / name, Break(), FiniteLoss(), ExactResume(), max_steps=20, **options)
        _, windows = train_as_one_epoch(made, data(toy_csv))
        with pytest.raises(DivergedError, match=rf"the loss of step 6 \(batch {21 % BATCHES + 1} of epoch 4\)"):
            made.fit(module(), windows, ckpt_path=resumed, weights_only=True)


def test_what_a_module_cannot_be_trained_with_is_refused(toy_csv: Path, tmp_path: Path) -> None:
    module = ForecastingModule("dlinear", activation_checkpointing=True)
    with pytest.raises(UserError, match="backbone dlinear has no encoder"):
        trainer(tmp_path, max_steps=1).fit(module, windows_of(toy_csv))
    module = ForecastingModule("dlinear")
    with pytest.raises(UserError, match="give the Trainer datamodule="):
        trainer(tmp_path, max_steps=1).fit(module, DataLoader([0.0]))
    trainer(tmp_path, max_steps=1).fit(module, windows_of(toy_csv))
    with pytest.raises(UserError, match="the model was built for"):
        trainer(tmp_path, max_steps=1).fit(module, CSVDataModule(str(toy_csv), context_length=24, prediction_length=12))
