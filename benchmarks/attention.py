"""Time and memory of every attention beside `scaled_dot_product_attention`, as ratios measured in one run.

    python benchmarks/attention.py
    python benchmarks/attention.py --device cuda --dtype bfloat16

First every contender is compared with its reference, in value and gradient; nothing is timed if one differs. Then the
contenders take turns, so that a drift of the machine meets all of them alike; the medians of CPU time by one thread are
compared, and of the clock on the wall for two threads. Writes `SLUG.csv`, `SLUG.json` (the machine, versions, targets)
and `SLUG.png` into the output folder, one set for each model of CPU or GPU, and prints the targets with what was
measured. Parts that are not asked for are kept as they were measured before.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import torch
from attention_speed.contenders import CONTENDERS, TOLERANCES, Problem, check
from attention_speed.parts import AVX2_PARTS, parts_of
from attention_speed.report import FOLDER, Results, cpu_targets, gpu_targets, reached
from measuring import describe, new_parser, parse, slug_of

from tsattn.ops.native.kernel_compiler import sets_of_this_cpu
from tsattn.ops.native.library import why_no_kernels

GPU_FLOAT32 = 3e-3  # products of a GPU round to fewer bits


def differing(names: list[str], checked: Problem, device: str, dtypes: list[torch.dtype]) -> dict[str, float]:
    """Return the contenders that differ from their reference, and by how much."""
    wrong = {}
    for name in names:
        contender = CONTENDERS[name]
        for dtype in dtypes if "native" in name else dtypes[:1]:
            tolerance = GPU_FLOAT32 if device == "cuda" and dtype == torch.float32 else TOLERANCES[dtype]
            for width in contender.widths:
                for causal in (False, True):
                    problem = replace(checked, width=width, causal=causal)
                    error = check(contender, problem, dtype, device)
                    if not error <= tolerance:
                        wrong[f"{name}, heads of {width}{', causal' if causal else ''}, {dtype}"] = error
    return wrong


def main() -> int:
    parser = new_parser(__doc__, FOLDER, toy="tiny sizes")
    parser.add_argument("--parts", nargs="+", help="of the table, to measure anew; all of them by default")
    parser.add_argument("--seconds", type=float, default=2, help="for the turns of one shape and pass, if 5 are done")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="on a GPU; bfloat16 by default")
    arguments = parse(parser)
    if arguments.device == "cpu" and arguments.dtype is not None:
        parser.error("--dtype is for --device cuda: on a CPU float32 is measured, and bfloat16 beside it")
    if arguments.device == "cuda" and not (torch.cuda.is_available() or arguments.dry_run):
        parser.error("there is no CUDA device; --dry-run tries the command out by Triton's interpreter")
    if arguments.device == "cpu" and (why_not := why_no_kernels()) is not None:
        parser.error(f"there is nothing to measure: {why_not}")
    kind, tiny = arguments.device, arguments.dry_run
    device = kind if torch.cuda.is_available() else "cpu"
    # Triton's interpreter computes with numpy, which has no bfloat16
    by_default = "float32" if kind == "cpu" or device == "cpu" else "bfloat16"
    dtype = getattr(torch, arguments.dtype or by_default)
    about = describe(device, dtype)
    results = Results(arguments.output, slug_of(about))
    names = [name for name, contender in CONTENDERS.items() if contender.device in (None, kind)]
    if kind != device:
        names = [name for name in names if "flex" not in name]
        print("a dry run without a GPU: Triton is interpreted, and FlexAttention, which has no gradient here, left out")
    checked, parts = parts_of(kind, names, device, dtype, arguments.seconds, tiny)
    wrong = differing(names, checked, device, [dtype, torch.bfloat16] if kind == "cpu" else [dtype])
    if wrong:
        print(f"not timed, for these differ from their reference: {wrong}", file=sys.stderr)
        return 1
    if unknown := set(arguments.parts or ()) - set(parts):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    ran = {"torch": torch.__version__, "kernels": about["kernels"], "seconds_a_shape": arguments.seconds}
    measured = results.about().get("parts", {})
    for part, measure in parts.items():
        if arguments.parts is not None and part not in arguments.parts:
            continue
        if why_not := cannot(part):
            print(f"{part} is left out: {why_not}")
            continue
        began = time.perf_counter()
        results.replace_part(part, measure())
        measured[part] = {**ran, "seconds": round(time.perf_counter() - began, 1)}
    targets = reached(cpu_targets(about) if kind == "cpu" else gpu_targets(), results.rows())
    results.finish({**about, "parts": measured, "targets": targets})
    for one in targets:
        met = "met" if one["met"] else "NOT MET"
        print(f"{one['target']:78} {one['measured']:7.3f}  at most {one['at_most']:<5} {met}")
    return 0


def cannot(part: str) -> str | None:
    """Say why this machine cannot measure a part."""
    if part in AVX2_PARTS and "avx2" not in {one.name for one in sets_of_this_cpu()}:
        return "this CPU has no AVX2"
    if part == "threads" and (os.cpu_count() or 1) < 2:
        return "this machine has one core"
    return None


if __name__ == "__main__":
    sys.exit(main())
