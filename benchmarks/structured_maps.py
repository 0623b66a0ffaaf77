"""Structured matrices, factor by factor and formed once: what each way takes, measured in turns.

    python benchmarks/structured_maps.py

Medians of the CPU time of one thread: of the queries and keys of a projection with their backward pass, and of a whole
training step of PatchTST. The package chooses a way by the size alone (`tsattn.structured.linear_operators`): a reader
sees where that costs time on the machine that was measured. Writes `structured_maps.json`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from dropout import TINY_STEP, training_step
from measuring import Timing, cpu_clock, take_turns
from reporting import about, new_parser, parse, write_record
from torch.utils.flop_counter import FlopCounterMode

from tsattn.attention import build_attention

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
WAYS: dict[str, Callable[[], Any]] = {
    "factors": lambda: patch(CHOICE, lambda *sizes: False),
    "formed": lambda: patch(CHOICE, lambda *sizes: True),
    "package": contextlib.nullcontext,
}


def projecting(description: dict[str, Any], features: int, heads: int, vectors: int) -> Callable[[], torch.Tensor]:
    torch.manual_seed(0)
    projection = build_attention(description, d_model=features, num_heads=heads).projection
    x = torch.randn(1, vectors, features, requires_grad=True)
    return lambda: sum(part.sum() for part in projection(x, x))  # type: ignore[return-value]


def flops_in(way: str, project: Callable[[], object]) -> int:
    with WAYS[way](), FlopCounterMode(display=False) as counter:
        project()
    return counter.get_total_flops()


def in_its_way(run: Callable[[], object], way: str) -> None:
    with WAYS[way]():
        run()


def measured(case: dict[str, Any], run: Callable[[], object], timing: Timing) -> dict[str, Any]:
    """Return the time of each way, and how many times as long as the better one the package's choice takes."""
    medians, turns = take_turns({name: partial(in_its_way, run, name) for name in WAYS}, timing, cpu_clock)
    row = case | {f"{name}_ms": 1e3 * seconds for name, seconds in medians.items()} | {"turns": turns}
    row["formed_over_factors"] = medians["formed"] / medians["factors"]
    row["package_over_better"] = medians["package"] / min(medians["formed"], medians["factors"])
    print(*(f"{key} {value:.4g}" if isinstance(value, float) else value for key, value in row.items()), sep="  ")
    return row


def main() -> int:
    parser = new_parser(__doc__, toy="tiny sizes")
    parser.add_argument("--seconds", type=float, default=4, help="for the turns of one case, if 15 are done")
    options = parse(parser)
    toy = options.dry_run
    timing, rows = Timing(0, least=2) if toy else Timing(options.seconds, least=15, most=200), []
    cases = [(*size, VECTORS) for size in (SIZES[:1] if toy else SIZES)]
    features, heads = SIZES[0 if toy else 2]
    cases += [(features, heads, number * features) for number in (FEW[:1] if toy else FEW)]
    batch, backbone = STEP
    for name, description in ATTENTIONS.items():
        for features, heads, vectors in cases:
            project = projecting(description, features, heads, vectors)
            case = {"case": name, "features": features, "heads": heads, "vectors": vectors}
            case["flops_formed_over_factors"] = flops_in("formed", project) / flops_in("factors", project)
            rows.append(measured(case, lambda project=project: project().backward(), timing))
        run = training_step(TINY_STEP if toy else batch, backbone | {"attention": description})
        rows.append(measured({"case": f"training step, {name}"}, run, timing))
    record = {**about(), "attentions": ATTENTIONS, "step": STEP, "rows": rows}
    write_record(options.output / "structured_maps.json", record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
