"""Time and memory of the contenders, which take turns."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from attention_speed.contenders import Contender, contenders_on, inputs

__all__ = ["PASSES", "measure"]

GPU_PASSES = 10  # passes that are timed together on a GPU


def forward(contender: Contender, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        contender.compute(*tensors)


def forward_backward(contender: Contender, tensors: list[Tensor]) -> None:
    out = contender.compute(*tensors)
    torch.autograd.grad(out, tensors, torch.ones_like(out))


PASSES = {"forward": forward, "forward+backward": forward_backward}


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


def peak_memory(run: Callable[[Contender, list[Tensor]], None], contender: Contender, tensors: list[Tensor]) -> int:
    """Bytes held besides the inputs at the peak, as the allocator counts them."""
    if tensors[0].is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(contender, tensors)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with silence(), torch.profiler.profile(profile_memory=True) as profile:
        run(contender, tensors)
    held = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def timed(run: Callable[[Contender, list[Tensor]], None], contender: Contender, tensors: list[Tensor]) -> float:
    """Seconds of one pass; of the device alone on a GPU, the mean of several passes without a gap."""
    if not tensors[0].is_cuda:
        start = time.perf_counter()
        run(contender, tensors)
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(GPU_PASSES):
        run(contender, tensors)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / GPU_PASSES


def measure(lengths: list[int], repeats: int, seconds: float, device: str, dtype: torch.dtype) -> list[dict[str, Any]]:
    """One row for each contender, length and pass."""
    rows = []
    for T in lengths:
        there = [contender for contender in contenders_on(device) if contender.longest >= T]
        tensors = {contender.name: inputs(contender, T, dtype, device) for contender in there}
        for name, run in PASSES.items():
            times: dict[str, list[float]] = {contender.name: [] for contender in there}
            for contender in there:
                run(contender, tensors[contender.name])
            began = time.perf_counter()
            # at least three turns, then as many as the time allows
            while len(times["sdpa"]) < 3 or (len(times["sdpa"]) < repeats and time.perf_counter() - began < seconds):
                for contender in there:
                    times[contender.name].append(timed(run, contender, tensors[contender.name]))
            for contender in there:
                base = times[contender.beside]
                rows.append(
                    {
                        "contender": contender.name,
                        "T": T,
                        "pass": name,
                        "median_ms": round(1e3 * statistics.median(times[contender.name]), 3),
                        "beside": contender.beside,
                        "ratio": round(statistics.median(times[contender.name]) / statistics.median(base), 3),
                        "peak_mib": round(peak_memory(run, contender, tensors[contender.name]) / 2**20, 2),
                        "turns": len(base),
                    }
                )
                print(
                    "{contender:18} T={T:<6} {pass:17} {median_ms:10.2f} ms  {ratio:7.3f} x {beside}".format(**rows[-1])
                )
    return rows
