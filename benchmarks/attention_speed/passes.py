"""Forward and backward passes of the contenders: over PyTorch's kernel, by two threads, in bfloat16, and when long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from attention_speed.contenders import CONTENDERS, SDPA, Contender, Problem, inputs
from attention_speed.rows import Row, rows_beside
from attention_speed.timing import Timing, cpu_clock, gpu_clock, peak_memory, take_turns, wall_clock

__all__ = ["PASSES", "bfloat16_rows", "long_rows", "pass_rows", "thread_rows"]


def forward(contender: Contender, problem: Problem, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        contender.compute(problem, *tensors)


def forward_backward(contender: Contender, problem: Problem, tensors: list[Tensor]) -> None:
    out = contender.compute(problem, *tensors)
    torch.autograd.grad(out, tensors, torch.ones_like(out))


PASSES: dict[str, Callable[[Contender, Problem, list[Tensor]], None]] = {
    "forward": forward,
    "forward+backward": forward_backward,
}


def pass_rows(
    problems: Sequence[Problem],
    timing: Timing,
    *,
    names: Sequence[str],
    part: str = "attention",
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> list[Row]:
    """One row for each contender, problem and pass, over `scaled_dot_product_attention`.

    Args:
        problems: what is computed.
        timing: how long.
        names: of contenders, `sdpa` among them.
        part: name of the part.
        dtype: of the tensors.
        device: where they are.
    """
    clock = gpu_clock if device == "cuda" else cpu_clock
    rows = []
    for problem in problems:
        tensors = inputs(problem, dtype, device)
        there = [name for name in names if CONTENDERS[name].takes(problem)]
        for which, run in PASSES.items():
            runs = {name: partial(run, CONTENDERS[name], problem, tensors) for name in there}
            medians, turns = take_turns(runs, timing, clock)
            held = {name: peak_memory(run, device) for name, run in runs.items()}
            beside = dict.fromkeys(there, SDPA)
            rows += rows_beside(part, medians, beside, turns, **shape_of(problem), which=which, peak_bytes=held)
    return rows


def shape_of(problem: Problem) -> dict[str, int]:
    return {
        "T": problem.T,
        "batch": problem.batch,
        "heads": problem.heads,
        "width": problem.width,
        "causal": problem.causal,
    }


def thread_rows(problems: Sequence[Problem], timing: Timing) -> list[Row]:
    """Time by two threads over that by one, by the clock on the wall."""

    def by(threads: int, compute: Callable[[], None]) -> None:
        torch.set_num_threads(threads)
        compute()

    rows, before = [], torch.get_num_threads()
    names = (SDPA, "mlr native")
    for problem in problems:
        tensors = inputs(problem, torch.float32, "cpu")
        for which, run in PASSES.items():
            runs = {
                f"{name}, {word}": partial(by, threads, partial(run, CONTENDERS[name], problem, tensors))
                for name in names
                for threads, word in ((1, "1 thread"), (2, "2 threads"))
            }
            try:
                medians, turns = take_turns(runs, timing, wall_clock)
            finally:
                torch.set_num_threads(before)
            beside = {f"{name}, 2 threads": f"{name}, 1 thread" for name in names}
            rows += rows_beside("threads", medians, beside, turns, **shape_of(problem), which=which)
    return rows


def bfloat16_rows(problems: Sequence[Problem], timing: Timing) -> list[Row]:
    """Time in bfloat16 over that in float32."""
    rows = []
    names = ("mlr native", "standard native")
    for problem in problems:
        tensors = {
            word: inputs(problem, dtype, "cpu")
            for word, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
        }
        for which, run in PASSES.items():
            runs = {
                f"{name} {word}": partial(run, CONTENDERS[name], problem, tensors[word])
                for name in names
                for word in tensors
            }
            medians, turns = take_turns(runs, timing, cpu_clock)
            beside = {f"{name} bfloat16": f"{name} float32" for name in names}
            rows += rows_beside("bfloat16", medians, beside, turns, **shape_of(problem), which=which)
    return rows


def long_rows(lengths: tuple[int, int], timing: Timing) -> list[Row]:
    """A window at the greater length over the less, forward; and multi-level attention halfway, for its memory."""
    short, long = lengths
    with_lengths = {
        "swa native, short": ("swa native", short),
        "swa native, long": ("swa native", long),
        "mlr native": ("mlr native", long // 2),
    }
    runs, problems = {}, {}
    for name, (contender, T) in with_lengths.items():
        problems[name] = Problem(T)
        tensors = inputs(problems[name], torch.float32, "cpu")
        runs[name] = partial(forward, CONTENDERS[contender], problems[name], tensors)
    medians, turns = take_turns(runs, timing, cpu_clock)
    held = {name: peak_memory(run, "cpu") for name, run in runs.items()}
    rows = []
    for name, base in (("swa native, long", "swa native, short"), ("mlr native", "mlr native")):
        shape = shape_of(problems[name])
        rows += rows_beside("long", medians, {name: base}, turns, **shape, which="forward", peak_bytes=held)
    return rows
