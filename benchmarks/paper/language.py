"""Multi-level attention makes more of the same computation in language models than standard attention and windows do.

    python benchmarks/paper/language.py [--text FILE] [--size small|full] [--jobs N] [--dry-run] [--report-only] ...

Causal transformers of six layers, whose heads have 64 components, read pieces of a text character by character (bytes
of UTF-8; by default the documentation strings of Python's standard library). Their loss is the cross-entropy of the
next character, on text that chose nothing; of each arm and width the learning rate is chosen by validation.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import (
    LEAST_SEEDS,
    Claim,
    PaperReport,
    chosen_by_validation,
    described_by,
    runs_of,
)
from benchmarks.paper.experiment import PaperExperiment
from benchmarks.paper.text_windows import SYMBOLS
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.wording import with_spread

__all__ = ["EXPERIMENT", "NAMES", "main", "report"]

NAMES = {
    "standard": "standard attention",
    "mlr": "MLR attention",
    "swa": "sliding windows",
    "global_swa": "global attention with sliding windows",
}

_RULE = (
    "at every width whose flops lie within those of the other, the loss is below the line through its losses by "
    "log flops, seed by seed, in the mean by more than the standard deviation over seeds"
)


def report(records: Records) -> PaperReport:
    """The report of the records."""
    runs = described_by(
        runs_of(records),
        width="model.backbone.d_model",
        layers="model.backbone.num_layers",
        learning_rate="model.learning_rate",
        steps="trainer.max_steps",
        batch_size="data.init_args.batch_size",
    )
    chosen = chosen_by_validation(runs, ["width", "attention"], ["learning_rate"], "validation_mae")
    embedding = 2 * chosen["horizon"] * chosen["width"] * SYMBOLS  # the read-out; to look a character up takes none
    chosen = chosen.assign(cost=(chosen["flops"] - embedding).astype("float64"), loss=chosen["mae"])
    chosen = chosen.sort_values(["width", "attention", "seed"], ignore_index=True)

    def each(column: str) -> str:
        return ", ".join(f"{value:g}" for value in sorted(chosen[column].dropna().unique()))

    others = [name for name in NAMES if name != "mlr"]
    return PaperReport(
        title="Language models",
        about=[" ".join((__doc__ or "").split("\n\n")[-1].split())],
        claims=[_claim(chosen, other) for other in others],
        table=_table(chosen),
        legend="`loss` is the cross-entropy in nats a character, the mean of the seeds, and `spread` its standard "
        "deviation over them; `validation` is that by which the rate was chosen; flops are those of a forward pass of "
        "one piece without the read-out, as they are executed; `rates` is of how many learning rates one was chosen.",
        figure=_figure(chosen),
        caption="The loss on held-out text against the flops of a piece, without those of the read-out: mean of the "
        "seeds, and each of them as a dot.",
        differs=[
            f"Pieces of {each('horizon')} characters, widths {each('width')}, {each('layers')} layers, {each('steps')} "
            f"steps of {each('batch_size')} pieces; the paper has 6 layers and pieces of 1024 tokens of OpenWebText.",
            "Bytes in the place of tokens of several characters.",
            f"The learning rate is the best of those tried, among which {each('learning_rate')} were chosen.",
        ],
    )


def _claim(chosen: pd.DataFrame, other: str) -> Claim:
    """Whether MLR attention lies below the line through the losses of another."""
    text = f"For the same computation MLR attention has a lower loss than {NAMES[other]}."
    found = _below(chosen, other)
    if found.empty:
        return Claim(text, "no width has flops within those of the other", None, _RULE)
    said, verdicts = [], []
    for width, part in found.groupby("width"):
        mean, spread = float(part["difference"].mean()), float(part["difference"].std())
        said.append(f"width {width}: {mean:+.3f} ± {spread:.3f}".replace("-", "\N{MINUS SIGN}"))
        verdicts.append(None if len(part) < LEAST_SEEDS else mean < -spread)
    line = chosen[chosen["attention"] == other].groupby("width")["loss"].agg(["mean", "std"])
    losses = ", ".join(with_spread(float(row["mean"]), float(row["std"])) for _, row in line.iterrows())
    holds = None if None in verdicts else all(verdicts)
    return Claim(text, f"{'; '.join(said)} nats beside the line through {losses}", holds, _RULE)


def _below(chosen: pd.DataFrame, other: str) -> pd.DataFrame:
    """By width and seed, the loss of MLR attention less that of another with as many flops."""
    rows = []
    for seed, part in chosen.groupby("seed"):
        line = part[part["attention"] == other].sort_values("cost")
        if len(line) < 2:
            continue
        for row in part[part["attention"] == "mlr"].itertuples():
            if line["cost"].iloc[0] <= row.cost <= line["cost"].iloc[-1]:
                there = np.interp(np.log(row.cost), np.log(line["cost"]), line["loss"])
                rows.append({"width": row.width, "seed": seed, "difference": row.loss - there})
    return pd.DataFrame(rows, columns=["width", "seed", "difference"])


def _table(chosen: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (width, attention), part in chosen.groupby(["width", "attention"], sort=False):
        rows.append(
            {
                "width": int(width),
                "arm": attention,
                "loss": part["loss"].mean(),
                "spread": part["loss"].std(),
                "validation": part["validation_mae"].mean(),
                "flops": int(part["cost"].iloc[0]),
                "seeds": len(part),
                "learning rate": float(part["learning_rate"].iloc[0]),
                "rates": int(part["candidates"].iloc[0]),
                "parameters": int(part["parameters"].iloc[0]),
                "seconds": part["seconds"].mean(),
            }
        )
    return pd.DataFrame(rows)


def _figure(chosen: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    ax = figure.subplots()
    for number, attention in enumerate(dict.fromkeys(chosen["attention"])):
        part = chosen[chosen["attention"] == attention]
        means = part.groupby("cost")["loss"].mean()
        colour = f"C{number % 10}"
        ax.plot(
            means.index,
            means,
            marker="osD^vP*X"[number % 8],
            color=colour,
            lw=1.2,
            label=NAMES.get(attention, attention),
        )
        ax.plot(part["cost"], part["loss"], ".", color=colour, ms=4, alpha=0.6)
    ax.set(xscale="log", xlabel="flops of a piece, without the read-out", ylabel="loss, nats a character")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)
    return figure


EXPERIMENT = PaperExperiment(
    "language",
    __doc__ or "",
    report,
    data_options={"text": "a text to learn; by default the documentation strings of Python's library"},
)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
