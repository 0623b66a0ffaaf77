"""The parts of the benchmark of attention: what is measured, in earnest or in seconds to try it out."""

from __future__ import annotations

import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from measuring import Timing, cpu_clock, gpu_clock, peak_memory, take_turns, wall_clock
from torch import Tensor, nn

from attention_speed.contenders import BATCHES, CONTENDERS, HEADS, SDPA, TOLERANCES, Contender, Problem, check, inputs
from tsattn.attention import Attention, MLRAttention, build_attention
from tsattn.backbones import Backbone, build_backbone
from tsattn.batch import Batch
from tsattn.layers.optim import adamw
from tsattn.ops import executed_flops, multilevel_triton
from tsattn.task import Task
from tsattn.training.losses import masked_loss


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        part: of the benchmark.
        contender: what was timed.
        T: tokens.
        batch: sequences.
        heads: of each.
        width: components of a head.
        causal: whether a token sees no later one.
        pass_: forward, forward+backward or a training step.
        median_ms: of the turns.
        beside: the contender whose time is 1.
        ratio: of the medians.
        turns: that each had.
        peak_mib: memory held besides the inputs; of some parts.
        flops_ratio: of the flops that both execute; of whole modules.
        memory_ratio: of the bytes that both hold; of caches of keys.
    """

    part: str
    contender: str
    T: int
    batch: int
    heads: int
    width: int
    causal: bool
    pass_: str
    median_ms: float
    beside: str
    ratio: float
    turns: int
    peak_mib: float | None = None
    flops_ratio: float | None = None
    memory_ratio: float | None = None

    def as_record(self) -> dict[str, object]:
        """By the names of the columns."""
        return {name.rstrip("_"): value for name, value in asdict(self).items()}


def rows_beside(
    part: str,
    medians: Mapping[str, float],
    beside: Mapping[str, str],
    turns: int,
    *,
    T: int,
    batch: int,
    heads: int,
    width: int,
    which: str,
    causal: bool = False,
    peak_bytes: Mapping[str, int] | None = None,
    flops: Mapping[str, int] | None = None,
    compare_memory: bool = False,
) -> list[Row]:
    """Rows of contenders that took turns, printed too; `beside` names those to list, and what each is compared with."""
    rows = []
    for name, base in beside.items():
        row = Row(
            part=part,
            contender=name,
            T=T,
            batch=batch,
            heads=heads,
            width=width,
            causal=causal,
            pass_=which,
            median_ms=round(1e3 * medians[name], 4),
            beside=base,
            ratio=round(medians[name] / medians[base], 4),
            turns=turns,
            peak_mib=None if peak_bytes is None else round(peak_bytes[name] / 2**20, 3),
            flops_ratio=None if flops is None else round(flops[name] / flops[base], 4),
            memory_ratio=round(peak_bytes[name] / peak_bytes[base], 4) if peak_bytes and compare_memory else None,
        )
        report(row)
        rows.append(row)
    return rows


def report(row: Row) -> None:
    """Print a row."""
    shape = f"T {row.T} x {row.batch}, {row.heads} x {row.width}{', causal' if row.causal else ''}"
    print(
        f"{row.part:14} {row.contender:26} {shape:28} {row.pass_:17} {row.median_ms:9.2f} ms"
        f" {row.ratio:7.3f} x {row.beside}",
        flush=True,
    )


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


TILES = {  # by kernel: own and walked tokens, warps, stages, registers (0: as many as the compiler wants), parts
    "forward": "64 64 4 3 128 4, 64 64 4 3 128 2, 64 64 4 3 0 4, 64 128 4 2 168 8, 128 64 8 2 128 4, 128 128 8 2 128 8",
    "queries": "64 64 4 3 168 4, 64 64 4 2 168 4, 64 64 4 3 128 4, 64 64 4 2 0 4, 64 32 4 3 0 2",
    "keys": "64 64 4 3 0 4, 64 64 4 2 0 4, 64 64 4 2 0 2, 64 64 4 1 168 4, 64 32 4 3 168 2",
}


def tile_rows(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype, device: str) -> list[Row]:
    """Each kernel of `mlr triton` with other tiles, over those that are chosen, by the device's own clock."""
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
            beside = dict.fromkeys(medians, f"{kernel} as chosen")
            rows += rows_beside("tiles", medians, beside, 3, **shape_of(problem), which=kernel)
    return rows


