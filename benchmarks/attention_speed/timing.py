"""Time and memory of calls that take turns."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

__all__ = ["Clock", "Timing", "cpu_clock", "gpu_clock", "peak_memory", "take_turns", "wall_clock"]

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
