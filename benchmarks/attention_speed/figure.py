"""The picture: time over PyTorch's kernel, by number of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

__all__ = ["draw"]

DRAWN = {  # colours that colour-blind readers tell apart
    "mlr native": "#0072b2",
    "standard native": "#d55e00",
    "swa native": "#009e73",
    "global_swa native": "#cc79a7",
    "mlr tiles": "#7f7f7f",
    "mlr triton": "#0072b2",
    "swa flex": "#009e73",
}
LABELS = {name: name.removesuffix(" native") for name in DRAWN} | {"mlr tiles": "mlr without our kernel"}
TITLES = {"forward": "To forecast (forward)", "forward+backward": "To train (forward and backward)"}
MARKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


def draw(rows: pd.DataFrame, path: Path, about: dict[str, Any]) -> None:
    """One panel for each pass, one line for each contender with heads of 64 components; causal ones are dashed."""
    rows = rows[(rows["part"] == "attention") & (rows["width"] == 64)]
    lengths = sorted(rows["T"].unique())
    figure = Figure(figsize=(6, 8), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for panel, (which, title) in zip(panels, TITLES.items(), strict=True):
        for name, colour in DRAWN.items():
            for causal, style in ((False, "-"), (True, "--")):
                chosen = (rows["contender"] == name) & (rows["pass"] == which) & (rows["causal"] == causal)
                line = rows[chosen].sort_values("T")
                if not line.empty:
                    label = None if causal else LABELS[name]
                    panel.plot(line["T"], line["ratio"], style, color=colour, marker="o", ms=3.5, lw=1.6, label=label)
        panel.axhline(1, color="0.3", lw=1, ls=":")
        panel.set(xscale="log", yscale="log", title=title, ylabel="time relative to PyTorch")
        panel.set_xticks(lengths, labels=[str(T) for T in lengths])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_yticks(MARKS)
        panel.yaxis.set_major_formatter(FuncFormatter(lambda mark, _: f"{mark:g}"))
        panel.yaxis.set_minor_locator(NullLocator())
        low, high = rows["ratio"].min(), rows["ratio"].max()
        panel.set_ylim(0.85 * low, 1.2 * max(1, high))
        panel.grid(color="0.92", lw=0.8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[1].set_xlabel("tokens")
    panels[0].plot([], [], "--", color="0.3", label="dashed: causal")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
    figure.suptitle(f"Time of attention, {about.get('gpu', about.get('cpu'))}, 8 heads of 64")
    figure.savefig(path, dpi=90)
