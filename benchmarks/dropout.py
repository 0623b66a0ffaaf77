"""Time and memory of dropout in training: the kernel compared with PyTorch's own.

    python benchmarks/dropout.py

Medians of the CPU time of one thread, measured in turns: of dropout with its backward pass, of that with a residual
added, and of a whole training step of PatchTST. Writes `dropout.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attention_speed.parts import step
from measuring import Timing, about, cpu_clock, new_parser, parse, peak_memory, take_turns, write_record

from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.layers.optim import adamw
from tsattn.ops.dropout import dropout, native_dropout_left
from tsattn.ops.native.library import why_no_kernels
from tsattn.task import Task

SHAPES, TINY = ((224 * 63, 16), (504 * 63, 32), (504 * 63, 64)), ((3, 5),)
PROBABILITY = 0.2
STEP, TINY_STEP = (24, 21, 512, 96), (2, 2, 32, 4)  # batch, channels, context and horizon
BACKBONE = {"kind": "patchtst", "d_model": 32, "num_heads": 4, "num_layers": 2, "dropout": PROBABILITY}


def pass_and_back(shape: tuple[int, ...], *, residual: bool) -> Callable[[], object]:
    x, other, grad = (torch.randn(shape) for _ in range(3))
    leaves = [t.requires_grad_() for t in ((x, other) if residual else (x,))]

    def run() -> object:
        return torch.autograd.grad(dropout(x, PROBABILITY, residual=other if residual else None), leaves, grad)

    return run


def training_step(sizes: tuple[int, int, int, int], backbone: dict[str, Any]) -> Callable[[], object]:
    B, C, L, T = sizes
    torch.manual_seed(0)
    past, target = (torch.randn(B, length, C) for length in (L, T))
    task = Task("none", L, T, tuple(f"channel {number}" for number in range(C)), "h", 24)
    model = build_backbone(backbone, task).train()
    return partial(step, model, adamw([model], 1e-3, 0.01), Batch(past, target))


def by_torch(run: Callable[[], object]) -> None:
    with native_dropout_left():
        run()


def main() -> int:
    parser = new_parser(__doc__, toy="tiny sizes")
    parser.add_argument("--seconds", type=float, default=10, help="for the turns of one case, if 5 are done")
    options = parse(parser)
    if (why_not := why_no_kernels()) is not None:
        parser.error(f"there is nothing to measure: {why_not}")
    runs: dict[str, Any] = {}
    for shape in TINY if options.dry_run else SHAPES:
        name = " x ".join(map(str, shape))
        runs[name] = pass_and_back(shape, residual=False)
        runs[f"{name}, residual added"] = pass_and_back(shape, residual=True)
    runs["training step"] = training_step(TINY_STEP if options.dry_run else STEP, BACKBONE)
    timing, rows = Timing(0 if options.dry_run else options.seconds, most=400), []
    for name, run in runs.items():
        both = {"native": run, "torch": partial(by_torch, run)}
        medians, turns = take_turns(both, timing, cpu_clock)
        row = {"case": name, **{f"{which}_ms": 1e3 * seconds for which, seconds in medians.items()}, "turns": turns}
        row |= {f"{which}_mib": peak_memory(one, "cpu") / 2**20 for which, one in both.items()}
        rows.append(row)
        print(f"{name:34}", *(f"{key} {value:.4g}" for key, value in row.items() if key != "case"), sep="  ")
    write_record(options.output / "dropout.json", {**about(), "probability": PROBABILITY, "step": STEP, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
