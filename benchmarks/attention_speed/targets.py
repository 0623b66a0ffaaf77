"""Targets compared with what was measured, and the figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from attention_speed.contenders import HEADS
from attention_speed.timing import PASSES

__all__ = ["draw", "targets", "targets_on_gpu"]


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
