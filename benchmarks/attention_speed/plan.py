"""What is measured, part by part: in earnest, or all of it in seconds, to try it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from attention_speed.avx2 import AVX2_PARTS, avx2_rows
from attention_speed.contenders import BATCHES, HEADS, Problem
from attention_speed.modules import MODULE_SIZES, bare_rows, decoding_rows, module_rows
from attention_speed.passes import bfloat16_rows, long_rows, pass_rows, thread_rows
from attention_speed.rows import Row
from attention_speed.timing import Timing
from attention_speed.training_step import step_rows

__all__ = ["Plan", "cpu_plan", "gpu_plan", "parts_of"]


@dataclass(frozen=True)
class Plan:
    """Sizes and times.

    Attributes:
        batches: sequences of a batch, by length.
        long_from: the length from which threads and bfloat16 are compared.
        lengths: of windows whose growth is measured.
        modules: tokens, width, heads and batch of whole modules.
        decoded: tokens that are decoded.
        steps: arguments of `step_rows`.
        timing: how long.
        checked: the length at which contenders are compared with their reference.
        heads: of attention by itself.
    """

    batches: dict[int, int]
    timing: Timing
    long_from: int = 1024
    lengths: tuple[int, int] = (4096, 16384)
    modules: tuple[tuple[int, int, int, int], ...] = MODULE_SIZES
    decoded: int = 4096
    steps: dict[str, int] = field(default_factory=dict)
    checked: int = 320
    heads: int = HEADS

    def problems(self, widths: tuple[int, ...] = (64,), longer_than: int = 0) -> list[Problem]:
        return [
            Problem(T, batch, width, causal, self.heads)
            for width in widths
            for T, batch in self.batches.items()
            if longer_than <= T and (width == 64 or T <= 2048)
            for causal in (False, True)
        ]


def cpu_plan(seconds: float, tiny: bool) -> Plan:
    timing = Timing(seconds)
    if not tiny:
        return Plan(BATCHES, timing)
    steps = {"context_length": 64, "batch_size": 2, "num_layers": 1}
    return Plan({63: 1, 127: 1}, Timing(0, 1, 1), 127, (64, 256), ((63, 16, 4, 2),), 32, steps, 70)


def gpu_plan(seconds: float, tiny: bool) -> Plan:
    if tiny:
        return Plan({17: 1}, Timing(0, 1, 1), checked=17, heads=1)  # Triton is interpreted, head by head
    return Plan({1024: 8, 2048: 4, 4096: 2, 8192: 1, 16384: 1}, Timing(seconds), checked=320)


def parts_of(
    plan: Plan, kind: str, names: list[str], device: str, dtype: torch.dtype
) -> dict[str, Callable[[], list[Row]]]:
    """What each part of the benchmark of a kind of device does, in order; `device` is where it is tried."""
    timing = plan.timing
    main: dict[str, Any] = {"names": names, "device": device, "dtype": dtype}
    if kind == "cuda":
        return {"attention": partial(pass_rows, plan.problems(), timing, **main)}
    long = [problem for problem in plan.problems(longer_than=plan.long_from) if not problem.causal]
    longer = replace(timing, seconds=3 * timing.seconds)  # for what is a row alone
    return {
        "attention": partial(pass_rows, plan.problems((64, 8)), timing, **main),
        **{part: partial(avx2_rows, part, plan.problems(), timing) for part in AVX2_PARTS},
        "threads": partial(thread_rows, long, timing),
        "bfloat16": partial(bfloat16_rows, long, timing),
        "modules": partial(module_rows, plan.modules, timing),
        "patchtst": partial(step_rows, longer, **plan.steps),
        "bare": partial(bare_rows, longer),
        "long": partial(long_rows, plan.lengths, timing),
        "decoding": partial(decoding_rows, plan.decoded),
    }
