"""What should be reached, as data, and what of it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attention_speed.avx2 import AVX2_PARTS
from attention_speed.machine import has_bfloat16

__all__ = ["Target", "cpu_targets", "gpu_targets", "reached"]

FORWARD, BOTH = "forward", "forward+backward"

# what a kernel written to find out took over PyTorch's, by length: forward, both passes, and the same causal
PROTOTYPE = {
    63: (0.48, 0.61, 0.48, 0.56),
    127: (0.49, 0.52, 0.42, 0.46),
    256: (0.69, 0.72, 0.49, 0.48),
    512: (0.64, 0.69, 0.38, 0.41),
    1024: (0.67, 0.75, 0.52, 0.51),
    2048: (0.66, 0.68, 0.58, 0.61),
    4096: (0.68, 0.78, 0.61, 0.65),
}
CASES = ((False, FORWARD), (False, BOTH), (True, FORWARD), (True, BOTH))
# the least that is possible at the speed of PyTorch's kernel, from 512 tokens on
FLOOR = {FORWARD: 0.61, BOTH: 0.58}


@dataclass(frozen=True)
class Target:
    """A bound on a figure that is better when smaller.

    Attributes:
        name: what is measured.
        at_most: what it must be.
        hope: what it might be.
        where: columns and values of the rows that it is of; the worst of them counts.
        figure: of a row; its ratio by default.
    """

    name: str
    at_most: float
    hope: float | None
    where: dict[str, Any]
    figure: Callable[[pd.DataFrame], pd.Series] = lambda rows: rows["ratio"]

    def measured(self, rows: pd.DataFrame) -> float | None:
        """The figure; None where nothing was measured that it is of."""
        for column, value in self.where.items():
            rows = rows[rows[column] == value]
        return None if rows.empty else float(self.figure(rows).max())


def of_attention(name: str, T: int, which: str, *, part: str = "attention", **more: Any) -> dict[str, Any]:
    return {"part": part, "contender": name, "T": T, "width": 64, "pass": which, **more}


def of_matrices(rows: pd.DataFrame) -> pd.Series:
    """The memory held over that of a T x T matrix in float32 for each head."""
    return rows["peak_mib"] * 2**20 / (4 * rows["heads"] * rows["T"] ** 2)


def cpu_targets(about: dict[str, Any]) -> list[Target]:
    """Those of a CPU; `about` is what `describe` says of it."""
    targets = []
    for T, figures in PROTOTYPE.items():
        for (causal, which), figure in zip(CASES, figures, strict=True):
            targets.append(
                Target(
                    f"mlr{' causal' if causal else ''}, {which}, T = {T}, over SDPA",
                    round(figure + (0.15 if T < 256 else 0.07), 2),
                    FLOOR[which] if T >= 512 and not causal else figure,
                    of_attention("mlr native", T, which, causal=causal),
                )
            )
    for part, words in zip(AVX2_PARTS, ("", ", SDPA too"), strict=True):
        for T in PROTOTYPE:
            where = {"part": part, "contender": "mlr native", "T": T}
            targets.append(Target(f"mlr on AVX2 alone{words}, the worst at T = {T}, over SDPA", 0.95, 0.8, where))
    for T in (1024, 2048, 4096):
        for which in (FORWARD, BOTH):
            where = of_attention("mlr native, 2 threads", T, which, part="threads")
            targets.append(Target(f"mlr, {which}, T = {T}, two threads over one", 0.556, 0.513, where))
    for T in PROTOTYPE:
        where = of_attention("standard native", T, BOTH, causal=False)
        targets.append(Target(f"standard, {BOTH}, T = {T}, over SDPA", 0.95, 0.8, where))
    for which, most, hope in ((FORWARD, 0.1, 0.06), (BOTH, 0.12, 0.07)):
        where = of_attention("swa native", 4096, which, causal=False)
        targets.append(Target(f"swa (window 64), {which}, T = 4096, over SDPA", most, hope, where))
    for kind, most, hope in (("mlr", 0.9, 0.7), ("global_swa", 1.1, 0.9)):
        for T in (63, 127, 512):
            where = {"part": "modules", "contender": kind, "T": T}
            targets.append(Target(f"module {kind}, {BOTH}, T = {T}, over standard by SDPA", most, hope, where))
    for kind in ("btt", "bilinear_mlr"):
        for T in (127, 512):
            where = {"part": "modules", "contender": kind, "T": T}
            name = f"module {kind}, {BOTH}, T = {T}, time over standard's by flops over its"
            targets.append(Target(name, 1.2, 1.0, where, lambda rows: rows["ratio"] / rows["flops_ratio"]))
    targets.append(Target("PatchTST training step with mlr over standard by SDPA", 0.9, 0.75, {"part": "patchtst"}))
    most, hope = (0.8, 0.5) if has_bfloat16(about) else (1.05, 1.0)
    for T in (1024, 2048, 4096):
        for which in (FORWARD, BOTH):
            where = of_attention("mlr native bfloat16", T, which, part="bfloat16")
            targets.append(Target(f"mlr, {which}, T = {T}, bfloat16 over float32", most, hope, where))
    where = {"part": "long", "contender": "swa native, long", "T": 16384}
    targets.append(Target("swa time(16384) over time(4096)", 4.6, 4.1, where))
    where = {"part": "long", "contender": "mlr native", "T": 8192}
    targets.append(
        Target("mlr memory at T = 8192 over the T x T matrices of its heads", 0.05, 0.02, where, of_matrices)
    )
    targets.append(Target("MLRAttention with one level over a bare module, T = 96", 1.1, 1.0, {"part": "bare"}))
    where = {"part": "decoding", "contender": "mlr", "T": 4096}
    name = "mlr key cache at 8 equal ranks, T = 4096, over standard's"
    targets.append(Target(name, 0.26, None, where, lambda rows: rows["memory_ratio"]))
    return targets


def gpu_targets() -> list[Target]:
    """Those of a GPU, in bfloat16."""
    return [
        Target(
            f"mlr by Triton, {which}, T = {T}, over flash SDPA",
            most,
            0.8,
            of_attention("mlr triton", T, which, causal=False),
        )
        for T in (1024, 2048, 4096, 8192)
        for which, most in ((FORWARD, 1.0), (BOTH, 1.1))
    ]


def reached(targets: list[Target], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """A record of each target that something was measured of."""
    found = [(target, target.measured(rows)) for target in targets]
    return [
        {
            "target": target.name,
            "measured": round(figure, 3),
            "at_most": target.at_most,
            "hope": target.hope,
            "met": figure <= target.at_most,
        }
        for target, figure in found
        if figure is not None
    ]
