"""Time and memory of every attention beside `scaled_dot_product_attention`, as ratios measured in one run.

    python benchmarks/attention.py
    python benchmarks/attention.py --device cuda --dtype bfloat16

First every contender is compared with its reference, in value and gradient; nothing is timed if one differs. Then the
contenders take turns, so that a drift of the machine meets all of them alike; medians are reported. Writes
`attention.csv`, `attention.json` (hardware, versions, shapes) and `attention.png` (`attention_cuda` on a GPU) into the
output folder, and prints the targets with what was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from tsattn.attention import MLRAttention, build_attention
from tsattn.ops import full_attention, level_block_ids, multilevel_attention, sliding_window_attention

HEADS, WIDTH = 8, 64
RANKS = (32, 8, 6, 4, 4, 4, 4, 2)
WINDOW = 65  # 64 keys to a side, and the position itself
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
DENSE_UP_TO = 2048  # the dense evaluation needs a matrix a level and head
MASKED_UP_TO = 4096  # a mask of all pairs
GPU_PASSES = 10  # passes that are timed together on a GPU


@dataclass(frozen=True)
class Contender:
    """A way of computing an attention.

    Attributes:
        name: kind and implementation.
        compute: from q, k, v to the output.
        exact: the same by the plain reference.
        beside: name of the contender whose time is 1.
        longest: the greatest length it is run at.
        score_width: components of a query.
        shared_query: whether all heads share one query, and values are narrow.
        narrow_values: whether values have the width of a head, not that of the scores.
        device: where alone it runs; None for everywhere.
    """

    name: str
    compute: Callable[..., Tensor]
    exact: Callable[..., Tensor]
    beside: str
    longest: int = LENGTHS[-1]
    score_width: int = WIDTH
    shared_query: bool = False
    narrow_values: bool = False
    device: str | None = None


def mlr(q: Tensor, k: Tensor, v: Tensor, *, impl: str, causal: bool = False) -> Tensor:
    T = q.shape[2]
    numbers = [2**level for level in range(len(RANKS))]
    blocks = level_block_ids(torch.arange(T, device=q.device)[None], numbers=numbers, max_length=T)
    return multilevel_attention(q, k, v, ranks=RANKS, blocks=blocks, causal=causal, impl=impl)


def sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def reference(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    T = q.shape[2]
    allowed = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()[None, None] if causal else None
    return full_attention(q, k, v, allowed=allowed, impl="reference")


def swa(q: Tensor, k: Tensor, v: Tensor, *, impl: str) -> Tensor:
    return sliding_window_attention(q, k, v, window_size=WINDOW, impl=impl)


def global_swa(q: Tensor, k: Tensor, v: Tensor, *, impl: str) -> Tensor:
    """Half of the components for every pair, half for near pairs, as the pattern of that kind combines them."""
    parts = zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
    everywhere, near = (
        attend(q_part, k_part, v)
        for (q_part, k_part), attend in zip(
            parts,
            (
                lambda *x: full_attention(*x, impl="reference" if impl == "reference" else "auto"),
                lambda *x: swa(*x, impl=impl),
            ),
            strict=True,
        )
    )
    return (everywhere + near) / 2


CONTENDERS = (
    Contender("sdpa", sdpa, reference, beside="sdpa"),
    Contender("standard reference", reference, reference, beside="sdpa", longest=DENSE_UP_TO),
    Contender(
        "mlr tiles",
        lambda *x: mlr(*x, impl="tiles"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        device="cpu",
    ),
    Contender(
        "mlr triton",
        lambda *x: mlr(*x, impl="triton"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        device="cuda",
    ),
    Contender(
        "mlr sdpa",
        lambda *x: mlr(*x, impl="sdpa"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        longest=DENSE_UP_TO,
    ),
    Contender(
        "mlr dense",
        lambda *x: mlr(*x, impl="reference"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        longest=DENSE_UP_TO,
    ),
    Contender("swa blocks", lambda *x: swa(*x, impl="blocks"), lambda *x: swa(*x, impl="reference"), beside="sdpa"),
    Contender(
        "swa flex",
        lambda *x: swa(*x, impl="flex"),
        lambda *x: swa(*x, impl="reference"),
        beside="sdpa",
        device="cuda",
    ),
    Contender(
        "swa sdpa",
        lambda *x: swa(*x, impl="sdpa"),
        lambda *x: swa(*x, impl="reference"),
        beside="sdpa",
        longest=MASKED_UP_TO,
    ),
    Contender(
        "swa reference",
        lambda *x: swa(*x, impl="reference"),
        lambda *x: swa(*x, impl="reference"),
        beside="sdpa",
        longest=DENSE_UP_TO,
    ),
    Contender(
        "global_swa",
        lambda *x: global_swa(*x, impl="auto"),
        lambda *x: global_swa(*x, impl="reference"),
        beside="sdpa",
        longest=MASKED_UP_TO,
    ),
    Contender(
        "sdpa causal",
        lambda *x: sdpa(*x, causal=True),
        lambda *x: reference(*x, causal=True),
        beside="sdpa causal",
        longest=4096,
    ),
    Contender(
        "mlr tiles causal",
        lambda *x: mlr(*x, impl="tiles", causal=True),
        lambda *x: mlr(*x, impl="reference", causal=True),
        beside="sdpa causal",
        longest=4096,
        device="cpu",
    ),
    Contender(
        "mlr triton causal",
        lambda *x: mlr(*x, impl="triton", causal=True),
        lambda *x: mlr(*x, impl="reference", causal=True),
        beside="sdpa causal",
        longest=4096,
        device="cuda",
    ),
    # queries and keys of BTT are as wide as the model, those of bilinear MLR and MLBTC as the sum of p_l r_l: each
    # beside plain attention of that width
    Contender("sdpa wide", sdpa, reference, beside="sdpa wide", longest=2048, score_width=512),
    Contender(
        "btt",
        lambda *x: full_attention(*x, impl="auto"),
        lambda *x: full_attention(*x, impl="reference"),
        beside="sdpa wide",
        longest=2048,
        score_width=512,
        shared_query=True,
    ),
    Contender("sdpa 160", sdpa, reference, beside="sdpa 160", longest=2048, score_width=160),
    Contender(
        "bilinear mlr",
        lambda *x: full_attention(*x, impl="auto"),
        lambda *x: full_attention(*x, impl="reference"),
        beside="sdpa 160",
        longest=2048,
        score_width=160,
        narrow_values=True,
    ),
    Contender("sdpa 96", sdpa, reference, beside="sdpa 96", longest=2048, score_width=96),
    Contender(
        "mlbtc",
        lambda *x: full_attention(*x, impl="auto"),
        lambda *x: full_attention(*x, impl="reference"),
        beside="sdpa 96",
        longest=2048,
        score_width=96,
        narrow_values=True,
    ),
)


def inputs(contender: Contender, T: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    torch.manual_seed(T)
    width = contender.score_width
    # the kernel wants values as wide as queries; a kind with narrower ones pads them itself
    value_width = WIDTH if contender.shared_query or contender.narrow_values else width
    shapes = [(1, 1 if contender.shared_query else HEADS, T, width), (1, HEADS, T, width), (1, HEADS, T, value_width)]
    return [torch.randn(shape).to(device, dtype).requires_grad_() for shape in shapes]


def check(contender: Contender, device: str, dtype: torch.dtype, T: int = 320) -> float:
    """The largest difference from the reference in value and gradients, over the largest number of each.

    On a CPU in float64; on a GPU, whose kernels do not take that, in the dtype that is timed, from a reference in
    float32.
    """
    tensors = inputs(contender, T, torch.float64 if device == "cpu" else dtype, device)
    exact = [t.detach().to(torch.promote_types(t.dtype, torch.float32)).requires_grad_() for t in tensors]
    results = []
    for function, leaves in ((contender.compute, tensors), (contender.exact, exact)):
        out = function(*leaves)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*results, strict=True))


def contenders_on(device: str) -> list[Contender]:
    return [contender for contender in CONTENDERS if contender.device in (None, device)]


def forward(contender: Contender, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        contender.compute(*tensors)


def forward_backward(contender: Contender, tensors: list[Tensor]) -> None:
    out = contender.compute(*tensors)
    torch.autograd.grad(out, tensors, torch.ones_like(out))


PASSES = {"forward": forward, "forward+backward": forward_backward}


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Drop what native code writes to stderr: the profiler announces itself at every start."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def peak_memory(run: Callable[[Contender, list[Tensor]], None], contender: Contender, tensors: list[Tensor]) -> int:
    """Bytes held beyond the inputs at the worst moment, by the allocator's own account."""
    if tensors[0].is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(contender, tensors)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with silence(), torch.profiler.profile(profile_memory=True) as profile:
        run(contender, tensors)
    held = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def timed(run: Callable[[Contender, list[Tensor]], None], contender: Contender, tensors: list[Tensor]) -> float:
    """Seconds of one pass; of the device alone on a GPU, the mean of several passes without a gap."""
    if not tensors[0].is_cuda:
        start = time.perf_counter()
        run(contender, tensors)
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(GPU_PASSES):
        run(contender, tensors)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / GPU_PASSES


