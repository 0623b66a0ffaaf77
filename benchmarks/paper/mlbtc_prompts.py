"""Which form of MLBTC learns regression in context, where heads of as many parameters have too low a rank.

    python benchmarks/paper/mlbtc_prompts.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers are trained on prompts of 2 d pairs `(x, w . x)` with scores of one, two or more levels that are of low
rank, block-diagonal (bilinear MLR) or shuffled between their two factors (BTT), and are scored by the error of the last
value of 3200 new prompts, over d. Forms are compared at equal numbers of parameters of the scores, each at the learning
rate with the least validation error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import Claim, PaperReport, most, paragraph
from benchmarks.paper.experiment import PaperExperiment
from benchmarks.paper.mlbtc import ALL, DIAGONAL, LOW_RANK, MIXED, NAMES, SHUFFLED, family
from benchmarks.paper.prompt_arms import (
    LEGEND,
    arms_of_prompts,
    best_arm,
    described_prompts,
    is_better,
    prompts_table,
    said,
    solved_prompts,
)
from benchmarks.paper.runs import BEHIND, EDGE, listed, runs_of
from tsattn.leaderboard.analysis import STANDARD
from tsattn.leaderboard.records import Records

_QUESTIONS = (
    ((DIAGONAL,), LOW_RANK, "Levels of blocks (bilinear MLR) learn better than low rank alone."),
    ((SHUFFLED,), LOW_RANK, "One shuffled level (BTT) learns better than low rank alone."),
    ((MIXED, ALL), SHUFFLED, "A shuffled level beside another learns better than a shuffled one alone."),
    ((SHUFFLED, MIXED, ALL), DIAGONAL, "Forms with a shuffled level learn better than levels of blocks."),
    (
        (LOW_RANK,),
        STANDARD,
        "Low rank alone, which has the form of standard attention and begins as MLBTC does, learns better than that.",
    ),
)
_RULE = (
    "at most numbers of parameters, between the forms that validation chose: the error is lower with every seed, and "
    "the interval of 95 % of the difference of mean logarithms excludes 0; nothing is decided by a form that is worse "
    f"{BEHIND}; intervals are not corrected for how many there are"
)


def report(records: Records) -> PaperReport:
    """Report the records."""
    runs = described_prompts(runs_of(records))
    chosen, solved = arms_of_prompts(runs), solved_prompts(runs)
    chosen = chosen.assign(family=[family(one) for one in chosen["described"]])
    return PaperReport(
        title="Which form of MLBTC learns in context",
        about=[paragraph(__doc__)],
        claims=[_answer(chosen, *question) for question in _QUESTIONS],
        table=prompts_table(chosen, solved),
        legend=f"{LEGEND} {EDGE} {NAMES}",
        figure=_figure(chosen),
        caption="The error of the last value over d by form: mean of the seeds, and each of them as a dot. Forms of "
        "one colour have as many parameters of the scores.",
        differs=[
            "The paper defines the family, and tries its members BTT and bilinear MLR.",
            f"d {listed(chosen['dimensions'])}, width {listed(chosen['width'])}, {listed(chosen['heads'])} heads, "
            f"{listed(chosen['steps'])} steps of {listed(chosen['batch_size'])} prompts, and the learning rates "
            f"{listed(runs.loc[runs['kind'].notna(), 'learning_rate'])}.",
            "Logits of MLBTC are divided by the root of the width, those of standard attention by that of the size of "
            "a head; no queries or keys are normalised. Those of MLBTC begin about three times as large, whichever the "
            "form, so that only comparisons among its forms are of structure alone.",
            "Of a family the form with the least validation error answers; families have different numbers of forms.",
        ],
    )


def _answer(chosen: pd.DataFrame, families: Sequence[str], against: str, text: str) -> Claim:
    """Compare the forms of some families and of another that validation chose, at each number of parameters."""
    words, verdicts = [], []
    for (d, width, scores), part in chosen.groupby(["dimensions", "width", "scores"]):
        arms, others = part[part["family"].isin(families)], part[part["family"] == against]
        if arms.empty or others.empty:
            continue
        best, other = best_arm(arms), best_arm(others)
        verdicts.append(is_better(best, other))
        words.append(
            f"d {int(d)}, width {int(width)}, {int(scores):,} parameters: {said(best)} ({best['arm'].iloc[0]}) beside "
            f"{said(other)} ({other['arm'].iloc[0]})"
        )
    return Claim(text, "; ".join(words) or "no such runs", most(verdicts), _RULE, is_of_paper=False)


def _figure(chosen: pd.DataFrame) -> Figure:
    tables = list(chosen.groupby(["dimensions", "width"], sort=False))
    forms = max((part["arm"].nunique() for _, part in tables), default=1)
    figure = Figure(figsize=(7, 1 + len(tables) * (1 + 0.3 * forms)), layout="constrained")
    axes = figure.subplots(max(1, len(tables)), 1, squeeze=False)[:, 0]
    for ax, ((d, width), part) in zip(axes, tables, strict=False):
        colours = {scores: f"C{number % 10}" for number, scores in enumerate(sorted(part["scores"].unique()))}
        arms = list(dict.fromkeys(part.sort_values(["scores", "family", "arm"])["arm"]))
        for place, arm in enumerate(arms):
            own = part[part["arm"] == arm]
            colour = colours[own["scores"].iloc[0]]
            ax.plot(own["error"], [place] * len(own), ".", color=colour, alpha=0.6)
            ax.plot(own["error"].mean(), place, "o", color=colour)
        for scores, colour in colours.items():
            ax.plot([], [], "o", color=colour, label=f"{int(scores):,} parameters")
        ax.set_yticks(range(len(arms)), arms)
        ax.invert_yaxis()
        ax.set(xscale="log", xlabel="error of the last value, over d", title=f"d = {int(d)}, width {int(width)}")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8)
    return figure


EXPERIMENT = PaperExperiment("mlbtc_prompts", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
