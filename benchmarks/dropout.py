"""Dropout and what it costs a training step: the kernel beside PyTorch's own, measured in turns.

    python benchmarks/dropout.py

Medians of the CPU time of one thread: of dropout with its backward pass, of that with a residual added, and of a whole
training step of PatchTST. Writes `dropout.json` (with hardware and versions) into the output folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attention_speed.parts import step
from measuring import Timing, cpu_clock, describe, peak_memory, take_turns

from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.layers.optim import adamw
from tsattn.ops.dropout import dropout, native_dropout_left
from tsattn.ops.native.library import why_no_kernels
from tsattn.task import Task

SHAPES = ((224 * 63, 16), (504 * 63, 32), (504 * 63, 64))
TINY = ((3, 5),)
PROBABILITY = 0.2

# batch, channels, context and horizon, and the network
STEP = (24, 21, 512, 96), {"kind": "patchtst", "d_model": 32, "num_heads": 4, "num_layers": 2, "dropout": PROBABILITY}


def pass_and_back(shape: tuple[int, ...], *, residual: bool) -> Callable[[], object]:
    x, other, grad = (torch.randn(shape) for _ in range(3))
    leaves = [t.requires_grad_() for t in ((x, other) if residual else (x,))]

    def run() -> object:
        return torch.autograd.grad(dropout(x, PROBABILITY, residual=other if residual else None), leaves, grad)

    return run


def training_step(sizes: tuple[int, int, int, int], backbone: dict[str, Any]) -> Callable[[], object]:
    batch_size, channels, context_length, prediction_length = sizes
    names = tuple(f"channel {number}" for number in range(channels))
    torch.manual_seed(0)
    past, target = (torch.randn(batch_size, length, channels) for length in (context_length, prediction_length))
    model = build_backbone(backbone, Task("none", context_length, prediction_length, names, "h", 24)).train()
    return partial(step, model, adamw([model], 1e-3, 0.01), Batch(past, target))


def by_torch(run: Callable[[], object]) -> None:
    with native_dropout_left():
        run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="for the turns of one case, if 5 are done")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, whose figures mean nothing; needs --out")
    options = parser.parse_args()
    if options.dry_run and options.out == Path(__file__).parent / "results":
        parser.error("--dry-run needs an --out of its own: its figures mean nothing")
    if (why_not := why_no_kernels()) is not None:
        parser.error(f"there is nothing to measure: {why_not}")
    torch.set_num_threads(1)
    runs = {}
    for shape in TINY if options.dry_run else SHAPES:
        name = " x ".join(map(str, shape))
        runs[name] = pass_and_back(shape, residual=False)
        runs[f"{name}, residual added"] = pass_and_back(shape, residual=True)
    sizes, backbone = STEP
    runs["training step"] = training_step((2, 2, 32, 4) if options.dry_run else sizes, backbone)
    timing, rows = Timing(0 if options.dry_run else options.seconds, most=400), []
    for name, run in runs.items():
        medians, turns = take_turns({"native": run, "torch": partial(by_torch, run)}, timing, cpu_clock)
        row = {"case": name, **{f"{which}_ms": 1e3 * seconds for which, seconds in medians.items()}, "turns": turns}
        row["native_mib"], row["torch_mib"] = (peak_memory(one, "cpu") / 2**20 for one in (run, partial(by_torch, run)))
        rows.append(row)
        print(f"{name:34}", *(f"{key} {value:.4g}" for key, value in row.items() if key != "case"), sep="  ")
    about = {"command": "python benchmarks/dropout.py", "probability": PROBABILITY, "threads": 1, "step": STEP}
    options.out.mkdir(parents=True, exist_ok=True)
    report = {**about, "machine": describe("cpu", torch.float32), "rows": rows}
    (options.out / "dropout.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
