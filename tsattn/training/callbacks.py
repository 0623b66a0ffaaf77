"""Callbacks of a training: the best weights, exact resuming, ending early, speed and progress."""

from __future__ import annotations

import contextlib
import math
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import LightningModule as Model
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, LambdaCallback, ModelCheckpoint, ProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from typing_extensions import override

from tsattn.backbones.task_network import load_checkpoint, write_checkpoint
from tsattn.errors import DivergedError, UserError, duration

DIVERGED = "training diverged; a lower --model.learning_rate or more --model.warmup_steps may help"

_SAVE_EVERY = 300.0  # seconds
_EXPLODED = 1e4  # times the first loss, or 1
_BAR_EVERY = 10  # steps between drawings: to show a loss the host waits for the device
_SAY_EVERY = 10  # seconds between lines


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's plugin that writes checkpoints all or nothing."""

    @override
    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        write_checkpoint(checkpoint, path)


class BestCheckpoint(ModelCheckpoint):
    """Keep the best `save_top_k` weights (-1: all; None: one, ``best.ckpt``), and the last as ``last.ckpt``."""

    def __init__(self, folder: Path, monitor: str, save_top_k: int | None = None, *, keeps_last: bool = True) -> None:
        self.is_one, self.keeps_last = save_top_k is None, keeps_last
        name, most = ("best", 1) if save_top_k is None else ("step_{step}", save_top_k)
        plain = {"auto_insert_metric_name": False, "enable_version_counter": False}
        super().__init__(folder, name, monitor=monitor, save_top_k=most, **plain)  # type: ignore[arg-type]

    @property
    def best(self) -> Path:
        """Checkpoint of the lowest error, where one is kept."""
        return Path(str(self.dirpath)) / "best.ckpt"

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: Model) -> None:
        super().on_validation_end(trainer, pl_module)
        if self.keeps_last and trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            trainer.save_checkpoint(self.best.with_name("last.ckpt"))

    @override
    def on_train_end(self, trainer: Trainer, pl_module: Model) -> None:
        if self.keeps_last and not trainer.enable_validation:
            trainer.save_checkpoint(self.best.with_name("last.ckpt"))

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the best error if its weights are in the folder; a training resumed in a new folder has none."""
        if not self.is_one:
            super().load_state_dict(state_dict)
        elif self.best.exists() and state_dict["best_model_path"]:
            best, score = str(self.best), state_dict["best_model_score"]
            there = {"dirpath": self.dirpath, "best_model_path": best, "kth_best_model_path": best}
            super().load_state_dict({**state_dict, **there, "best_k_models": {best: score}})


class BestInMemory(Callback):
    """Keep the weights of the lowest validation error on the CPU, for a training that writes no files."""

    def __init__(self, monitor: str) -> None:
        self.monitor, self.error, self.step = monitor, math.inf, 0
        self.state: dict[str, Tensor] | None = None

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: Model) -> None:
        error = float(trainer.callback_metrics[self.monitor])
        if not trainer.sanity_checking and error < self.error:
            self.error, self.step = error, trainer.global_step
            self.state = {name: part.detach().to("cpu", copy=True) for name, part in pl_module.state_dict().items()}


def load_best(
    module: Model, trainer: Trainer, kept: BestCheckpoint | BestInMemory, checkpoint: Path | None
) -> dict[str, Any]:
    """Load the best weights kept; return ``best_step`` and ``validation_error``; a `DivergedError` without any."""
    if isinstance(kept, BestCheckpoint):
        # several processes may have named the folder by their own clocks; the first one's name counts
        if not kept.best.exists():
            run = kept.best.parent.parent
            raise DivergedError(f"no validation error was finite, so {run} has no best checkpoint: {DIVERGED}")
        content, score = load_checkpoint(kept.best), kept.best_model_score
        module.load_state_dict(content["state_dict"])
        return {"best_step": content["global_step"], "validation_error": None if score is None else float(score)}
    if kept.state is None:
        if checkpoint is not None and trainer.global_step == load_checkpoint(checkpoint)["global_step"]:
            raise UserError(f"{checkpoint} has all {trainer.global_step} steps already: give a higher max_steps")
        raise DivergedError(f"no validation error was finite: {DIVERGED}")
    module.load_state_dict(kept.state)
    return {"best_step": kept.step, "validation_error": kept.error}


class SaveProgress(Callback):
    """Save every few minutes after a step, at the end, and on Ctrl-C or SIGTERM; a second signal ends it at once."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_asked = path, False
        self._saved, self._trains = 0.0, False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take over Ctrl-C and SIGTERM from Lightning."""
        numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, self._ask) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None for a handler set in C

    @override
    def on_train_start(self, trainer: Trainer, pl_module: Model) -> None:
        self._saved, self._trains = time.monotonic(), True
        if trainer.world_size == 1 and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._ask)  # Lightning's own handler ends validations and cycles unsaved

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: Model, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        is_time = time.monotonic() - self._saved > _SAVE_EVERY
        every = trainer.enable_validation and trainer.val_check_batch  # a validation at the end saves it
        is_end = batch_idx + 1 == trainer.num_training_batches and not (every and (batch_idx + 1) % every == 0)
        if is_time or is_end or self.is_asked or trainer.received_sigterm:
            trainer.save_checkpoint(self.path)
            self._saved = time.monotonic()
        if self.is_asked and not trainer.received_sigterm:  # of which Lightning tells all processes
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: Any) -> None:
        if self.is_asked or not self._trains:
            raise KeyboardInterrupt
        self.is_asked = True


class ExactResume(Callback):
    """Keep in the checkpoint what Lightning forgets: batches seen and random numbers."""

    _restored: dict[str, Any] | None = None
    _trainer: Any

    @override
    def state_dict(self) -> dict[str, Any]:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {"loader": self._trainer.train_dataloader.state_dict(), "cpu": torch.get_rng_state(), "cuda": cuda}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: Model, checkpoint: dict[str, Any]) -> None:
        """Resume a finished training inside its one epoch; else Lightning would begin a second one and stop."""
        loop = checkpoint["loops"]["fit_loop"]
        for part in loop["epoch_progress"].values():
            part.update(ready=1, started=1, processed=0, completed=0)
        loop["epoch_loop.batch_progress"]["is_last_batch"] = False

    @override
    def setup(self, trainer: Trainer, pl_module: Model, stage: str) -> None:
        self._trainer = trainer  # before any callback may save a checkpoint

    @override
    def on_train_start(self, trainer: Trainer, pl_module: Model) -> None:
        if self._restored is not None:
            self._trainer.train_dataloader.load_state_dict(self._restored["loader"])

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: Model, batch: Any, batch_idx: int) -> None:
        if self._restored is None:
            return
        torch.set_rng_state(self._restored["cpu"].cpu())
        if torch.cuda.is_available() and len(self._restored["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([state.cpu() for state in self._restored["cuda"]])
        # Lightning counts one too few for loggers if the checkpoint is of a validation that the new plan leaves out
        trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step
        self._restored = None


class StopEarly(EarlyStopping):
    """Lightning's early stopping, with the patience of this training, not of a checkpoint.

    Errors above the lowest by at most the share `tolerance` do not count: they fall again with the learning rate.
    The count starts again if a training that has ended is resumed with other `limits` of its length.
    """

    def __init__(
        self, monitor: str, min_delta: float = 0.0, patience: int = 3, tolerance: float = 0.0, limits: object = None
    ) -> None:
        super().__init__(monitor, min_delta, patience, check_finite=False, check_on_train_epoch_end=False)
        self.tolerance, self.limits = tolerance, limits

    @override
    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        best = self.best_score.to(current)
        if self.tolerance and best <= current <= best + self.tolerance * best.abs():
            return False, None
        return super()._evaluate_stopping_criteria(current)

    @override
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "limits": self.limits}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        has_ended = state_dict["wait_count"] >= state_dict["patience"]
        count = 0 if has_ended and state_dict.get("limits", self.limits) != self.limits else state_dict["wait_count"]
        super().load_state_dict({**state_dict, "patience": self.patience, "wait_count": count})

    @override
    def on_train_start(self, trainer: Trainer, pl_module: Model) -> None:
        """End at once a training that had ended before it was killed."""
        trainer.should_stop = trainer.should_stop or self.wait_count >= self.patience


def stop_at(steps: int) -> Callback:
    """Return a callback that ends a training after these optimizer steps, whatever its plan."""

    def stop(trainer: Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step >= steps

    return LambdaCallback(on_train_batch_end=stop)


class FiniteLoss(Callback):
    """Stop a training whose loss is not finite, or has exploded; the host checks at logged steps and validations."""

    _watched: tuple[Tensor, Tensor] | None = None  # the limit, and the first bad batch of the training, from 1

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: Model, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs["loss"].detach().float()
        if self._watched is None:
            limit = _EXPLODED * torch.nan_to_num(loss, 1.0).clamp(min=1.0)
            self._watched = limit, torch.full((), torch.inf, device=loss.device)
        limit, first_bad = self._watched  # NaN is not below the limit either
        self._watched = limit, torch.where(loss <= limit, first_bad, first_bad.clamp(max=batch_idx + 1.0))
        every: int = trainer.log_every_n_steps * trainer.accumulate_grad_batches  # type: ignore[attr-defined]
        if every and (batch_idx + 1) % every == 0:  # 0 for never
            self.on_validation_start(trainer, pl_module)

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: Model) -> None:
        if self._watched is None or self._watched[1].isinf():
            return
        number = int(self._watched[1]) - 1
        batches = trainer.train_dataloader.batches  # type: ignore[union-attr]  # a TrainingLoader
        step, (epoch, batch) = number // trainer.accumulate_grad_batches + 1, divmod(number, batches.epoch_length)
        raise DivergedError(
            f"training diverged: the loss of step {step} (batch {batch + 1} of epoch {epoch + 1}) is not a number or "
            "has exploded; a lower learning_rate, more warmup_steps or a lower gradient_clip_val may help"
        )

    on_train_end = on_validation_start


class Throughput(Callback):
    """Measure the seconds of a training, and its speed between validations, unlike Lightning's ThroughputMonitor."""

    windows_per_second: float | None = None  # of all processes together, the median over stretches
    peak_memory_bytes: int | None = None  # most that was allocated on the CUDA device of this process
    _earlier = 0.0  # seconds up to the checkpoint that is resumed

    def __init__(self) -> None:
        self._rates: list[float] = []
        self._windows, self._started, self._made = 0, math.nan, time.perf_counter()

    @override
    def state_dict(self) -> dict[str, Any]:
        seconds = round(self._earlier + time.perf_counter() - self._made, 3)
        rate = {"windows_per_second": self.windows_per_second, "peak_memory_bytes": self.peak_memory_bytes}
        return {"seconds": seconds, "earlier_seconds": self._earlier, **rate}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier, _, self.windows_per_second, self.peak_memory_bytes = state_dict.values()

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: Model, batch: Any, batch_idx: int) -> None:
        if math.isnan(self._started):
            if (device := trainer.strategy.root_device).type == "cuda":
                torch.cuda.synchronize(device)
                torch.cuda.reset_peak_memory_stats(device)
            self._windows, self._started = 0, time.perf_counter()

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: Model, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._windows += len(batch) * trainer.world_size

    @override
    def on_validation_start(self, trainer: Trainer, pl_module: Model) -> None:
        if math.isnan(self._started):  # a validation before the first step, or one at the very end
            return
        if (device := trainer.strategy.root_device).type == "cuda":
            torch.cuda.synchronize(device)
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0, torch.cuda.max_memory_allocated(device))
        self._rates.append(self._windows / (time.perf_counter() - self._started))
        self._started, self.windows_per_second = math.nan, round(statistics.median(self._rates), 1)

    on_train_end = on_validation_start


