"""What watches over a training, so that no work is lost: its place, its loss, and Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from tsattn.errors import DivergedError

__all__ = ["BestCheckpoint", "BestInMemory", "ExactResume", "FiniteLoss", "SaveProgress", "StopAt", "StopEarly"]


class ExactResume(Callback):
    """Keeps in the checkpoint what decides the next steps beside weights and optimizer: batches seen, random numbers.

    Lightning would keep the place in the loader itself, but forgets it where the number of steps is asked for (by a
    learning rate schedule, say) before the checkpoint is read.
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None
        self._trainer: Any = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remember the Trainer, whose loader is asked for its place."""
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """The place in the epoch, and the states of the generators of the CPU and of all CUDA devices."""
        return {
            "loader": self._trainer.train_dataloader.state_dict(),
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember them until training goes on."""
        self._restored = state_dict

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take a training that came to its end for one in the middle of its one epoch: it may be longer now."""
        loop = checkpoint["loops"]["fit_loop"]
        for part in loop["epoch_progress"].values():
            part.update(ready=1, started=1, processed=0, completed=0)
        loop["epoch_loop.batch_progress"]["is_last_batch"] = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go to the place in the epoch."""
        if self._restored is not None:
            self._trainer.train_dataloader.load_state_dict(self._restored["loader"])

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Set the random numbers before the first batch."""
        if self._restored is None:
            return
        torch.set_rng_state(self._restored["cpu"].cpu())
        if torch.cuda.is_available() and len(self._restored["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([state.cpu() for state in self._restored["cuda"]])
        self._restored = None


class BestCheckpoint(ModelCheckpoint):
    """The weights of the lowest validation error, as ``best.ckpt``, and those of each validation, as ``last.ckpt``.

    Lightning's own keeps the last only where it is the best, too. A run folder may be moved: what was the best there is
    so still, which Lightning's own forgets.

    Args:
        folder: of the checkpoints.
        monitor: the validation error.
    """

    def __init__(self, folder: Path, monitor: str) -> None:
        super().__init__(folder, "best", monitor=monitor, enable_version_counter=False)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights as the best, if they are, and as the last."""
        super().on_validation_end(trainer, pl_module)
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            trainer.save_checkpoint(Path(str(self.dirpath)) / "last.ckpt")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the best error if its weights are in the folder; a training that goes on in a new one has none."""
        best = Path(str(self.dirpath)) / "best.ckpt"
        if best.exists() and state_dict["best_model_path"]:
            there = {
                "dirpath": self.dirpath,
                "best_model_path": str(best),
                "best_k_models": {str(best): state_dict["best_model_score"]},
                "kth_best_model_path": str(best),
            }
            super().load_state_dict({**state_dict, **there})


class BestInMemory(Callback):
    """The weights of the lowest validation error, for a training that writes no files.

    Args:
        monitor: the validation error.

    Attributes:
        state: the weights, on the CPU; None before a validation error was finite.
        error: that error.
        step: the step that they are of.
    """

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor
        self.state: dict[str, Tensor] | None = None
        self.error = math.inf
        self.step = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the weights, if they are the best."""
        error = float(trainer.callback_metrics[self.monitor])
        if not trainer.sanity_checking and error < self.error:
            self.error, self.step = error, trainer.global_step
            state = pl_module.state_dict()
            self.state = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}


class StopAt(Callback):
    """Ends a training after some steps, whatever its plan.

    Args:
        steps: of the optimizer.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look whether this was the last."""
        trainer.should_stop = trainer.should_stop or trainer.global_step >= self.steps


class StopEarly(EarlyStopping):
    """Ends a training whose validation error has not come down for some validations.

    Args:
        monitor: the validation error.

    Attributes:
        patience: validations without a lower error, after which training ends; None never ends it. It is not part of
            a checkpoint.
    """

    patience: int | None  # type: ignore[assignment]

    def __init__(self, monitor: str) -> None:
        super().__init__(monitor, check_finite=False, check_on_train_epoch_end=False)
        self.patience = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting; the patience is that of this training."""
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End at once what had come to its end before it was killed."""
        trainer.should_stop = trainer.should_stop or self._is_over

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        """Count."""
        if current < self.best_score.to(current.device):
            self.best_score, self.wait_count = current, 0
        else:
            self.wait_count += 1
        return self._is_over, None

    @property
    def _is_over(self) -> bool:
        return self.patience is not None and self.wait_count >= self.patience


class FiniteLoss(Callback):
    """Stops a training whose loss is no longer a number, or has exploded, before its weights are saved.

    The loss is watched on its device; it is looked at in the steps that are logged, where the host waits for the device
    anyway, and before each validation.

    Args:
        most: a loss is taken to have exploded where it exceeds this many times that of the first step, or this number.
    """

    def __init__(self, most: float = 1e4) -> None:
        self.most = most
        self._limit: Tensor | None = None
        self._first_bad: Tensor | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the first step whose loss is bad."""
        loss = outputs["loss"].detach().float()
        if self._limit is None or self._first_bad is None:
            self._limit = self.most * torch.nan_to_num(loss, 1.0).clamp(min=1.0)
            self._first_bad = torch.full((), torch.inf, device=loss.device)
        is_good = loss <= self._limit  # false for what is not a number
        # global_step counts this step already
        self._first_bad = torch.where(is_good, self._first_bad, self._first_bad.clamp(max=float(trainer.global_step)))
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # 0 for never
        if every and trainer.global_step % every == 0:
            self._look(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look before a checkpoint is written."""
        self._look(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the end."""
        self._look(trainer)

    def _look(self, trainer: Trainer) -> None:
        if self._first_bad is None or self._first_bad.isinf():
            return
        step = int(self._first_bad)
        batches = trainer.train_dataloader.batches  # type: ignore[union-attr]  # a TrainingLoader
        epoch, batch = divmod(step * trainer.accumulate_grad_batches - 1, batches.epoch_length)
        raise DivergedError(
            f"training diverged: the loss of step {step} (batch {batch + 1} of epoch {epoch + 1}) is not a number or "
            "has exploded; a lower learning_rate, more warmup_steps or a lower gradient_clip_val may help"
        )


class SaveProgress(Callback):
    """Saves a training every few minutes, at its end, and when Ctrl-C or SIGTERM ends it; a second one ends it at once.

    It saves after a whole step of the optimizer only, so that nothing of a step is done twice or lost.

    Args:
        path: of the checkpoint.
        every: seconds between checkpoints.
    """

    def __init__(self, path: Path, every: float = 300.0) -> None:
        self.path = path
        self.every = every
        self._saved = 0.0
        self._asked = False
        self._before: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over Ctrl-C, and look at the clock."""
        self._saved = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save, if it is time or the end was asked for."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        is_time = time.monotonic() - self._saved > self.every
        is_end = batch_idx + 1 == trainer.num_training_batches
        if is_end and trainer.val_check_batch:  # a validation that falls on the end keeps it
            is_end = (batch_idx + 1) % trainer.val_check_batch != 0
        if is_time or is_end or self._asked or trainer.received_sigterm:
            trainer.save_checkpoint(self.path)
            self._saved = time.monotonic()
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give Ctrl-C back."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _ask(self, number: int, frame: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