def measure(lengths: list[int], repeats: int, seconds: float, device: str, dtype: torch.dtype) -> list[dict[str, Any]]:
    """One row for each contender, length and pass."""
    rows = []
    for T in lengths:
        there = [contender for contender in contenders_on(device) if contender.longest >= T]
        tensors = {contender.name: inputs(contender, T, dtype, device) for contender in there}
        for name, run in PASSES.items():
            times: dict[str, list[float]] = {contender.name: [] for contender in there}
            for contender in there:
                run(contender, tensors[contender.name])
            began = time.perf_counter()
            # at least three turns, then as many as the time allows
            while len(times["sdpa"]) < 3 or (len(times["sdpa"]) < repeats and time.perf_counter() - began < seconds):
                for contender in there:
                    times[contender.name].append(timed(run, contender, tensors[contender.name]))
            for contender in there:
                base = times[contender.beside]
                rows.append(
                    {
                        "contender": contender.name,
                        "T": T,
                        "pass": name,
                        "median_ms": round(1e3 * statistics.median(times[contender.name]), 3),
                        "beside": contender.beside,
                        "ratio": round(statistics.median(times[contender.name]) / statistics.median(base), 3),
                        "peak_mib": round(peak_memory(run, contender, tensors[contender.name]) / 2**20, 2),
                        "turns": len(base),
                    }
                )
                print(
                    "{contender:18} T={T:<6} {pass:17} {median_ms:10.2f} ms  {ratio:7.3f} x {beside}".format(**rows[-1])
                )
    return rows


