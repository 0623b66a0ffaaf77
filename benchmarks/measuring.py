"""The machine that measures, and time and memory of calls that take turns."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tsattn.ops.native.library import VARIABLE, find_library

FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")


def cpu() -> dict[str, Any]:
    """Its name, its family and model where the name leaves them open, and the instructions that matter here."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    about: dict[str, Any] = {"cpu": said.get("model name") or platform.processor() or platform.machine()}
    if not re.search(r"\d", short_name(about["cpu"])) and "cpu family" in said:
        about |= {"cpu_family": int(said["cpu family"]), "cpu_model": int(said["model"])}
    listed = (said.get("flags") or said.get("Features") or "").split()
    return {**about, "flags": [flag for flag in FLAGS if flag in listed]}


def short_name(name: str) -> str:
    """A name without trademarks and clock rates."""
    return re.sub(r"\((R|TM)\)|\bCPU\b|@.*", " ", name)


def describe(device: str, dtype: torch.dtype) -> dict[str, Any]:
    """What a reader must know of the machine and the programs on it."""
    found = find_library(os.environ.get(VARIABLE, ""))
    return {
        **({"gpu": torch.cuda.get_device_name()} if device == "cuda" and torch.cuda.is_available() else {}),
        **cpu(),
        "cores": os.cpu_count(),
        "kernels": None if found.instruction_set is None else found.instruction_set.name,
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dtype": str(dtype).removeprefix("torch."),
    }


def this_command() -> str:
    """The benchmark that runs, with the names of files and folders alone: where they lay is of no use to a reader."""
    script, *words = sys.argv
    given = [Path(word).name if "/" in word else word for word in words]
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *given])


def has_bfloat16(about: dict[str, Any]) -> bool:
    """Whether the CPU multiplies in bfloat16."""
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(about["flags"]))


def slug_of(about: dict[str, Any]) -> str:
    """The name of a machine's files: of its GPU and numbers, else of its CPU."""
    family = f" family {about['cpu_family']} model {about['cpu_model']}" if "cpu_family" in about else ""
    words = f"{about['gpu']} {about['dtype']}" if "gpu" in about else short_name(about["cpu"]) + family
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


Run = Callable[[], object]
Clock = Callable[[Run], float]  # the seconds of a call

GPU_CALLS = 10  # that are timed together on a GPU


@dataclass(frozen=True)
class Timing:
    """How long is measured: at least `least` turns, then as many as `seconds` allow, up to `most`."""

    seconds: float = 2.0
    least: int = 5
    most: int = 60


def cpu_clock(run: Run) -> float:
    """Of this process alone, whatever else the machine does; of one thread."""
    start = time.process_time()
    run()
    return time.process_time() - start


def wall_clock(run: Run) -> float:
    """Of the clock on the wall: for several threads."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def gpu_clock(run: Run) -> float:
    """Of the device alone: the mean of several calls without a gap."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(GPU_CALLS):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / GPU_CALLS


def take_turns(runs: Mapping[str, Run], timing: Timing, clock: Clock) -> tuple[dict[str, float], int]:
    """The median seconds of each call, and the turns that each had, after one that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    began, turns = time.perf_counter(), 0
    while turns < timing.least or (turns < timing.most and time.perf_counter() - began < timing.seconds):
        for name, run in runs.items():
            times[name].append(clock(run))
        turns += 1
    return {name: statistics.median(spent) for name, spent in times.items()}, turns


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Drop what native code writes to stderr: the profiler announces itself at every start."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def peak_memory(run: Run, device: str) -> int:
    """Bytes held besides the inputs at the peak, as the allocator counts them."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with silence(), torch.profiler.profile(profile_memory=True) as profile:
        run()
    held = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
