"""The parts of the benchmark of attention: what is measured, in earnest or in seconds to try it out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from measuring import Timing, cpu_clock, gpu_clock, peak_memory, take_turns, wall_clock
from torch import Tensor

from attention_speed.contenders import BATCHES, CONTENDERS, HEADS, SDPA, TOLERANCES, Contender, Problem, check, inputs
from tsattn.attention import Attention, build_attention
from tsattn.backbones import Backbone, build_backbone
from tsattn.batch import Batch
from tsattn.layers.optim import adamw
from tsattn.ops import executed_flops, multilevel_triton
from tsattn.ops.dropout import dropout, native_dropout_left
from tsattn.task import Task
from tsattn.training.losses import masked_loss

Row = dict[str, Any]
Bytes, Medians = Mapping[str, int], Mapping[str, float]


def rows_beside(
    part: str, medians: Medians, beside: Mapping[str, str], turns: int, problem: Problem, which: str, **more: Bytes
) -> list[Row]:
    """Return rows of contenders that took turns, and print them.

    `beside` lists contenders, each with the one whose time is 1. Of `more`, bytes `held` besides the inputs become MiB,
    `flops` a ratio.
    """
    rows, p, held, flops = [], problem, more.get("held"), more.get("flops")
    for name, base in beside.items():
        row = {
            **{"part": part, "contender": name, "T": p.T, "batch": p.batch, "heads": p.heads, "width": p.width},
            **{"causal": p.causal, "pass": which, "median_ms": round(1e3 * medians[name], 4), "beside": base},
            **{"ratio": round(medians[name] / medians[base], 4), "turns": turns},
            "peak_mib": None if held is None else round(held[name] / 2**20, 3),
            "flops_ratio": None if flops is None else round(flops[name] / flops[base], 4),
        }
        shape = f"T {p.T} x {p.batch}, {p.heads} x {p.width}{', causal' if p.causal else ''}"
        times = f"{row['median_ms']:9.2f} ms {row['ratio']:7.3f} x {base}"
        print(f"{part:14} {name:26} {shape:28} {which:17} {times}", flush=True)
        rows.append(row)
    return rows


def forward(contender: Contender, problem: Problem, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        contender.compute(problem, *tensors)


def forward_backward(contender: Contender, problem: Problem, tensors: list[Tensor]) -> None:
    out = contender.compute(problem, *tensors)
    torch.autograd.grad(out, tensors, torch.ones_like(out))


PASSES = {"forward": forward, "forward+backward": forward_backward}


def pass_rows(
    problems: Sequence[Problem],
    timing: Timing,
    *,
    names: Sequence[str],
    part: str = "attention",
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> list[Row]:
    """Time contenders, `sdpa` among them: a row each, by problem and pass, over `scaled_dot_product_attention`."""
    clock, rows = gpu_clock if device == "cuda" else cpu_clock, []
    for problem in problems:
        tensors = inputs(problem, dtype, device)
        there = [name for name in names if CONTENDERS[name].takes(problem)]
        for which, run in PASSES.items():
            runs = {name: partial(run, CONTENDERS[name], problem, tensors) for name in there}
            medians, turns = take_turns(runs, timing, clock)
            held = {name: peak_memory(run, device) for name, run in runs.items()}
            rows += rows_beside(part, medians, dict.fromkeys(there, SDPA), turns, problem, which, held=held)
    return rows


TILES = {  # by kernel: own and walked tokens, warps, stages, registers (0: as many as the compiler wants), parts
    "forward": "64 64 4 3 128 4, 64 64 4 3 128 2, 64 64 4 3 0 4, 64 128 4 2 168 8, 128 64 8 2 128 4, 128 128 8 2 128 8",
    "queries": "64 64 4 3 168 4, 64 64 4 2 168 4, 64 64 4 3 128 4, 64 64 4 2 0 4, 64 32 4 3 0 2",
    "keys": "64 64 4 3 0 4, 64 64 4 2 0 4, 64 64 4 2 0 2, 64 64 4 1 168 4, 64 32 4 3 168 2",
}


def tile_rows(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype, device: str) -> list[Row]:
    """Time each kernel of `mlr triton` with other tiles, over those that are chosen, by the device's own clock."""
    rows = []
    chosen = multilevel_triton.tile_sizes
    for T, batch, width in shapes:
        problem = Problem(T, batch, width)
        tensors = inputs(problem, dtype, device)
        for kernel, listed in TILES.items():

            def sizes(asked: str, *about: Any, kernel: str = kernel, words: str = "") -> multilevel_triton.TileSizes:
                if asked != kernel or not words:
                    return chosen(asked, *about)
                own, walked, warps, stages, registers, parts = map(int, words.split())
                return multilevel_triton.TileSizes(own, walked, warps, stages, registers or None, parts)

            medians = {}
            for words in ("", *listed.split(", ")):
                multilevel_triton.tile_sizes = partial(sizes, words=words)
                try:
                    medians[f"{kernel} {words or 'as chosen'}"] = kernel_seconds(f"{kernel}_kernel", problem, tensors)
                finally:
                    multilevel_triton.tile_sizes = chosen
            rows += rows_beside("tiles", medians, dict.fromkeys(medians, f"{kernel} as chosen"), 3, problem, kernel)
    return rows