class BareAttention(nn.Module):
    """What standard attention costs at the least: three projections, SDPA, one more projection."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return self.output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def module_overhead(turns: int = 200) -> float:
    """Time of `MLRAttention` with one level over the bare module, T = 96, batch 8."""
    d_model = HEADS * WIDTH
    modules = [MLRAttention(d_model, HEADS, ranks=[WIDTH], max_length=96), BareAttention(d_model)]
    x = torch.randn(8, 96, d_model)
    times: list[list[float]] = [[], []]
    with torch.no_grad():
        for _ in range(turns):
            for module, spent in zip(modules, times, strict=True):
                start = time.perf_counter()
                module(x)
                spent.append(time.perf_counter() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


def decoding(tokens: int = 4096, turns: int = 30) -> dict[str, dict[str, float]]:
    """Decode time of the last of `tokens` tokens, and the most bytes of keys that were held, of each kind."""
    kinds: dict[str, dict[str, Any]] = {
        "standard": {"kind": "standard"},
        "swa": {"kind": "swa", "window_size": WINDOW},
        "mlr": {"kind": "mlr", "ranks": [WIDTH // 8] * 8, "align": "start"},
    }
    d_model = HEADS * WIDTH
    figures = {}
    with torch.no_grad():
        for name, description in kinds.items():
            sizes = {"d_model": d_model, "num_heads": HEADS, "max_length": tokens}
            attention = build_attention(description, causal=True, **sizes).eval()
            cache, peak, times = attention.new_cache(1), 0, []
            for _ in range(tokens):
                x = torch.randn(1, 1, d_model)
                start = time.perf_counter()
                attention(x, cache=cache)
                times.append(time.perf_counter() - start)
                peak = max(peak, cache.key_nbytes)
            times = times[-turns:]
            figures[name] = {"ms_a_token": round(1e3 * statistics.median(times), 3), "peak_key_bytes": peak}
    return figures


def targets_on_gpu(rows: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """What should be reached on a GPU: a name, the measured figure, and the most it may be."""
    by = {(row["contender"], row["T"], row["pass"]): row["ratio"] for row in rows}
    return [
        (f"MLR {which} over flash SDPA, T = {T}", by["mlr triton", T, which], most)
        for T in (4096, 16384)
        for which, most in (("forward", 1.0), ("forward+backward", 1.15))
        if ("mlr triton", T, which) in by
    ]


def targets(
    rows: list[dict[str, Any]], overhead: float, decoded: dict[str, dict[str, float]]
) -> list[tuple[str, float, float]]:
    """What should be reached on a CPU: a name, the measured figure, and the most it may be."""
    by = {(row["contender"], row["T"], row["pass"]): row for row in rows}

    def ratio(name: str, T: int, which: str = "forward") -> float | None:
        row = by.get((name, T, which))
        return None if row is None else row["ratio"]

    wanted: list[tuple[str, float | None, float]] = []
    for T, most in ((4096, 1.25), (2048, 1.35), (1024, 1.5)):
        wanted.append((f"MLR forward over SDPA, T = {T}", ratio("mlr tiles", T), most))
    for T, most in ((4096, 1.22), (2048, 1.3), (1024, 1.5)):
        wanted.append((f"MLR forward+backward over SDPA, T = {T}", ratio("mlr tiles", T, "forward+backward"), most))
    for which in PASSES:
        wanted.append((f"causal MLR over causal SDPA, T = 4096, {which}", ratio("mlr tiles causal", 4096, which), 1.35))
    for T in (1024, 2048):
        fast, dense = by.get(("mlr tiles", T, "forward")), by.get(("mlr dense", T, "forward"))
        share = None if fast is None or dense is None else fast["median_ms"] / dense["median_ms"]
        wanted.append((f"MLR forward over the dense evaluation, T = {T}", share, 0.1))
    row = by.get(("mlr tiles", 8192, "forward"))
    held = None if row is None else row["peak_mib"] * 2**20 / (4 * HEADS * 8192**2)
    wanted.append(("MLR extra memory at T = 8192 over the T x T matrices of its heads", held, 0.05))
    wanted.append(("SWA over SDPA, T = 4096, forward", ratio("swa blocks", 4096), 0.25))
    wanted.append(("SWA over SDPA, T = 4096, forward+backward", ratio("swa blocks", 4096, "forward+backward"), 0.3))
    short, long = (by.get(("swa blocks", T, "forward")) for T in (4096, 16384))
    growth = None if short is None or long is None else long["median_ms"] / short["median_ms"]
    wanted.append(("SWA time(16384) over time(4096)", growth, 4.6))
    wanted.append(("BTT over SDPA at the same score width, T = 2048", ratio("btt", 2048), 1.15))
    wanted.append(("bilinear MLR over SDPA at the same score width, T = 2048", ratio("bilinear mlr", 2048), 1.15))
    keys = {name: figures["peak_key_bytes"] for name, figures in decoded.items()}
    wanted.append(("MLR key cache at 8 equal ranks, T = 4096, over standard's", keys["mlr"] / keys["standard"], 0.26))
    wanted.append(("MLRAttention with one level over a bare module, T = 96", overhead, 1.1))
    return [(name, figure, most) for name, figure, most in wanted if figure is not None]


DRAWN = (
    "mlr tiles",
    "mlr tiles causal",
    "mlr triton",
    "mlr triton causal",
    "mlr dense",
    "swa blocks",
    "swa flex",
    "swa sdpa",
    "global_swa",
)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for ax, which in zip(figure.subplots(1, 2, sharey=True), PASSES, strict=True):
        for name in DRAWN:
            line = [(row["T"], row["ratio"]) for row in rows if row["contender"] == name and row["pass"] == which]
            if line:
                ax.plot(*zip(*line, strict=True), marker="o", ms=4, label=name)
        ax.axhline(1, color="0.5", lw=1, ls=":")
        ax.set(xscale="log", yscale="log", title=which, xlabel="tokens")
        ax.set_xticks(sorted({row["T"] for row in rows}), labels=sorted({row["T"] for row in rows}), fontsize=8)
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("time over scaled_dot_product_attention")
    figure.axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def hardware(device: str, dtype: torch.dtype) -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return {
        **({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {}),
        "cpu": models[0].split(":")[1].strip() if models else platform.processor(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "heads": HEADS,
        "width": WIDTH,
        "ranks": RANKS,
        "window_size": WINDOW,
        "command": " ".join(["python", *sys.argv]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--repeats", type=int, default=15, help="most turns of a contender")
    parser.add_argument("--seconds", type=float, default=40, help="time for the turns of one length and pass")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device, dtype = arguments.device, getattr(torch, arguments.dtype)
    tolerance = 1e-9 if device == "cpu" else 1e-3 if dtype == torch.float32 else 3e-2
    wrong = {c.name: error for c in contenders_on(device) if not (error := check(c, device, dtype)) <= tolerance}
    if wrong:
        print(f"not timed, for these differ from their reference: {wrong}", file=sys.stderr)
        return 1
    rows = measure(arguments.lengths, arguments.repeats, arguments.seconds, device, dtype)
    decoded = decoding() if device == "cpu" else {}
    reached = targets(rows, module_overhead(), decoded) if device == "cpu" else targets_on_gpu(rows)
    arguments.output.mkdir(parents=True, exist_ok=True)
    name = "attention" if device == "cpu" else f"attention_{device}"
    with (arguments.output / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    figures = [{"target": name, "measured": round(figure, 3), "at_most": most} for name, figure, most in reached]
    (arguments.output / f"{name}.json").write_text(
        json.dumps({**hardware(device, dtype), "targets": figures, "decoding": decoded}, indent=2) + "\n"
    )
    draw(rows, arguments.output / f"{name}.png")
    print()
    for name, figure, most in reached:
        print(f"{name:70} {figure:7.3f}  at most {most:<5}  {'met' if figure <= most else 'NOT MET'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
