"""The picture: time relative to PyTorch's kernel, by number of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from tsattn.figures.style import ACCENT, INK, OTHERS

__all__ = ["draw"]

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
