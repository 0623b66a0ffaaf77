"""The best learning rate of a narrow transformer is the best of one four times as wide by the muP rules, and not else.

    python benchmarks/paper/mup_transfer.py [--size small|h100] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers with BTT and bilinear MLR attention are trained on drawn waves, never the same twice, at both widths with
every rate of a grid of factor 2: by the muP rules with `scaling: mup`, and as PyTorch initialises and trains, with one
rate for all and the plain scaling.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import Claim, PaperReport, new_axes, pooled
from benchmarks.paper.experiment import PaperExperiment, listed, runs_of
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import Suite

_NAMES = {"btt": "BTT", "bilinear_mlr": "bilinear MLR", "standard": "standard", "mlr": "MLR"}
_RULES = {True: "muP", False: "plain"}
_RULE = (
    "of each seed, the rate with the least validation error at either width: by how much the logarithm of that of the "
    "wide model is above that of the narrow one. It moves where the interval of 95 % of the mean (Student's t over "
    "seeds) excludes 0; else it stays where the interval of 90 % lies within a factor of 2, a step of the grid; else "
    "undecided, as where most seeds have their best rate at an edge of the grid"
)


def report(records: Records, suite: Suite) -> PaperReport:
    runs = runs_of(records).rename(columns={"learning_rate": "rate"})
    runs = runs[runs["kind"].notna()].astype({"mup": bool, "width": int, "rate": float})
    failed = runs["status"] != "done"  # as a run that diverged
    errors = {name: runs[name].astype("float64").mask(failed, math.inf) for name in ("mse", "validation_mse")}
    runs = runs.assign(**errors)
    means = _means(runs)
    kinds = list(dict.fromkeys(means["kind"]))
    return PaperReport(
        title="muP: whether learning rates go from narrow to wide",
        doc=__doc__,
        claims=[_claim(runs, kind, mup) for kind in kinds for mup in (True, False)],
        table=_table(means),
        legend="`error` is the squared error on new waves, mean of the seeds, and `spread` its standard deviation over "
        "them; it is infinite where a run diverged. A muP rate is that of a hidden weight with 768 inputs.",
        figure=_figure(means),
        caption="The error on new waves by learning rate; a star marks the rate with the least validation error.",
        differs=[
            f"A forecaster of waves, {listed(runs['steps'])} steps, in the place of language models and prompts: this "
            "asks whether the rules of the package keep what they promise.",
            "Widths 64 and 256: one step by a factor of 4.",
            "Gradients are not clipped, which would hide rates that are too high.",
            "Of bilinear MLR the factor of the logits is the same by both rules, which differ in initial weights and "
            "rates: where queries and keys are normalised its logits grow with the root of the width, those of BTT do "
            "not.",
            _least_errors(means),
        ],
    )


def _least_errors(means: pd.DataFrame) -> str:
    """Say in how many cases the muP rules do not reach as low an error as the plain rates."""
    chosen = means.loc[means.groupby(["kind", "width", "mup"])["validation"].idxmin()]
    errors = chosen.pivot_table(index=["kind", "width"], columns="mup", values="error").dropna()
    above = int((errors[True] > errors[False]).sum())
    return (
        f"By the rules the error at the best rate is above that by plain rates in {above} of {len(errors)} pairs of a "
        "model and a width: what is asked is where the best rate lies, not which is better."
    )


def _means(runs: pd.DataFrame) -> pd.DataFrame:
    of = {"error": ("mse", "mean"), "spread": ("mse", "std"), "validation": ("validation_mse", "mean")}
    groups = runs.groupby(["kind", "mup", "width", "rate"])
    return groups.agg(**of, seeds=("seed", "size")).reset_index()


def _claim(runs: pd.DataFrame, kind: str, mup: bool) -> Claim:
    own = runs[(runs["kind"] == kind) & (runs["mup"] == mup) & (runs["validation_mse"] < math.inf)]
    widths, size = sorted(own["width"].unique()), f"width {listed(own['width'])}; {listed(own['steps'])} steps"
    name = _NAMES.get(kind, kind)
    text = f"{name}: by the muP rules the best rate of the narrow model is that of the wide one."
    if not mup:
        text = f"{name}: without the muP rules the best rate moves with the width."
    if len(widths) < 2:
        return Claim(text, "no rate was run at both widths without a failure", None, _RULE, size=size)
    best, at_edge = zip(*(_best_rates(own[own["width"] == width]) for width in (widths[0], widths[-1])), strict=True)
    shift = np.log2(best[1] / best[0]).dropna()
    result = pooled(shift.rename_axis("seed").to_frame("shift").assign(size=0).set_index("size", append=True)["shift"])
    moves = True if result.verdict() is not None else False if result.is_within(1) else None
    factor, low, high = (2.0**one for one in (result.mean, result.low, result.high))
    found = f"{factor:.2f} times ({low:.2f} to {high:.2f}) from width {widths[0]} to {widths[-1]}"
    if any(2 * one.sum() > len(one) for one in at_edge):
        moves, found = None, f"{found}, with the best rates at an edge of the grid"
    elif moves is None:
        found += f"; {2**result.detectable:.1f} times would be detected"
    holds = None if moves is None else moves != mup
    return Claim(text, found, holds, _RULE, size=f"{result.seeds} seeds; {size}")


def _best_rates(runs: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the best rate of each seed, and whether it is the least or the greatest of those that the seed has."""
    errors = runs.pivot_table(index="seed", columns="rate", values="validation_mse", aggfunc="first")
    best, known = errors.idxmin(axis=1), errors.notna()
    first, last = known.idxmax(axis=1), known.loc[:, ::-1].idxmax(axis=1)
    return best, (best == first) | (best == last)


def _power(rate: float) -> str:
    """Write ``2^-9``, or ``0.003`` for a number that is no power of 2."""
    power = math.log2(rate)
    return f"2^{round(power)}" if abs(power - round(power)) < 1e-6 else f"{rate:g}"


def _table(means: pd.DataFrame) -> pd.DataFrame:
    attentions, rules = [_NAMES.get(kind, kind) for kind in means["kind"]], [_RULES[mup] for mup in means["mup"]]
    table = means.assign(attention=attentions, rules=rules, rate=[_power(rate) for rate in means["rate"]])
    return table[["attention", "rules", "width", "rate", "error", "spread", "seeds"]]


def _figure(means: pd.DataFrame) -> Figure:
    kinds = list(dict.fromkeys(means["kind"]))
    figure, axes = new_axes((9, 3.4 * max(1, len(kinds))), len(kinds), 2, sharey=True)
    for kind, line in zip(kinds, axes, strict=False):
        for (mup, name), ax in zip(_RULES.items(), line, strict=True):
            part = means[(means["kind"] == kind) & (means["mup"] == mup)]
            for number, (width, of_width) in enumerate(part.groupby("width")):
                finite = of_width[of_width["error"] < math.inf]
                style = {"color": f"C{number}", "marker": "o", "ms": 4, "capsize": 2, "label": f"width {width}"}
                ax.errorbar(finite["rate"], finite["error"], finite["spread"], **style)
                if len(finite):
                    best = finite.loc[finite["validation"].idxmin()]
                    ax.plot(best["rate"], best["error"], marker="*", ms=16 - 6 * number, color=style["color"])
            ax.set(yscale="log", title=f"{_NAMES.get(kind, kind)}, {name} rules", xlabel="learning rate")
            ax.set_xscale("log", base=2)
        line[0].set_ylabel("squared error on new waves")
    axes[0, 0].legend(frameon=False, fontsize=9)
    return figure


EXPERIMENT = PaperExperiment("mup_transfer", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
