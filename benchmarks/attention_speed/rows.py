"""Rows of the table: a contender, a problem and a pass, with its time over that of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

__all__ = ["Row", "report", "rows_beside"]


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
