"""The best learning rate of a narrow transformer is the best of one four times as wide by the muP rules, and not else.

    python benchmarks/paper/mup_transfer.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

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
from scipy import stats

from benchmarks.paper.claims import Claim, PaperReport, new_axes, with_spread
from benchmarks.paper.experiment import MIN_SEEDS, PaperExperiment, listed, runs_of
from tsattn.leaderboard.records import Records

COST = 1.05  # the error of the narrow model's rate over the wide one's least error, up to which it is as good
_DRAWS, _SEED = 10_000, 20240607
_NAMES = {"btt": "BTT", "bilinear_mlr": "bilinear MLR", "standard": "standard", "mlr": "MLR"}
_RULES = {True: "muP", False: "plain"}
_RULE = (
    "the rates with the least validation error, neither of them at the edge of the grid; the interval of 95 % of what "
    "the narrow model's costs the wide one, where it goes over, lies below "
    f"{COST:g} of its error, and where it does not, above that, or the wide model diverges; and a rate as far away as "
    "the widths differ costs more than that. The interval is over seeds: of what each rate costs by Student's t, and "
    "of which rate is the narrow model's by drawing its seeds anew"
)


def report(records: Records) -> PaperReport:
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
        claims=[_claim(runs, means, kind, mup) for kind in kinds for mup in (True, False)],
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
        f"By the rules the error at the best rate is above that by plain rates in {above} of {len(errors)} pairs of an "
        "arm and a width: what is asked is where the best rate lies, not which is better."
    )


def _means(runs: pd.DataFrame) -> pd.DataFrame:
    of = {"error": ("mse", "mean"), "spread": ("mse", "std"), "validation": ("validation_mse", "mean")}
    groups = runs.groupby(["kind", "mup", "width", "rate"])
    return groups.agg(**of, seeds=("seed", "size")).reset_index()


def _claim(runs: pd.DataFrame, means: pd.DataFrame, kind: str, mup: bool) -> Claim:
    part = means[(means["kind"] == kind) & (means["mup"] == mup)]
    widths = sorted(part["width"].unique())
    text = f"{_NAMES.get(kind, kind)}: the best rate of the narrow model is the best of the wide one"
    text += " by the muP rules." if mup else ", which it is not without the muP rules."
    narrow, wide = (part[part["width"] == width].set_index("rate") for width in (widths[0], widths[-1]))
    if not all((table["validation"] < math.inf).any() for table in (narrow, wide)):
        return Claim(text, "no rate was run at both widths without a failure", None, _RULE)
    first, second = float(narrow["validation"].idxmin()), float(wide["validation"].idxmin())
    own = runs[(runs["kind"] == kind) & (runs["mup"] == mup)]
    low, cost, high = _cost(*(own[own["width"] == width] for width in (widths[0], widths[-1])), first, second)
    least = with_spread(float(wide.loc[second, "error"]), float(wide.loc[second, "spread"]))
    costs = f"costs the wide model {cost:.3f} ({low:.3f} to {high:.3f}) of its least error"
    if math.isinf(cost):
        costs = "makes the wide model diverge"
    found = f"best at {widths[0]}: {_power(first)}, at {widths[-1]}: {_power(second)} ({least}); the former {costs}"
    transfers = True if high < COST else False if low > COST else None
    both = (first, narrow), (second, wide)
    at_edge = {_power(rate) for rate, table in both if rate in (min(table.index), max(table.index))}
    if at_edge:
        found += f"; {' and '.join(sorted(at_edge))} is at the edge of the grid"
    errors, factor = wide["error"], widths[-1] / widths[0]
    near = errors[(errors.index >= second / factor) & (errors.index <= second * factor)]
    is_curved = bool((near > COST * errors[second]).any())
    if not is_curved:
        found += "; no rate near by costs the wide model more"
    has_all = part["seeds"].min() >= max(MIN_SEEDS, part["seeds"].max())
    if at_edge or not is_curved or not has_all:
        transfers = None
    return Claim(text, found, transfers if mup or transfers is None else not transfers, _RULE)


def _cost(narrow: pd.DataFrame, wide: pd.DataFrame, first: float, second: float) -> tuple[float, float, float]:
    """Return the mean ratio over seeds of the wide model's errors at the best rates of both, in its interval.

    Which rate is the narrow model's is as uncertain as its seeds differ: it is chosen again from seeds drawn with
    replacement, and each choice costs what Student's t over the seeds of the wide model says.
    """
    errors = _by_rate(wide, "mse")
    ratios = {float(rate): column.dropna().to_numpy() for rate, column in errors.div(errors[second], axis=0).items()}
    if np.isinf(ratios[first]).any():
        return (math.inf,) * 3
    cost = math.exp(float(np.log(ratios[first]).mean()))
    if len(errors) < MIN_SEEDS:
        return 0.0, cost, math.inf
    rng = np.random.default_rng(_SEED)
    validation = _by_rate(narrow, "validation_mse")
    seeds = rng.integers(0, len(validation), (_DRAWS, len(validation)))
    means = validation.fillna(math.inf).to_numpy()[seeds].mean(1)
    chosen = np.asarray(validation.columns)[means.argmin(1)]
    costs = np.full(len(chosen), math.inf)
    for rate in set(chosen):
        logs = np.log(ratios.get(rate, [math.inf]))
        if len(logs) >= MIN_SEEDS and np.isfinite(logs).all():
            spread = stats.sem(logs) * rng.standard_t(len(logs) - 1, len(chosen))
            costs = np.where(chosen == rate, np.exp(logs.mean() + spread), costs)
    low, high = np.quantile(costs, [0.025, 0.975], method="nearest")
    return float(low), cost, float(high)


def _by_rate(runs: pd.DataFrame, error: str) -> pd.DataFrame:
    return runs.pivot_table(index="seed", columns="rate", values=error, aggfunc="first")


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