def kernel_seconds(name: str, problem: Problem, tensors: list[Tensor]) -> float:
    run = partial(forward_backward, CONTENDERS["mlr triton"], problem, tensors)
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            run()
        torch.cuda.synchronize()
    return sum(event.device_time_total for event in profile.key_averages() if event.key == name) / 3e6


def variant_rows(
    part: str,
    names: Sequence[str],
    ways: Mapping[str, tuple[str, int]],
    problems: Sequence[Problem],
    timing: Timing,
    clock: Callable[[Callable[[], object]], float] = cpu_clock,
) -> list[Row]:
    """Time contenders in the second of two ways over the first: each has a dtype, and a number of threads."""
    rows, before, (base, other) = [], torch.get_num_threads(), ways

    def by(threads: int, run: Callable[..., None], *given: Any) -> None:
        torch.set_num_threads(threads)
        run(*given)

    for problem in problems:
        tensors = {dtype: inputs(problem, getattr(torch, dtype), "cpu") for dtype, _ in ways.values()}
        for which, run in PASSES.items():
            runs = {
                name + way: partial(by, threads, run, CONTENDERS[name], problem, tensors[dtype])
                for name in names
                for way, (dtype, threads) in ways.items()
            }
            try:
                medians, turns = take_turns(runs, timing, clock)
            finally:
                torch.set_num_threads(before)
            beside = {name + other: name + base for name in names}
            rows += rows_beside(part, medians, beside, turns, problem, which)
    return rows


THREADS = {", 1 thread": ("float32", 1), ", 2 threads": ("float32", 2)}
DTYPES = {" float32": ("float32", 1), " bfloat16": ("bfloat16", 1)}


