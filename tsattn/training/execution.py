"""Where a process computes, and how it avoids side effects: device, precision, random numbers, Lightning's messages."""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from tsattn.batch import Batch
from tsattn.errors import UserError

if TYPE_CHECKING:  # forecasting alone, on a CPU, needs no Lightning
    from lightning.pytorch.plugins import Precision

    from tsattn.training.trainer_options import TrainerOptions

COMPUTING = ("accelerator", "precision", "plugins", "deterministic", "benchmark")  # options that a forecast obeys
_NOISE = (
    *(r".*does not have many workers.*", r".*The number of training batches.*", r".*Experiment logs directory.*"),
    *(r".*Checkpoint directory .* exists and is not empty.*", r".*LeafSpec.*", r".*lr_scheduler.step\(\).*"),
    *(r".*callbacks used to create the checkpoint need to be provided.*", r".*GPU available but not used.*"),
    r".*`srun` command is available.*",  # on every machine of a cluster
)


class Execution:
    """Device and precision, as Lightning's Trainer has them, on one device."""

    device: torch.device
    _precision: Precision | None

    def __init__(self, trainer: TrainerOptions) -> None:
        self.options, given = trainer, trainer.arguments
        self.device, self._precision = torch.device("cpu"), None
        has_others = torch.cuda.is_available() or torch.backends.mps.is_available()
        is_cpu = given["accelerator"] == "cpu" or (given["accelerator"] == "auto" and not has_others)
        asked = [given[name] for name in ("plugins", "deterministic", "benchmark")]
        if is_cpu and given["precision"] in (None, "32-true") and not any(asked):
            return
        from tsattn.training.trainer_options import build_trainer

        silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        obeyed = {name: given[name] for name in COMPUTING}
        with quiet_lightning():
            made = build_trainer({**obeyed, **dict.fromkeys(silent, False), "callbacks": None, "devices": 1})
        # its loops compute by three calls of this plugin, and so does `forecaster`
        self.device, self._precision = made.strategy.root_device, made.precision_plugin

    def forecaster(
        self, module: nn.Module, forecast: Callable[[Batch], Tensor] | None = None, *, exact: bool = False
    ) -> Callable[[Batch], Tensor]:
        """Return a function that forecasts a batch with a module, moved to the device, in eval mode.

        The forecast comes back to the CPU. A module without parameters keeps its own precision. An exact one computes
        on the host in the precision of its weights. `forecast` calls the module in another form.
        """
        keeps = exact or next(module.parameters(), None) is None
        device, precision = torch.device("cpu") if exact else self.device, None if keeps else self._precision
        module = module.to(device)
        module = (module if precision is None else precision.convert_module(module)).eval()
        call = forecast or module

        @torch.inference_mode()
        def on_device(batch: Batch) -> Tensor:
            there = batch.to(device, non_blocking=True)
            if precision is not None:
                there = precision.convert_input(there)
            try:
                with contextlib.nullcontext() if precision is None else precision.forward_context():
                    out: Tensor = call(there)
            except torch.OutOfMemoryError as error:
                raise UserError(
                    f"out of device memory for a forecast of {len(batch)} windows at once: try "
                    f"--data.eval_batch_size {max(1, len(batch) // 2)}"
                ) from error
            return out.cpu()

        return on_device


_RANDOM = threading.RLock()


@contextlib.contextmanager
def own_random_state(seed: int | None = None) -> Iterator[None]:
    """Draw from the generators of torch, numpy and Python, then restore them; other threads wait here."""
    with _RANDOM, torch.random.fork_rng():
        python, array = random.getstate(), np.random.get_state()  # noqa: NPY002  # what callbacks of users draw from
        if seed is not None:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)  # noqa: NPY002


_QUIET, _silence = threading.Lock(), contextlib.ExitStack()
_inside = 0  # of all threads: muting affects the whole process


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Mute Lightning's messages about itself, until the last thread that asked for it is done."""
    global _inside
    with _QUIET:
        if not _inside:
            _silence.enter_context(_silenced())
        _inside += 1
    try:
        yield
    finally:
        with _QUIET:
            _inside -= 1
            if not _inside:
                _silence.close()


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    levels = {logger: logger.level for logger in map(logging.getLogger, ("lightning.pytorch", "lightning.fabric"))}
    excepthook = threading.excepthook

    def without_writers(failed: threading.ExceptHookArgs) -> None:
        if type(failed.thread).__name__ != "_AsyncWriterThread":  # TensorBoard raises it again in the main thread
            excepthook(failed)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="lightning")
        for pattern in _NOISE:
            warnings.filterwarnings("ignore", pattern)
        try:
            for logger in levels:
                logger.setLevel(logging.WARNING)
            threading.excepthook = without_writers
            yield
        finally:
            threading.excepthook = excepthook
            for logger, level in levels.items():
                logger.setLevel(level)


def is_first_process() -> bool:
    """Return whether this is the process that writes and prints, among all that train together."""
    from lightning.pytorch.utilities import rank_zero_only

    return bool(rank_zero_only.rank == 0)  # type: ignore[attr-defined]


@contextlib.contextmanager
def peak_memory(device: str) -> Iterator[Callable[[], int]]:
    """Give a function for the most bytes held from here on: on a device of type ``cuda``, else by the process."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        yield torch.cuda.max_memory_allocated
        return
    status = Path("/proc/self/status")
    with contextlib.suppress(OSError):  # where this is not allowed, the peak counts from the start of the process
        Path("/proc/self/clear_refs").write_text("5")

    def peak() -> int:
        if status.exists():
            line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
            return int(line.split()[1]) * 1024
        import resource  # which Windows lacks

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024

    yield peak