def kernel_seconds(name: str, problem: Problem, tensors: list[Tensor]) -> float:
    """The mean time of a kernel in three turns of forward and backward."""
    run = partial(forward_backward, CONTENDERS["mlr triton"], problem, tensors)
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            run()
        torch.cuda.synchronize()
    return sum(event.device_time_total for event in profile.key_averages() if event.key == name) / 3e6


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


AVX2_PARTS = {
    "avx2": {"TSATTN_KERNELS": "avx2"},
    "avx2 alone": {"TSATTN_KERNELS": "avx2", "ATEN_CPU_CAPABILITY": "avx2"},
}


def avx2_rows(part: str, problems: Sequence[Problem], timing: Timing) -> list[Row]:
    """The rows of a part, from a process with its environment.

    Raises:
        CalledProcessError: if that process fails.
    """
    root = Path(__file__).parents[1]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        asked = {"part": part, "problems": [asdict(problem) for problem in problems], "timing": asdict(timing)}
        subprocess.run(
            [sys.executable, "-m", "attention_speed.parts", str(file), json.dumps(asked)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **AVX2_PARTS[part]},
            check=True,
        )
        return [Row(**row) for row in json.loads(file.read_text())]


STANDARD = "standard by sdpa"
KINDS = ("mlr", "global_swa", "swa", "btt", "bilinear_mlr", "mlbtc")
MODULE_SIZES = ((63, 16, 4, 224), (127, 64, 8, 112), (512, 512, 8, 8))  # tokens, width, heads, batch