def long_rows(lengths: tuple[int, int], timing: Timing) -> list[Row]:
    """Time a window at the greater length over the less, forward; and multi-level attention halfway, for its memory."""
    short, long = lengths
    problems = {
        "swa native, short": Problem(short),
        "swa native, long": Problem(long),
        "mlr native": Problem(long // 2),
    }
    runs = {
        name: partial(forward, CONTENDERS[name.split(",")[0]], problem, inputs(problem, torch.float32, "cpu"))
        for name, problem in problems.items()
    }
    medians, turns = take_turns(runs, timing, cpu_clock)
    held = {name: peak_memory(run, "cpu") for name, run in runs.items()}
    bases = {"swa native, long": "swa native, short", "mlr native": "mlr native"}
    return [
        row
        for name, base in bases.items()
        for row in rows_beside("long", medians, {name: base}, turns, problems[name], "forward", held=held)
    ]


AVX2_PARTS = {
    "avx2": {"TSATTN_KERNELS": "avx2"},
    "avx2 alone": {"TSATTN_KERNELS": "avx2", "ATEN_CPU_CAPABILITY": "avx2"},
}


def avx2_rows(part: str, problems: Sequence[Problem], timing: Timing) -> list[Row]:
    """Return the rows of a part, from a process with its environment.

    Raises:
        CalledProcessError: if that process fails.
    """
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    asked = {"part": part, "problems": [asdict(problem) for problem in problems], "timing": asdict(timing)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "attention_speed.parts", str(file), json.dumps(asked)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **AVX2_PARTS[part]}
        subprocess.run(command, env=environment, check=True)
        rows: list[Row] = json.loads(file.read_text())
        return rows


STANDARD = "standard by sdpa"
KINDS = ("mlr", "global_swa", "swa", "btt", "bilinear_mlr", "mlbtc")
MODULE_SIZES = ((63, 16, 4, 224), (127, 64, 8, 112), (512, 512, 8, 8))  # tokens, width, heads, batch


def module_rows(sizes: Sequence[tuple[int, int, int, int]], timing: Timing) -> list[Row]:
    """Time both passes of whole modules over `standard` through PyTorch's kernel, and compare the executed flops."""
    rows = []
    for T, d_model, heads, batch in sizes:
        how = {"d_model": d_model, "num_heads": heads, "max_length": T}
        torch.manual_seed(0)
        modules = {STANDARD: build_attention({"kind": "standard", "impl": "sdpa"}, **how)}
        modules |= {kind: build_attention(kind, **how) for kind in KINDS}
        x = torch.randn(batch, T, d_model)
        runs = {name: partial(train, module, x) for name, module in modules.items()}
        medians, turns = take_turns(runs, timing, cpu_clock)
        flops = {name: executed_flops(run) for name, run in runs.items()}
        problem, beside = Problem(T, batch, d_model // heads, heads=heads), dict.fromkeys(KINDS, STANDARD)
        rows += rows_beside("modules", medians, beside, turns, problem, "forward+backward", flops=flops)
    return rows


def train(module: Attention, x: Tensor) -> None:
    module.zero_grad()
    out = module(x.detach().requires_grad_())
    out.backward(torch.ones_like(out))


CONFIG = Path(__file__).parents[2] / "configs" / "etth1_patchtst.yaml"


def step_of(
    impl: str, context_length: int = 512, batch_size: int = 32, num_layers: int = 3
) -> tuple[Problem, Callable[[], None]]:
    """Return loss, gradients and AdamW of a batch, by the network of `etth1_patchtst.yaml` with one layer more."""
    channels, horizon = 7, 96
    task = Task("none", context_length, horizon, tuple(f"channel {number}" for number in range(channels)), "h", 24)
    torch.manual_seed(0)
    batch = Batch(*(torch.randn(batch_size, length, channels) for length in (context_length, horizon)))
    backbone = yaml.safe_load(CONFIG.read_text())["model"]["backbone"] | {"num_layers": num_layers}
    attention = {"kind": "standard"} if impl == "sdpa" else backbone["attention"]
    model: Any = build_backbone(backbone | {"attention": {**attention, "impl": impl}}, task).train()
    heads = backbone["num_heads"]
    problem = Problem(model.patches.count, batch_size * channels, backbone["d_model"] // heads, heads=heads)
    return problem, partial(step, model, adamw([model], 1e-4, 0.01), batch)


def step_rows(timing: Timing, **sizes: int) -> list[Row]:
    problem, native = step_of("native", **sizes)
    runs = {STANDARD: step_of("sdpa", **sizes)[1], "mlr by native": native}
    medians, turns = take_turns(runs, timing, cpu_clock)
    return rows_beside("patchtst", medians, {"mlr by native": STANDARD}, turns, problem, "training step")


def dropout_rows(shapes: Sequence[tuple[int, int]], timing: Timing, **sizes: int) -> list[Row]:
    """Time dropout with its backward pass, a residual added or not, and that of a training step, over PyTorch's."""

    def drop(tensors: list[Tensor], grad: Tensor) -> None:
        torch.autograd.grad(dropout(tensors[0], 0.2, residual=tensors[1] if tensors[1:] else None), tensors, grad)

    def by_torch(run: Callable[[], None]) -> None:
        with native_dropout_left():
            run()

    problem, run = step_of("native", **sizes)
    cases = [(problem, "training step", run)]
    for rows, width in shapes:
        *tensors, grad = (torch.randn(rows, width, requires_grad=number < 2) for number in range(3))
        for count, which in ((1, "forward+backward"), (2, "forward+backward, residual added")):
            cases.append((Problem(rows, 1, width, heads=1), which, partial(drop, tensors[:count], grad)))
    found = []
    for problem, which, run in cases:
        runs = {"dropout native": run, "dropout by torch": partial(by_torch, run)}
        medians, turns = take_turns(runs, timing, cpu_clock)
        held = {name: peak_memory(one, "cpu") for name, one in runs.items()}
        beside = dict.fromkeys(runs, "dropout by torch")
        found += rows_beside("dropout", medians, beside, turns, problem, which, held=held)
    return found


def step(model: Backbone, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    target: Any = batch.target
    optimizer.zero_grad()
    masked_loss("mse", model(batch), target, None).backward()
    optimizer.step()


def problems_of(batches: dict[int, int], widths: Sequence[int] = (64,), heads: int = HEADS) -> list[Problem]:
    return [
        Problem(T, batch, width, causal, heads)
        for width in widths
        for T, batch in batches.items()
        if width >= 64 or T <= 2048
        for causal in (False, True)
    ]


def parts_of(
    kind: str, names: list[str], device: str, dtype: torch.dtype, seconds: float, tiny: bool
) -> tuple[Problem, dict[str, Callable[[], list[Row]]]]:
    """Return the problem at which contenders are checked, and what each part does; `device` is where it is tried."""
    timing, main = Timing(0, 1, 1) if tiny else Timing(seconds), {"names": names, "device": device, "dtype": dtype}
    if kind == "cuda" and tiny:  # Triton is interpreted, head by head
        problems = problems_of({17: 1}, heads=1)
        return Problem(17, 2, heads=1), {"attention": partial(pass_rows, problems, timing, **main)}
    if kind == "cuda":
        problems = problems_of({T: 65536 // T for T in (512, 1024, 2048, 4096, 8192, 16384)}, (64, 128))
        shapes = [(T, batch // wider, 64 * wider) for T, batch in ((2048, 32), (16384, 4)) for wider in (1, 2)]
        tiles = partial(tile_rows, shapes, dtype, device)
        return Problem(320, 2), {"attention": partial(pass_rows, problems, timing, **main), "tiles": tiles}
    batches = {63: 1, 127: 1} if tiny else BATCHES
    problems, long_from = problems_of(batches), 127 if tiny else 1024
    long = [problem for problem in problems if long_from <= problem.T and not problem.causal]
    modules, lengths = (((63, 16, 4, 2),), (64, 256)) if tiny else (MODULE_SIZES, (4096, 16384))
    steps = {"context_length": 64, "batch_size": 2, "num_layers": 1} if tiny else {}
    drops = ((300, 50),) if tiny else ((14_112, 16), (31_752, 32), (31_752, 64))
    return Problem(70 if tiny else 320, 2), {
        "attention": partial(pass_rows, problems_of(batches, (64, 8)), timing, **main),
        **{part: partial(avx2_rows, part, problems, timing) for part in AVX2_PARTS},
        "threads": partial(variant_rows, "threads", (SDPA, "mlr native"), THREADS, long, timing, wall_clock),
        "bfloat16": partial(variant_rows, "bfloat16", ("mlr native", "standard native"), DTYPES, long, timing),
        "modules": partial(module_rows, modules, timing),
        "patchtst": partial(step_rows, replace(timing, seconds=3 * timing.seconds), **steps),  # a row alone
        "long": partial(long_rows, lengths, timing),
        "dropout": partial(dropout_rows, drops, replace(timing, most=400), **steps),
    }


def avx2_main(file: str, asked: str) -> None:
    torch.set_num_threads(1)
    said = json.loads(asked)
    problems = [Problem(**problem) for problem in said["problems"]]
    error = check(CONTENDERS["mlr native"], Problem(130, 2, causal=True), torch.float32, "cpu")
    if not error <= TOLERANCES[torch.float32]:
        sys.exit(f"mlr native differs from its reference by {error} where it has AVX2 alone")
    rows = pass_rows(problems, Timing(**said["timing"]), part=said["part"], names=(SDPA, "mlr native"))
    Path(file).write_text(json.dumps(rows))


if __name__ == "__main__":
    avx2_main(*sys.argv[1:])
