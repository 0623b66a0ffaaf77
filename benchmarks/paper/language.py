"""Multi-level attention makes more of the same computation in language models than standard attention and windows do.

    python benchmarks/paper/language.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Causal transformers of six layers, whose heads have 64 components, read pieces of a text character by character (bytes
of UTF-8; by default the documentation strings of Python's standard library). Their loss is the cross-entropy of the
next character, on text that chose nothing; of each arm and width the learning rate is chosen by validation.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.character_transformer import forward_flops
from benchmarks.paper.claims import Claim, PaperReport, mean_interval, most, new_axes, with_spread
from benchmarks.paper.experiment import BEHIND, EDGE, MIN_SEEDS, PaperExperiment, chosen_by_validation, listed, runs_of
from tsattn.leaderboard.records import Records

NAMES = {
    "standard": "standard attention",
    "mlr": "MLR attention",
    "swa": "sliding windows",
    "global_swa": "global attention with sliding windows",
}
_LEAST_WIDTHS = 2
_RULE = (
    "holds: at most widths whose flops lie within those of the other, two at least, the loss is below the line through "
    "its losses by log flops, by an interval of 95 % of the mean over seeds (Student's t), and above it at none; the "
    f"reverse does not hold; else it is not decided, nor by what lies above {BEHIND}, at that width or at one of the "
    "two between which the line is drawn; an interval is of one width, and not corrected for how many there are"
)


def report(records: Records) -> PaperReport:
    chosen = chosen_by_validation(runs_of(records), ["width", "attention"], ["learning_rate"], "validation_mae")
    costs = [float(forward_flops(one, int(T))) for one, T in zip(chosen["backbone"], chosen["horizon"], strict=True)]
    chosen = chosen.assign(cost=costs, loss=chosen["mae"])
    chosen = chosen.sort_values(["width", "attention", "seed"], ignore_index=True)
    return PaperReport(
        title="Language models",
        doc=__doc__,
        claims=[_claim(chosen, name) for name in NAMES if name != "mlr"],
        table=_table(chosen),
        legend="`loss` is the cross-entropy in nats a character, the mean of the seeds, and `spread` its standard "
        "deviation over them; `validation` is that by which the rate was chosen; flops are those of a forward pass of "
        "one piece without the read-out, in closed form; `rates` is of how many learning rates one was chosen. "
        f"{EDGE}",
        figure=_figure(chosen),
        caption="The loss on held-out text against the flops of a piece, without those of the read-out: mean of the "
        "seeds, and each of them as a dot.",
        differs=[
            f"Pieces of {listed(chosen['horizon'])} characters, widths {listed(chosen['width'])}, "
            f"{listed(chosen['layers'])} layers, {listed(chosen['steps'])} steps of {listed(chosen['batch_size'])} "
            "pieces; the paper has 6 layers and pieces of 1024 tokens of OpenWebText, and trains so long that "
            "far context pays: a few hundred steps teach little but the use of near characters.",
            "Bytes in the place of tokens of several characters.",
            "Logits are scaled by 1 / sqrt(r) of the head, those of the two parts of global attention with sliding "
            "windows by that of each part, whose weights are averaged, which the authors add; queries and keys are not "
            "normalised. The paper's MLR attention scales the logits of a level by 1 / r_l, divides by the number of "
            "levels that a pair shares, and normalises queries and keys.",
            "Between two widths the loss of another attention is taken to lie on a straight line by log flops, which "
            "lies a little above a curve that levels off: some thousandths of a nat in favour of MLR attention.",
            f"The learning rate is the best of those tried, among which {listed(chosen['learning_rate'])} were chosen.",
        ],
    )


def _claim(chosen: pd.DataFrame, other: str) -> Claim:
    text = f"For the same computation MLR attention has a lower loss than {NAMES[other]}."
    found = _below(chosen, other)
    if found.empty:
        return Claim(text, "no width has flops within those of the other", None, _RULE)
    line = chosen[chosen["attention"] == other]
    said, verdicts = [], []
    for width, part in found.groupby("width"):
        low, high = mean_interval(part["difference"])
        words = f"width {width}: {float(part['difference'].mean()):+.3f} nats ({low:+.3f} to {high:+.3f})"
        words = words.replace("-", "\N{MINUS SIGN}")
        verdict = (True if high < 0 else False if low > 0 else None) if len(part) >= MIN_SEEDS else None
        if verdict is not None and part["line_is_edge" if verdict else "is_edge"].any():
            verdict, words = None, f"{words}, where what lies above has its rate at the edge of those tried"
        verdicts.append(verdict)
        said.append(words)
    points = line.groupby("width")["loss"].agg(["mean", "std"])
    losses = ", ".join(with_spread(float(mean), float(std)) for mean, std in points.itertuples(index=False))
    holds = most(verdicts) if len(verdicts) >= _LEAST_WIDTHS else None
    return Claim(text, f"{'; '.join(said)}; beside the line through {losses}", holds, _RULE)


def _below(chosen: pd.DataFrame, other: str) -> pd.DataFrame:
    """Return by width and seed the loss of MLR attention less that of another with as many flops.

    ``line_is_edge`` is whether the rate of the other is at the edge at one of the two widths next to these flops.
    """
    rows = []
    for seed, part in chosen.groupby("seed"):
        line = part[part["attention"] == other].sort_values("cost")
        if len(line) < 2:
            continue
        for row in part[part["attention"] == "mlr"].itertuples():
            if line["cost"].iloc[0] <= row.cost <= line["cost"].iloc[-1]:
                there = np.interp(np.log(row.cost), np.log(line["cost"]), line["loss"])
                place = int(np.clip(np.searchsorted(line["cost"], row.cost), 1, len(line) - 1))
                at_edge = bool(line["is_edge"].iloc[place - 1 : place + 1].any())
                rows.append((row.width, seed, row.loss - there, row.is_edge, at_edge))
    return pd.DataFrame(rows, columns=["width", "seed", "difference", "is_edge", "line_is_edge"])


def _table(chosen: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (width, attention), part in chosen.groupby(["width", "attention"], sort=False):
        first = part.iloc[0]
        row = {"width": int(width), "arm": attention, "loss": part["loss"].mean(), "spread": part["loss"].std()}
        row |= {"validation": part["validation_mae"].mean(), "flops": int(first["cost"]), "seeds": len(part)}
        row |= {"learning rate": float(first["learning_rate"]), "rates": int(first["candidates"])}
        row |= {"edge": "yes" if first["is_edge"] else "no", "parameters": int(first["parameters"])}
        rows.append({**row, "seconds": part["seconds"].mean()})
    return pd.DataFrame(rows)


def _figure(chosen: pd.DataFrame) -> Figure:
    figure, ((ax,),) = new_axes((7, 4.5))
    for number, attention in enumerate(dict.fromkeys(chosen["attention"])):
        part = chosen[chosen["attention"] == attention]
        means = part.groupby("cost")["loss"].mean()
        style = {"color": f"C{number % 10}", "marker": "osD^vP*X"[number % 8]}
        ax.plot(means.index, means, **style, lw=1.2, label=NAMES.get(attention, attention))
        ax.plot(part["cost"], part["loss"], ".", color=style["color"], ms=4, alpha=0.6)
    ax.set(xscale="log", xlabel="flops of a piece, without the read-out", ylabel="loss, nats a character")
    ax.legend(frameon=False, fontsize=9)
    return figure


EXPERIMENT = PaperExperiment("language", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
