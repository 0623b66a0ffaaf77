"""What a run takes: the parameters and flops of its predictor, and the memory that the process holds."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from tsattn.data import ForecastDataModule
from tsattn.errors import UserError
from tsattn.experiments.experiment import Experiment
from tsattn.ops import executed_flops
from tsattn.predictors import Predictor, build_predictor
from tsattn.training import Execution, TrainerOptions
from tsattn.training.execution import own_random_state

__all__ = ["device_type", "forward_flops", "peak_memory", "predictor_sizes"]


def predictor_sizes(predictor: Predictor, data: ForecastDataModule, flops_needed: bool) -> dict[str, float]:
    """Parameters and flops; without flops where they cannot be counted, unless they are needed."""
    sizes: dict[str, float] = {"parameters": predictor.num_parameters}
    try:
        sizes["flops"] = forward_flops(predictor, data)
    except UserError:
        if flops_needed:
            raise
    return sizes


@torch.no_grad()
def forward_flops(predictor: Predictor, data: ForecastDataModule) -> int:
    """Flops of a forward pass of one window on a CPU, if it runs there; the random generator is left as it was."""
    from tsattn.peers.predictors import PeerPredictor

    if any(isinstance(part, PeerPredictor) for part in predictor.modules()):
        raise UserError("the flops of another library's model cannot be counted")
    window = data.windows("train", predictor.context_length).__getitems__([0])
    with own_random_state():
        whole = build_predictor(predictor.description)  # with numbers in the place of its shapes
        whole.build(predictor.task, predictor.output)
        return executed_flops(lambda: whole.eval()(window))


def device_type(experiment: Experiment) -> str:
    """What an experiment computes on: ``cpu``, ``cuda`` and so on."""
    _, trainer = experiment.made()
    return Execution(TrainerOptions.of(trainer)).device.type


@contextlib.contextmanager
def peak_memory(device: str) -> Iterator[Callable[[], int]]:
    """Give the most bytes held since here: on a ``cuda`` device (see `device_type`), else by the process."""
    if device == "cuda":
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
