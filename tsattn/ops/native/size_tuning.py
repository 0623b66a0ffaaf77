"""Measure which sizes of chunks are the fastest on this machine."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from tsattn.errors import UserError
from tsattn.ops.native.chunking import ChunkSizes, forget_sizes, sizes_by_caches, sizes_taken, tuned_file
from tsattn.ops.native.native_attention import native_attention
from tsattn.ops.native.query_intervals import every_pair
from tsattn.saved_folders import write_text

CHUNKS = (64, 96, 128, 192, 256)
BLOCKS = (2, 4, 8, 16)
TURNS = 7
SHORT, LONG = (4, 8, 512, 64), (1, 8, 4096, 64)


def tune_sizes(report: Callable[[str], None]) -> ChunkSizes:
    """Measure one size after the other, and save the best for this user on this machine.

    Args:
        report: called with a line for each size that is measured.

    Raises:
        UserError: without a home folder to save them in.
    """
    best = sizes_by_caches()
    passes = ("chunk_keys", SHORT, CHUNKS), ("shared_blocks", SHORT, BLOCKS), ("shared_blocks_long", LONG, BLOCKS)
    for name, shape, values in passes:
        candidates = {value: replace(best, **{name: value}) for value in values}
        seconds = _in_turns(candidates, shape, backward=name != "shared_blocks_long")
        chosen = min(seconds, key=seconds.__getitem__)
        # the sizes by caches stay unless the gain is more than chance
        if seconds[chosen] < 0.98 * seconds.get(getattr(best, name), float("inf")):
            best = candidates[chosen]
        for value in values:
            mark = " *" if value == getattr(best, name) else ""
            report(f"{name:20}{value:5}{1000 * seconds[value]:9.2f} ms{mark}")
    path = tuned_file()
    if path is None:
        raise UserError("there is no home folder for the measured sizes: set XDG_CACHE_HOME")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = {"sizes": asdict(best), "cpu": platform.processor() or platform.machine(), "torch": torch.__version__}
    write_text(path, json.dumps(known, indent=2))
    forget_sizes()
    return best


def _in_turns(candidates: dict[int, ChunkSizes], shape: tuple[int, ...], backward: bool) -> dict[int, float]:
    """The median seconds of a forward pass, and of a backward pass if `backward`, with each size.

    The sizes take turns, so that a drift of the machine affects all of them; the first turn warms the caches.
    """
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    intervals = every_pair(shape[2], shape[2]).for_rows(shape[0])
    taken: dict[int, list[float]] = {value: [] for value in candidates}
    for value, sizes in [*candidates.items()] * (TURNS + 1):
        with sizes_taken(sizes), torch.set_grad_enabled(backward):
            start = time.perf_counter()
            out = native_attention(q, k, v, intervals=intervals, ranks=[shape[-1]], scale=0.125)
            if backward:
                torch.autograd.grad(out.sum(), (q, k, v))
            taken[value].append(time.perf_counter() - start)
    return {value: statistics.median(seconds[1:]) for value, seconds in taken.items()}