def module_rows(sizes: tuple[tuple[int, int, int, int], ...], timing: Timing) -> list[Row]:
    """Forward and backward passes of whole modules over those of `standard` through PyTorch's kernel.

    `flops_ratio` is that of the flops that both execute.
    """
    rows = []
    for T, d_model, heads, batch in sizes:
        sizes_of_it = {"d_model": d_model, "num_heads": heads, "max_length": T}
        torch.manual_seed(0)
        modules = {STANDARD: build_attention({"kind": "standard", "impl": "sdpa"}, **sizes_of_it)}
        modules |= {kind: build_attention(kind, **sizes_of_it) for kind in KINDS}
        x = torch.randn(batch, T, d_model)
        runs = {name: partial(train, module, x) for name, module in modules.items()}
        medians, turns = take_turns(runs, timing, cpu_clock)
        flops = {name: executed_flops(run) for name, run in runs.items()}
        shape = {"T": T, "batch": batch, "heads": heads, "width": d_model // heads}
        beside = dict.fromkeys(KINDS, STANDARD)
        rows += rows_beside("modules", medians, beside, turns, **shape, which="forward+backward", flops=flops)
    return rows


def train(module: Attention, x: Tensor) -> None:
    module.zero_grad()
    out = module(x.detach().requires_grad_())
    out.backward(torch.ones_like(out))


class BareAttention(nn.Module):
    """What standard attention costs at the least: three projections, SDPA, one more projection."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return self.output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def bare_rows(timing: Timing) -> list[Row]:
    """`MLRAttention` with one level over the bare module, forward, T = 96, batch 8."""
    width, T, batch = 64, 96, 8
    d_model = HEADS * width
    modules = {
        "mlr, one level": MLRAttention(d_model, HEADS, ranks=[width], max_length=T),
        "bare module": BareAttention(d_model),
    }
    x = torch.randn(batch, T, d_model)
    with torch.no_grad():
        medians, turns = take_turns({name: partial(module, x) for name, module in modules.items()}, timing, cpu_clock)
    beside = {"mlr, one level": "bare module"}
    shape = {"T": T, "batch": batch, "heads": HEADS, "width": width}
    return rows_beside("bare", medians, beside, turns, **shape, which="forward")


def decoding_rows(tokens: int, turns: int = 30) -> list[Row]:
    """The last of `tokens` tokens, decoded one by one, and the most bytes of keys that were held, over `standard`'s."""
    width = 64
    kinds = {
        "standard": {"kind": "standard"},
        "swa": {"kind": "swa", "window_size": width + 1},
        "mlr": {"kind": "mlr", "ranks": [width // 8] * 8, "align": "start"},
    }
    sizes = {"d_model": HEADS * width, "num_heads": HEADS, "max_length": tokens}
    medians, held = {}, {}
    with torch.no_grad():
        for name, description in kinds.items():
            attention = build_attention(description, causal=True, **sizes).eval()
            cache, peak, times = attention.new_cache(1), 0, []
            for _ in range(tokens):
                x = torch.randn(1, 1, HEADS * width)
                times.append(cpu_clock(partial(attention, x, cache=cache)))
                peak = max(peak, cache.key_nbytes)
            medians[name], held[name] = statistics.median(times[-turns:]), peak
    beside = dict.fromkeys(("swa", "mlr"), "standard")
    shape = {"T": tokens, "batch": 1, "heads": HEADS, "width": width, "causal": True}
    return rows_beside(
        "decoding", medians, beside, turns, **shape, which="one token", peak_bytes=held, compare_memory=True
    )


CONFIG = Path(__file__).parents[2] / "configs" / "etth1_patchtst.yaml"
CHANNELS, PREDICTION_LENGTH = 7, 96


def step_rows(timing: Timing, *, context_length: int = 512, batch_size: int = 32, num_layers: int = 3) -> list[Row]:
    """Loss, gradients and AdamW of a batch, by the network of `etth1_patchtst.yaml` with one layer more."""
    names = tuple(f"channel {number}" for number in range(CHANNELS))
    task = Task("none", context_length, PREDICTION_LENGTH, names, "h", 24)
    torch.manual_seed(0)
    past, target = (torch.randn(batch_size, length, CHANNELS) for length in (context_length, PREDICTION_LENGTH))
    batch = Batch(past, target)
    backbone = yaml.safe_load(CONFIG.read_text())["model"]["backbone"] | {"num_layers": num_layers}
    attentions = {
        STANDARD: {"kind": "standard", "impl": "sdpa"},
        "mlr by native": {**backbone["attention"], "impl": "native"},
    }
    runs = {}
    for name, attention in attentions.items():
        model = build_backbone(copy.deepcopy(backbone) | {"attention": attention}, task).train()
        runs[name] = partial(step, model, adamw([model], 1e-4, 0.01), batch)
    tokens = model.patches.count
    medians, turns = take_turns(runs, timing, cpu_clock)
    shape = {"T": tokens, "batch": batch_size * CHANNELS, "heads": backbone["num_heads"]}
    width = backbone["d_model"] // backbone["num_heads"]
    beside = {"mlr by native": STANDARD}
    return rows_beside("patchtst", medians, beside, turns, **shape, width=width, which="training step")


def step(model: Backbone, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    target: Any = batch.target
    optimizer.zero_grad()
    masked_loss("mse", model(batch), target, None).backward()
    optimizer.step()


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
        widths: of a head on a GPU.
        tiled: sequences of a batch, by length, where sizes of tiles are compared.
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
    widths: tuple[int, ...] = (64,)
    tiled: dict[int, int] = field(default_factory=dict)

    def problems(self, widths: tuple[int, ...] = (64,), longer_than: int = 0) -> list[Problem]:
        return [
            Problem(T, batch, width, causal, self.heads)
            for width in widths
            for T, batch in self.batches.items()
            if longer_than <= T and (width >= 64 or T <= 2048)
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
    batches = {T: 65536 // T for T in (512, 1024, 2048, 4096, 8192, 16384)}
    return Plan(batches, Timing(seconds), checked=320, widths=(64, 128), tiled={2048: 32, 16384: 4})


def parts_of(
    plan: Plan, kind: str, names: list[str], device: str, dtype: torch.dtype
) -> dict[str, Callable[[], list[Row]]]:
    """What each part of the benchmark of a kind of device does, in order; `device` is where it is tried."""
    timing = plan.timing
    main: dict[str, Any] = {"names": names, "device": device, "dtype": dtype}
    if kind == "cuda":
        shapes = [(T, batch // wider, 64 * wider) for T, batch in plan.tiled.items() for wider in (1, 2)]
        return {
            "attention": partial(pass_rows, plan.problems(plan.widths), timing, **main),
            "tiles": partial(tile_rows, shapes, dtype, device),
        }
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


def avx2_main(file: str, asked: str) -> None:
    torch.set_num_threads(1)
    said = json.loads(asked)
    problems = [Problem(**problem) for problem in said["problems"]]
    error = check(CONTENDERS["mlr native"], Problem(130, 2, causal=True), torch.float32, "cpu")
    if not error <= TOLERANCES[torch.float32]:
        sys.exit(f"mlr native differs from its reference by {error} where it has AVX2 alone")
    rows = pass_rows(problems, Timing(**said["timing"]), part=said["part"], names=(SDPA, "mlr native"))
    Path(file).write_text(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    avx2_main(*sys.argv[1:])
