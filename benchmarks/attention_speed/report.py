"""The files of a machine: rows, targets, the picture, and the section of the page on the native kernel."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from measuring import has_bfloat16

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
    targets = []
    for width in (64, 128):
        for causal, which in CASES:
            for T in (2048, 4096, 8192, 16384):
                where = {**of_attention("mlr triton", T, which, causal=causal), "width": width}
                name = (
                    f"mlr by Triton, heads of {width}{', causal' if causal else ''}, {which}, T = {T}, over flash SDPA"
                )
                targets.append(Target(name, 0.8, FLOOR[which], where))
    for which in (FORWARD, BOTH):
        where = of_attention("swa flex, 256", 16384, which, causal=False)
        targets.append(Target(f"swa (window 256), {which}, T = 16384, over flash SDPA", 0.1, 0.05, where))
    return targets


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
    """A line for each contender: forward and backward, heads of 64 components, every position sees all."""
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
    panel.set(xscale="log", yscale="log")
    panel.set_xlabel("tokens", size=11)
    panel.set_ylabel("time relative to PyTorch\n(lower is better)", size=11)
    panel.set_xticks(lengths, labels=[str(T) for T in lengths])
    panel.set_yticks(MARKS)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda mark, _: f"{mark:g}"))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_ylim(0.85 * rows["ratio"].min(), 1.5 * max(1, rows["ratio"].max()))
    panel.tick_params(labelsize=10)
    panel.grid(color="0.92", lw=0.8)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=10, loc="outside lower left", ncols=4)
    machine = f"tsattn's kernels; {about.get('gpu', about.get('cpu'))}, {about.get('dtype')}, 8 heads of 64"
    figure.suptitle("Time of attention, forward and backward", size=12, weight="bold", x=0.01, ha="left")
    panel.set_title(machine, size=10, loc="left")
    figure.savefig(path, dpi=130)


@dataclass(frozen=True)
class Results:
    """`SLUG.csv`, `SLUG.json` and `SLUG.png` in a folder."""

    folder: Path
    slug: str

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.slug}.{ending}"

    def about(self) -> dict[str, Any]:
        """What the JSON file says; nothing where there is none."""
        file = self.path("json")
        return json.loads(file.read_text()) if file.exists() else {}

    def rows(self) -> pd.DataFrame:
        """The table."""
        file = self.path("csv")
        return pd.read_csv(file) if file.exists() else pd.DataFrame({"part": []})

    def replace_part(self, part: str, rows: list[Row]) -> None:
        """Keep the rows of a part instead of those that there are of it."""
        kept = self.rows()
        new = pd.DataFrame([row.as_record() for row in rows])
        kept = kept[kept["part"] != part]
        table = new if kept.empty else pd.concat([kept, new])
        self.folder.mkdir(parents=True, exist_ok=True)
        table.to_csv(self.path("csv"), index=False)

    def write_about(self, about: dict[str, Any]) -> None:
        self.path("json").write_text(json.dumps(about, indent=2) + "\n")

    def draw(self) -> None:
        """The picture, once there is something to draw."""
        rows = self.rows()
        if (rows["part"] == "attention").any():
            draw(rows, self.path("png"), self.about())


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
    """The slug of the machine whose figures a page shows."""
    found = SECTION.search(page)
    assert found, "the page has no paragraph `Measured on ...`"
    return found[1]


def with_section(page: str, results: Results) -> str:
    """A page with the paragraph of another machine."""
    assert SECTION.search(page), "the page has no paragraph `Measured on ...`"
    return SECTION.sub(lambda _: speed_section(results), page)


def speed_section(results: Results) -> str:
    """The section on the speed of a machine: a table for each pass, the other comparisons, and the picture."""
    about, rows = results.about(), results.rows()
    main = rows[rows["part"] == "attention"]
    main = main[main["width"] == 64]
    lines = wrapped(
        f"Measured on {machine(about)} with one thread. Each number is the time relative to PyTorch's "
        "`scaled_dot_product_attention`: 0.50 is half of it. Heads have 64 components, windows 64 tokens, numbers "
        "are float32."
    )
    for title, which in PASSES.items():
        lines += ["", f"{title}:", "", f"| tokens x batch | {' | '.join(COLUMNS)} |"]
        lines.append("| --- |" + " --- |" * len(COLUMNS))
        for T, batch in main[["T", "batch"]].drop_duplicates().itertuples(index=False):
            of_shape = main[(main["T"] == T) & (main["pass"] == which)]
            cells = [f"{ratio(of_shape, *column):.2f}" for column in COLUMNS.values()]
            lines.append(f"| {T} x {batch} | {' | '.join(cells)} |")
    targets = limits(about["targets"], f"{SHOWN}/{results.slug}.json")
    picture = f"![Time relative to PyTorch's attention, by number of tokens]({SHOWN}/{results.slug}.png)"
    return "\n".join([*lines, "", *more(rows), "", *wrapped(targets), "", picture])


def limits(targets: list[dict[str, Any]], link: str) -> str:
    """How many limits there are ([file](link) lists them), and which of them are exceeded."""
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
    """What a target has measured; of one of two lengths, how the time grows from the one to the other."""
    if lengths := re.fullmatch(r"(\w+) time\((\d+)\) over time\((\d+)\)", target):
        kind, long, short = lengths.groups()
        times = {2: "twice", 4: "four times"}.get(int(long) // int(short), f"{int(long) // int(short)} times")
        return f"`{kind}` takes {measured:.1f} times as long with {times} the tokens ({long})."
    return f"{target}: {measured:.2f}."


def wrapped(text: str) -> list[str]:
    """In lines as long as the page's others."""
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def machine(about: dict[str, Any]) -> str:
    """Its name and what it computes with."""
    numbers = f" (family {about['cpu_family']}, model {about['cpu_model']})" if "cpu_family" in about else ""
    return f"{about['cpu']}{numbers}, `{about['kernels']}`,"


def ratio(rows: pd.DataFrame, contender: str, causal: bool) -> float:
    """Time of a contender relative to PyTorch's, in the rows of one shape and pass."""
    (found,) = rows[(rows["contender"] == contender) & (rows["causal"] == causal)]["ratio"]
    return float(found)


def more(rows: pd.DataFrame) -> list[str]:
    """A table of the other comparisons, a row each."""

    def between(part: str, contender: str, **where: Any) -> str:
        chosen = rows[(rows["part"] == part) & (rows["contender"] == contender)]
        for column, value in where.items():
            chosen = chosen[chosen[column] == value]
        low, high = chosen["ratio"].min(), chosen["ratio"].max()
        return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"

    parts = set(rows["part"])
    compared = [
        ("attention", "`mlr`, heads of 8 components", "PyTorch", "mlr native", {"width": 8}),
        ("avx2", "`mlr`, kept to AVX2", "PyTorch with AVX-512", "mlr native", {}),
        ("threads", "`mlr`, two threads", "one thread", "mlr native, 2 threads", {}),
        ("bfloat16", "`mlr`, bfloat16", "float32", "mlr native bfloat16", {}),
        ("patchtst", "a training step of PatchTST, `mlr`", "`standard` by `impl: sdpa`", "mlr by native", {}),
    ]
    lines = [
        f"| {what} | {against} | {between(part, contender, **where)} |"
        for part, what, against, contender, where in compared
        if part in parts
    ]
    return ["| also measured | relative to | time |", "| --- | --- | --- |", *lines]
