"""One trial: a configuration is trained, and its validation error is what counts. The test part is never read."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from optuna import TrialPruned
from optuna.trial import Trial
from optuna_integration import PyTorchLightningPruningCallback

from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.ops import executed_flops
from tsattn.training import ForecastingModule
from tsattn.tuning.rolling import Fold
from tsattn.tuning.search import Search
from tsattn.tuning.worker import REASON

__all__ = ["Build", "Built", "run_trial"]

MONITOR = "val_mse"


@dataclass(frozen=True)
class Built:
    """What a configuration means, ready to be trained.

    Attributes:
        model: built for the task of the data.
        data: set up.
        trainer: without checkpoints, loggers and bar.
        seed: that everything was seeded with before.
    """

    model: ForecastingModule
    data: ForecastDataModule
    trainer: Trainer
    seed: int | None


Build = Callable[[Mapping[str, Any], Fold | None], Built]


def run_trial(trial: Trial, config: Mapping[str, Any], *, search: Search, build: Build, folds: int) -> list[float]:
    """Train a configuration and return its objectives, the validation error first.

    The error is the lowest validation MSE of a training, on the scale of the data, as `fit` chooses its checkpoint by;
    with folds, its mean over them. What else is known of the trial is written to its attributes: ``error``, ``errors``
    of the folds, ``step`` of the lowest, ``parameters``, ``flops`` of a forward pass of one window, ``seconds``,
    ``memory`` (the peak in bytes: on an accelerator what was allocated there, else what the process held) and ``seed``.

    Raises:
        TrialPruned: if it is behind the others, diverged, ran out of memory, is refused, or breaks a constraint that is
            known before it is trained; the attribute ``reason`` says which.
        KeyboardInterrupt: if it was interrupted.
    """
    errors: list[float] = []
    curve = _Curve()
    sizes: dict[str, float] = {}
    started = time.perf_counter()
    with _pruned_by_failure(trial), _peak_memory() as peak:
        for number in range(max(1, folds)):
            built = build(config, Fold(number, folds) if folds else None)
            if not sizes:
                sizes = _sizes(built, flops_needed="flops" in (*search.objectives, *search.constraints))
                _note(trial, seed=built.seed, device=built.trainer.strategy.root_device.type, **sizes)
                _constrain(trial, search, sizes)
            curve = _Curve()
            prunes = search.pruner != "none" and len(search.objectives) == 1
            callbacks: list[Callback] = built.trainer.callbacks  # type: ignore[attr-defined]
            callbacks += [curve, *([_StepPruning(trial, MONITOR)] if prunes and not folds else [])]
            try:
                built.trainer.fit(built.model, datamodule=built.data)
            except SystemExit as stop:  # how Lightning ends a fit on Ctrl-C and on SIGTERM
                raise KeyboardInterrupt from stop
            if curve.lowest is None:
                raise _FailedError("no validation was reached")
            errors.append(curve.lowest)
            if prunes and folds:
                trial.report(sum(errors) / len(errors), number)
                if number + 1 < folds and trial.should_prune():
                    raise TrialPruned(f"behind the median after {number + 1} of {folds} origins")
        error = sum(errors) / len(errors)
    values = {
        "error": error,
        "seconds": round(time.perf_counter() - started, 2),
        "memory": peak(),
        **sizes,
    }
    _note(trial, errors=errors, step=curve.step, **values)
    _constrain(trial, search, {"memory": values["memory"]})
    return [values[name] for name in search.objectives]


class _FailedError(Exception):
    """A trial cannot go on; the message says why."""


class _Curve(Callback):
    """Keeps the lowest validation error and ends a training that has none any more."""

    def __init__(self) -> None:
        self.lowest: float | None = None
        self.step = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        error = float(trainer.callback_metrics[MONITOR])
        if not math.isfinite(error):
            raise _FailedError(f"diverged: the validation error at step {trainer.global_step} is not finite")
        if self.lowest is None or error < self.lowest:
            self.lowest, self.step = error, trainer.global_step


class _StepPruning(PyTorchLightningPruningCallback):  # type: ignore[misc]  # has no types
    """Optuna's callback, which reports one value an epoch, told steps: an epoch may hold several validations."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        try:
            super().on_validation_end(trainer, _Stepwise(trainer.global_step))
        except TrialPruned as pruned:
            raise TrialPruned(f"behind the median at step {trainer.global_step}") from pruned


@dataclass(frozen=True)
class _Stepwise:
    """What the callback asks a module for."""

    current_epoch: int


@contextlib.contextmanager
def _pruned_by_failure(trial: Trial) -> Iterator[None]:
    """Prune a trial that cannot be trained, and note why; a sampler learns from it as from a bad one."""
    try:
        yield
    except TrialPruned as pruned:
        trial.set_user_attr(REASON, str(pruned))
        raise
    except UserError as error:
        _prune(trial, f"refused: {error}", error)
    except _FailedError as error:
        _prune(trial, str(error), error)
    except MemoryError as error:
        _prune(trial, "out of memory", error)
    except RuntimeError as error:  # torch.OutOfMemoryError is one; the CPU's allocator has no class of its own
        if not (isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)):
            raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        _prune(trial, "out of memory", error)


def _prune(trial: Trial, reason: str, error: BaseException) -> None:
    trial.set_user_attr(REASON, reason)
    raise TrialPruned(reason) from error


def _constrain(trial: Trial, search: Search, sizes: Mapping[str, float]) -> None:
    """Tell the sampler how far a trial is above its limits; one that is needs no training.

    Raises:
        TrialPruned: if it is above one; not for memory, which is known when all is done.
    """
    for name, size in sizes.items():
        most = search.constraints.get(name)
        if most is not None:
            trial.set_constraint(name, size - most)
            if size > most and name != "memory":
                raise TrialPruned(f"{size:,.0f} {name}, above the {most:,.0f} allowed")


def _note(trial: Trial, **values: Any) -> None:
    for name, value in values.items():
        trial.set_user_attr(name, value)


def _sizes(built: Built, flops_needed: bool) -> dict[str, float]:
    """Parameters and flops; without flops where an attention runs on an accelerator only, unless they are needed."""
    sizes: dict[str, float] = {"parameters": sum(p.numel() for p in built.model.parameters() if p.requires_grad)}
    try:
        sizes["flops"] = _flops(built)
    except UserError:
        if flops_needed:
            raise
    return sizes


@torch.no_grad()
def _flops(built: Built) -> int:
    """Flops of a forward pass of one window on a CPU; the random generator is left as it was."""
    window = built.data.windows("train").__getitems__([0])
    was_training = built.model.training
    built.model.eval()
    with torch.random.fork_rng(devices=[]):
        flops = executed_flops(lambda: built.model(window))
    built.model.train(was_training)
    return flops


@contextlib.contextmanager
def _peak_memory() -> Iterator[Callable[[], int]]:
    """What gives the most bytes held since here: on a CUDA device if there is one, else by the process."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        yield torch.cuda.max_memory_allocated
        return
    status = Path("/proc/self/status")
    with contextlib.suppress(OSError):  # where this is not allowed, the peak is that since the process began
        Path("/proc/self/clear_refs").write_text("5")

    def peak() -> int:
        if status.exists():
            line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
            return int(line.split()[1]) * 1024
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024

    yield peak
