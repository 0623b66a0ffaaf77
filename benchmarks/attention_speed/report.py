"""The files of a machine: rows, targets, the picture, and the section of the page on the native kernel."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from measuring import MachineTable, table

from attention_speed.parts import AVX2_PARTS, Row
from tsattn.figures.style import ACCENT, INK, OTHERS

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
    """A bound on a figure that is better when smaller; of all rows that have some values the worst counts."""

    name: str
    at_most: float
    hope: float | None
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
    targets: list[Target] = []

    def add(name: str, most: float, hope: float | None, where: dict[str, Any], *figure: Any) -> None:
        targets.append(Target(name, most, hope, where, *figure))

    for T, figures in PROTOTYPE.items():
        for (causal, which), figure in zip(CASES, figures, strict=True):
            most, hope = round(figure + (0.15 if T < 256 else 0.07), 2), figure
            if T >= 512 and not causal:
                hope = FLOOR[which]
            where = of_attention("mlr native", T, which, causal=causal)
            add(f"mlr{' causal' if causal else ''}, {which}, T = {T}, over SDPA", most, hope, where)
    for part, words in zip(AVX2_PARTS, ("", ", SDPA too"), strict=True):
        for T in PROTOTYPE:
            where = {"part": part, "contender": "mlr native", "T": T}
            add(f"mlr on AVX2 alone{words}, the worst at T = {T}, over SDPA", 0.95, 0.8, where)
    long = [(T, which) for T in (1024, 2048, 4096) for which in (FORWARD, BOTH)]
    for T, which in long:
        where = of_attention("mlr native, 2 threads", T, which, part="threads")
        add(f"mlr, {which}, T = {T}, two threads over one", 0.556, 0.513, where)
    for T in PROTOTYPE:
        where = of_attention("standard native", T, BOTH, causal=False)
        add(f"standard, {BOTH}, T = {T}, over SDPA", 0.95, 0.8, where)
    for which, most, hope in ((FORWARD, 0.1, 0.06), (BOTH, 0.12, 0.07)):
        where = of_attention("swa native", 4096, which, causal=False)
        add(f"swa (window 64), {which}, T = 4096, over SDPA", most, hope, where)
    for kind, most, hope in (("mlr", 0.9, 0.7), ("global_swa", 1.1, 0.9)):
        for T in (63, 127, 512):
            where = {"part": "modules", "contender": kind, "T": T}
            add(f"module {kind}, {BOTH}, T = {T}, over standard by SDPA", most, hope, where)
    for kind in ("btt", "bilinear_mlr"):
        for T in (127, 512):
            where = {"part": "modules", "contender": kind, "T": T}
            name = f"module {kind}, {BOTH}, T = {T}, time over standard's by flops over its"
            add(name, 1.2, 1.0, where, lambda rows: rows["ratio"] / rows["flops_ratio"])
    add("PatchTST training step with mlr over standard by SDPA", 0.9, 0.75, {"part": "patchtst"})
    most, hope = (0.8, 0.5) if {"avx512_bf16", "amx_bf16", "bf16"} & {*about["flags"]} else (1.05, 1.0)
    for T, which in long:
        where = of_attention("mlr native bfloat16", T, which, part="bfloat16")
        add(f"mlr, {which}, T = {T}, bfloat16 over float32", most, hope, where)
    where = {"part": "long", "contender": "swa native, long", "T": 16384}
    add("swa time(16384) over time(4096)", 4.6, 4.1, where)
    where = {"part": "long", "contender": "mlr native", "T": 8192}
    add("mlr memory at T = 8192 over the T x T matrices of its heads", 0.05, 0.02, where, of_matrices)
    return targets


def gpu_targets() -> list[Target]:
    targets = []
    for width in (64, 128):
        for causal, which in CASES:
            for T in (2048, 4096, 8192, 16384):
                where = {**of_attention("mlr triton", T, which, causal=causal), "width": width}
                head = f"mlr by Triton, heads of {width}{', causal' if causal else ''}"
                targets.append(Target(f"{head}, {which}, T = {T}, over flash SDPA", 0.8, FLOOR[which], where))
    for which in (FORWARD, BOTH):
        where = of_attention("swa flex, 256", 16384, which, causal=False)
        targets.append(Target(f"swa (window 256), {which}, T = 16384, over flash SDPA", 0.1, 0.05, where))
    return targets


def reached(targets: list[Target], rows: pd.DataFrame) -> list[dict[str, Any]]:
    found = [(one, figure) for one in targets if (figure := one.measured(rows)) is not None]
    return [
        {"target": one.name, "measured": round(figure, 3), "at_most": one.at_most}
        | {"hope": one.hope, "met": figure <= one.at_most}
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


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "native-kernel.md"
FOLDER = ROOT / "benchmarks" / "results" / "attention"
SHOWN = "../../benchmarks/results/attention"  # as seen from the page

SECTION = re.compile(rf"Measured on .*?\]\({SHOWN}/([\w-]+)\.png\)", re.DOTALL)
COLUMNS = {
    "`mlr`": ("mlr native", False),
    "`mlr`, causal": ("mlr native", True),
    "`standard`": ("standard native", False),
    "`swa`": ("swa native", False),
    "`global_swa`": ("global_swa native", False),
}
PASSES = {"To forecast (forward)": "forward", "To train (forward and backward)": "forward+backward"}


def shown_machine(page: str) -> str:
    found = SECTION.search(page)
    assert found, "the page has no paragraph `Measured on ...`"
    return found[1]


def with_section(page: str, results: Results) -> str:
    assert SECTION.search(page), "the page has no paragraph `Measured on ...`"
    return SECTION.sub(lambda _: speed_section(results), page)


def speed_section(results: Results) -> str:
    about, rows = results.about(), results.rows()
    main = rows[(rows["part"] == "attention") & (rows["width"] == 64)]
    numbers = f" (family {about['cpu_family']}, model {about['cpu_model']})" if "cpu_family" in about else ""
    lines = wrapped(
        f"Measured on {about['cpu']}{numbers}, `{about['kernels']}`, with one thread. Each number is the time relative "
        "to PyTorch's `scaled_dot_product_attention`: 0.50 is half of it. Heads have 64 components, windows 64 tokens, "
        "numbers are float32."
    )
    for title, which in PASSES.items():
        cells = main[main["pass"] == which].set_index(["T", "batch", "contender", "causal"])["ratio"]
        shapes = main[["T", "batch"]].drop_duplicates().itertuples(index=False, name=None)
        found = [
            (f"{T} x {batch}", *(f"{cells[T, batch, *one]:.2f}" for one in COLUMNS.values())) for T, batch in shapes
        ]
        lines += ["", f"{title}:", "", *table(("tokens x batch", *COLUMNS), found)[:-1]]
    targets = limits(about["targets"], f"{SHOWN}/{results.slug}.json")
    picture = f"![Time relative to PyTorch's attention, by number of tokens]({SHOWN}/{results.slug}.png)"
    return "\n".join([*lines, "", *more(rows), "", *wrapped(targets), "", picture])


def limits(targets: list[dict[str, Any]], link: str) -> str:
    said = f"`python benchmarks/attention.py` checks {len(targets)} limits ([list]({link}))"
    over = [
        f"{in_words(target['target'], target['measured'])} The limit was {target['at_most']:g}."
        for target in targets
        if not target["met"]
    ]
    if not over:
        return f"{said}. None is exceeded."
    return f"{said}. {'One is' if len(over) == 1 else f'{len(over)} are'} exceeded. {' '.join(over)}"


def in_words(target: str, measured: float) -> str:
    """Say what a target has measured; of one of two lengths, how the time grows."""
    if lengths := re.fullmatch(r"(\w+) time\((\d+)\) over time\((\d+)\)", target):
        kind, long, short = lengths.groups()
        times = {2: "twice", 4: "four times"}.get(int(long) // int(short), f"{int(long) // int(short)} times")
        return f"`{kind}` takes {measured:.1f} times as long with {times} the tokens ({long})."
    return f"{target}: {measured:.2f}."


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


OTHER_COMPARISONS = (
    ("attention", "`mlr`, heads of 8 components", "PyTorch", "mlr native", (8,)),
    ("avx2", "`mlr`, kept to AVX2", "PyTorch with AVX-512", "mlr native", ()),
    ("threads", "`mlr`, two threads", "one thread", "mlr native, 2 threads", ()),
    ("bfloat16", "`mlr`, bfloat16", "float32", "mlr native bfloat16", ()),
    ("patchtst", "a training step of PatchTST, `mlr`", "`standard` by `impl: sdpa`", "mlr by native", ()),
)


def more(rows: pd.DataFrame) -> list[str]:
    found = []
    for part, what, against, contender, widths in OTHER_COMPARISONS:
        chosen = rows[(rows["part"] == part) & (rows["contender"] == contender)]
        ratios = chosen.loc[chosen["width"].isin(widths or chosen["width"]), "ratio"]
        if part in set(rows["part"]):
            low, high = f"{ratios.min():.2f}", f"{ratios.max():.2f}"
            found.append((what, against, low if low == high else f"{low} to {high}"))
    return table(("also measured", "relative to", "time"), found)[:-1]
