"""Structured matrices, factor by factor and formed once: what each way takes, measured in turns.

    python benchmarks/structured_maps.py

Medians of the CPU time of one thread: of the queries and keys of a projection with their backward pass, and of a whole
training step of PatchTST. The package chooses a way by the size alone (`tsattn.structured.linear_operators`); `chosen`
says which, so that a reader sees where the choice costs time on the machine that was measured. Writes
`structured_maps.json` (with hardware and versions) into the output folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from attention_speed.parts import step
from measuring import Timing, cpu_clock, describe, take_turns
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tsattn.attention import build_attention
from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.layers.optim import adamw
from tsattn.task import Task

ATTENTIONS: dict[str, dict[str, Any]] = {
    "btt, s = 1": {"kind": "btt", "tt_rank": 1},
    "btt, s = 2": {"kind": "btt", "tt_rank": 2},
    "bilinear_mlr, 4 levels": {"kind": "bilinear_mlr", "ranks": [1, 1, 1, 1], "blocks": [1, 2, 4, 8]},
}
SIZES = ((16, 4), (32, 4), (64, 8), (128, 8), (256, 8))  # features, heads
VECTORS = 4096
FEW = (1, 4, 16)  # vectors beside the length of one, at the third size
STEP = (64, 7, 512, 96), {"kind": "patchtst", "d_model": 32, "num_heads": 4, "num_layers": 2, "dropout": 0.2}
CHOICE = "tsattn.structured.linear_operators.is_formed"
WAYS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "factors": lambda: patch(CHOICE, lambda *sizes: False),
    "formed": lambda: patch(CHOICE, lambda *sizes: True),
    "package": contextlib.nullcontext,
}


def projecting(description: dict[str, Any], features: int, heads: int, vectors: int) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    projection = build_attention(description, d_model=features, num_heads=heads).projection
    x = torch.randn(1, vectors, features, requires_grad=True)

    def project() -> Tensor:
        query, key = projection(x, x)
        return query.sum() + key.sum()

    return project


def flops_in(way: Callable[[], AbstractContextManager[object]], project: Callable[[], Tensor]) -> int:
    with way(), FlopCounterMode(display=False) as counter:
        project()
    return counter.get_total_flops()


def training_step(
    description: dict[str, Any], sizes: tuple[int, int, int, int], backbone: dict[str, Any]
) -> Callable[[], object]:
    batch_size, channels, context_length, prediction_length = sizes
    names = tuple(f"channel {number}" for number in range(channels))
    torch.manual_seed(0)
    past, target = (torch.randn(batch_size, length, channels) for length in (context_length, prediction_length))
    task = Task("none", context_length, prediction_length, names, "h", 24)
    model = build_backbone(backbone | {"attention": description}, task).train()
    return partial(step, model, adamw([model], 1e-3, 0.01), Batch(past, target))


def in_its_way(run: Callable[[], object], way: Callable[[], AbstractContextManager[object]]) -> None:
    with way():
        run()


def measured(case: dict[str, Any], run: Callable[[], object], timing: Timing) -> dict[str, Any]:
    """A row: the time of each way, and how many times as long as the better one the package's choice takes."""
    runs = {name: partial(in_its_way, run, way) for name, way in WAYS.items()}
    medians, turns = take_turns(runs, timing, cpu_clock)
    row = case | {f"{name}_ms": 1e3 * seconds for name, seconds in medians.items()} | {"turns": turns}
    row["formed_over_factors"] = medians["formed"] / medians["factors"]
    row["package_over_better"] = medians["package"] / min(medians["formed"], medians["factors"])
    print(*(f"{key} {value:.4g}" if isinstance(value, float) else value for key, value in row.items()), sep="  ")
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4, help="for the turns of one case, if 15 are done")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, whose figures mean nothing; needs --out")
    options = parser.parse_args()
    if options.dry_run and options.out == Path(__file__).parent / "results":
        parser.error("--dry-run needs an --out of its own: its figures mean nothing")
    torch.set_num_threads(1)
    timing, rows = Timing(0, least=2) if options.dry_run else Timing(options.seconds, least=15, most=200), []
    sizes, few = (SIZES[:1], FEW[:1]) if options.dry_run else (SIZES, FEW)
    cases = [(*size, VECTORS) for size in sizes] + [(*sizes[-1 if options.dry_run else 2], n) for n in few]
    for name, description in ATTENTIONS.items():
        for features, heads, vectors in cases:
            vectors = vectors if vectors == VECTORS else vectors * features
            project = projecting(description, features, heads, vectors)
            case = {"case": name, "features": features, "heads": heads, "vectors": vectors}
            case["flops_formed_over_factors"] = flops_in(WAYS["formed"], project) / flops_in(WAYS["factors"], project)
            rows.append(measured(case, lambda project=project: project().backward(), timing))
        batch, backbone = STEP
        run = training_step(description, (2, 2, 32, 4) if options.dry_run else batch, backbone)
        rows.append(measured({"case": f"training step, {name}"}, run, timing))
    about = {"command": "python benchmarks/structured_maps.py", "threads": 1, "attentions": ATTENTIONS, "step": STEP}
    options.out.mkdir(parents=True, exist_ok=True)
    report = {**about, "machine": describe("cpu", torch.float32), "rows": rows}
    (options.out / "structured_maps.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