class Progress(ProgressBar):
    """Show steps, loss, validation error and time left: as a bar, or as a line every few seconds through `say`."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.say, self._is_enabled = say, True
        self._bar: Tqdm | None = None
        self._start, self._last, self._first, self._steps = 0.0, 0.0, 0, 0  # the total is 0 if time alone ends it

    @override
    def disable(self) -> None:
        self._is_enabled = False

    @override
    def on_train_start(self, trainer: Trainer, pl_module: Model) -> None:
        self._start = self._last = time.monotonic()
        self._first, total = trainer.global_step, trainer.estimated_stepping_batches
        self._steps = int(total) if total * trainer.accumulate_grad_batches < 10**11 else 0
        if self.say is None and self._is_enabled:
            self._bar = Tqdm(total=self._steps or None, initial=self._first, desc="training", unit="step")

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: Model, outputs: Any, batch: Any, batch_idx: int) -> None:
        now, step, steps = time.monotonic(), trainer.global_step, self._steps
        if step % _BAR_EVERY == 0 or step == steps:
            self.on_validation_end(trainer, pl_module)
        if self.say is None or not self._is_enabled or now - self._last < _SAY_EVERY or step in (self._first, steps):
            return
        self._last = now
        line = f"step {step:,} of {steps:,}" if steps > 0 else f"step {step:,}"
        for name, value in self._values(trainer, pl_module).items():
            line += f"; {'loss' if name == 'train_loss' else 'validation error'} {value:.4g}"
        left = (steps - step) * (now - self._start) / (step - self._first)
        self.say(f"{line}; {duration(left)} left" if steps > 0 else line)

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: Model) -> None:
        if self._bar is not None:
            values = self._values(trainer, pl_module).items()
            self._bar.set_postfix_str(", ".join(f"{name}={value:.4g}" for name, value in values), refresh=False)
            self._bar.update(trainer.global_step - self._bar.n)

    @override
    def on_train_end(self, trainer: Trainer, pl_module: Model, exception: BaseException | None = None) -> None:
        if self._bar is not None:
            self._bar.close()

    on_exception = on_train_end

    def _values(self, trainer: Trainer, pl_module: Model) -> dict[str, float]:
        names = ("train_loss", f"val_{getattr(pl_module, 'selection', '')}")
        return {name: trainer.callback_metrics[name].item() for name in names if name in trainer.callback_metrics}
