"""The files of a machine: rows, limits with what was measured, and the picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from measuring import RESULTS, MachineTable

from attention_speed.parts import AVX2_PARTS, Row
from tsattn.figures.style import ACCENT, INK, OTHERS

FOLDER = RESULTS / "attention"
FORWARD, BOTH = "forward", "forward+backward"
CASES = ((False, FORWARD), (False, BOTH), (True, FORWARD), (True, BOTH))
MOST = {  # the time of the kernel for mlr over that of PyTorch's, by length and case
    63: (0.63, 0.76, 0.63, 0.71),
    127: (0.64, 0.67, 0.57, 0.61),
    256: (0.76, 0.79, 0.56, 0.55),
    512: (0.71, 0.76, 0.45, 0.48),
    1024: (0.74, 0.82, 0.59, 0.58),
    2048: (0.73, 0.75, 0.65, 0.68),
    4096: (0.75, 0.85, 0.68, 0.72),
}


@dataclass(frozen=True)
class Target:
    """A limit of a figure that is better when smaller; of all rows that have some values the worst counts."""

    name: str
    at_most: float
    where: dict[str, Any]
    figure: Callable[[pd.DataFrame], pd.Series] = lambda rows: rows["ratio"]

    def measured(self, rows: pd.DataFrame) -> float | None:
        for column, value in self.where.items():
            rows = rows[rows[column] == value]
        return None if rows.empty else float(self.figure(rows).max())


def of_attention(name: str, T: int, which: str, *, part: str = "attention", **more: Any) -> dict[str, Any]:
    return {"part": part, "contender": name, "T": T, "width": 64, "pass": which, **more}


def of_matrices(rows: pd.DataFrame) -> pd.Series:
    """Return the memory held over that of a T x T matrix in float32 for each head."""
    return rows["peak_mib"] * 2**20 / (4 * rows["heads"] * rows["T"] ** 2)


def cpu_targets(about: dict[str, Any]) -> list[Target]:
    targets = []
    for T, limits in MOST.items():
        for (causal, which), most in zip(CASES, limits, strict=True):
            where = of_attention("mlr native", T, which, causal=causal)
            targets.append(Target(f"mlr{' causal' if causal else ''}, {which}, T = {T}, over SDPA", most, where))
    for part, words in zip(AVX2_PARTS, ("", ", SDPA too"), strict=True):
        for T in MOST:
            where = {"part": part, "contender": "mlr native", "T": T}
            targets.append(Target(f"mlr on AVX2 alone{words}, the worst at T = {T}, over SDPA", 0.95, where))
    long = [(T, which) for T in (1024, 2048, 4096) for which in (FORWARD, BOTH)]
    for T, which in long:
        where = of_attention("mlr native, 2 threads", T, which, part="threads")
        targets.append(Target(f"mlr, {which}, T = {T}, two threads over one", 0.556, where))
    for T in MOST:
        where = of_attention("standard native", T, BOTH, causal=False)
        targets.append(Target(f"standard, {BOTH}, T = {T}, over SDPA", 0.95, where))
    for which, most in ((FORWARD, 0.1), (BOTH, 0.12)):
        where = of_attention("swa native", 4096, which, causal=False)
        targets.append(Target(f"swa (window 64), {which}, T = 4096, over SDPA", most, where))
    for kind, most in (("mlr", 0.9), ("global_swa", 1.1)):
        for T in (63, 127, 512):
            where = {"part": "modules", "contender": kind, "T": T}
            targets.append(Target(f"module {kind}, {BOTH}, T = {T}, over standard by SDPA", most, where))
    for kind in ("btt", "bilinear_mlr"):
        for T in (127, 512):
            where = {"part": "modules", "contender": kind, "T": T}
            name = f"module {kind}, {BOTH}, T = {T}, time over standard's by flops over its"
            targets.append(Target(name, 1.2, where, lambda rows: rows["ratio"] / rows["flops_ratio"]))
    targets.append(Target("PatchTST training step with mlr over standard by SDPA", 0.9, {"part": "patchtst"}))
    most = 0.8 if {"avx512_bf16", "amx_bf16", "bf16"} & {*about["flags"]} else 1.05
    for T, which in long:
        where = of_attention("mlr native bfloat16", T, which, part="bfloat16")
        targets.append(Target(f"mlr, {which}, T = {T}, bfloat16 over float32", most, where))
    where = {"part": "long", "contender": "swa native, long", "T": 16384}
    targets.append(Target("swa time(16384) over time(4096)", 4.6, where))
    where = {"part": "long", "contender": "mlr native", "T": 8192}
    name = "mlr memory at T = 8192 over the T x T matrices of its heads"
    return [*targets, Target(name, 0.05, where, of_matrices)]


def gpu_targets() -> list[Target]:
    targets = []
    for width in (64, 128):
        for causal, which in CASES:
            for T in (2048, 4096, 8192, 16384):
                where = {**of_attention("mlr triton", T, which, causal=causal), "width": width}
                head = f"mlr by Triton, heads of {width}{', causal' if causal else ''}"
                targets.append(Target(f"{head}, {which}, T = {T}, over flash SDPA", 0.8, where))
    for which in (FORWARD, BOTH):
        where = of_attention("swa flex, 256", 16384, which, causal=False)
        targets.append(Target(f"swa (window 256), {which}, T = 16384, over flash SDPA", 0.1, where))
    return targets


def reached(targets: list[Target], rows: pd.DataFrame) -> list[dict[str, Any]]:
    found = [(one, figure) for one in targets if (figure := one.measured(rows)) is not None]
    return [
        {"target": one.name, "measured": round(figure, 3), "at_most": one.at_most, "met": figure <= one.at_most}
        for one, figure in found
    ]


DRAWN = {  # contenders with their names in the legend; a machine has either native kernels or those of a GPU
    "standard native": ("standard", INK),
    "global_swa native": ("global_swa", OTHERS[2]),
    "mlr native": ("mlr", ACCENT),
    "swa native": ("swa", OTHERS[1]),
    "mlr triton": ("mlr", ACCENT),
    "swa flex": ("swa, by FlexAttention", OTHERS[1]),
}
MARKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


def draw(rows: pd.DataFrame, path: Path, about: dict[str, Any]) -> None:
    """Draw a line for each contender: forward and backward, heads of 64 components, every position sees all."""
    chosen = (rows["part"] == "attention") & (rows["width"] == 64) & (rows["pass"] == "forward+backward")
    rows = rows[chosen & ~rows["causal"] & rows["contender"].isin(list(DRAWN))]
    lengths = sorted(rows["T"].unique())
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    panel = figure.subplots()
    for contender, (name, colour) in DRAWN.items():
        line = rows[rows["contender"] == contender].sort_values("T")
        if not line.empty:
            panel.plot(line["T"], line["ratio"], color=colour, marker="o", ms=4, lw=1.8, label=name)
    panel.axhline(1, color="0.3", lw=1, ls=":")
    panel.text(lengths[-1], 1.05, "PyTorch's kernel", ha="right", va="bottom", size=10, color="0.3")
    limits = 0.85 * rows["ratio"].min(), 1.5 * max(1, rows["ratio"].max())
    panel.set(xscale="log", yscale="log", xlabel="tokens", ylabel="time relative to PyTorch\n(lower is better)")
    panel.set_xticks(lengths, labels=[str(T) for T in lengths])
    panel.set_yticks(MARKS, labels=[f"{mark:g}" for mark in MARKS])
    panel.minorticks_off()
    panel.set_ylim(*limits)
    panel.grid(color="0.92", lw=0.8)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=10, loc="outside lower left", ncols=4)
    machine = f"tsattn's kernels; {about.get('gpu', about.get('cpu'))}, {about.get('dtype')}, 8 heads of 64"
    figure.suptitle("Time of attention, forward and backward", size=12, weight="bold", x=0.01, ha="left")
    panel.set_title(machine, size=10, loc="left")
    figure.savefig(path, dpi=130)


class Results(MachineTable):
    """The files of a machine, with `SLUG.png`."""

    def replace_part(self, part: str, rows: list[Row]) -> None:
        kept = self.rows()
        kept = kept[kept["part"] != part]
        self.write(pd.DataFrame(rows) if kept.empty else pd.concat([kept, pd.DataFrame(rows)]))

    def finish(self, about: dict[str, Any]) -> None:
        rows = self.rows()
        self.write(rows, about)
        if (rows["part"] == "attention").any():
            draw(rows, self.path("png"), about)
