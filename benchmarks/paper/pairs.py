"""Attentions compared seed by seed: the questions of a suite, pooled over sizes, and their report.

Questions of the same words are one claim. Their models are those that a predictor of the suite names, at the rate that
validation chose among all predictors of the same backbone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import MIN_SEEDS, Claim, PaperReport, Pooled, new_axes, pooled
from benchmarks.paper.experiment import EDGE, OURS, chosen_by_validation, listed
from tsattn.leaderboard.suite import Suite

_MINUS = "\N{MINUS SIGN}"
_RULE = (
    "holds: the mean over sizes of the difference from what has the same seed{of}, lies below 0 by its interval of "
    "95 % (Student's t, seeds as clusters, sizes of equal weight); refuted at this size: above 0; else undecided, with "
    "the least difference that as many seeds detect in four of five cases. Undecided are also fewer than "
    f"{MIN_SEEDS} seeds, and what has the higher error with its rate at the edge of those tried at most sizes{{cost}}. "
    "No p-value is corrected for the number of claims"
)
_BY_COST = ", or with fewer flops at some size, so that its size explains it"
_LEGEND = (
    "`error` is the mean of the seeds, and `spread` its standard deviation over them; {what}; `rates` is of how many "
    f"learning rates one was chosen. {EDGE} `seconds` are the median of the seeds."
)


def paired_report(
    runs: pd.DataFrame,
    suite: Suite,
    title: str,
    doc: str | None,
    differs: Callable[[pd.DataFrame], Sequence[str]],
    *,
    what: str,
    is_log: bool = True,
    by_cost: bool = False,
    columns: Sequence[str] = (),
) -> PaperReport:
    """Report runs with their ``error``, ``validation`` error and ``cost``, by the questions of their suite.

    Errors are compared by their ratio if `is_log`, else by their difference in nats; with `by_cost` nothing is decided
    by a model that is ahead with more computation. `columns` of the runs are added to the table, and explained by
    `what` in the legend.
    """
    models = chosen_models(runs, suite)
    return PaperReport(
        title=title,
        doc=doc,
        claims=answers(models, suite, is_log=is_log, by_cost=by_cost),
        table=_table(models, columns),
        legend=_LEGEND.format(what=what),
        figure=_figure(models, is_log=is_log),
        caption="The error against the flops: mean of the seeds, and each of them as a dot.",
        differs=differs(models),
    )


def chosen_models(runs: pd.DataFrame, suite: Suite) -> pd.DataFrame:
    """Choose the rate of each attention and backbone by validation; ``model`` is ``size`` and attention."""
    sizes, runs = _sizes(suite), runs[runs["kind"].notna()]
    runs = runs.assign(size=[sizes[name] for name in runs["predictor"]])
    chosen = chosen_by_validation(runs, ["size", "attention"], ["learning_rate"], "validation")
    return chosen.assign(model=chosen["size"] + ", " + chosen["attention"])


def _sizes(suite: Suite) -> dict[str, str]:
    """Return by predictor the shortest name of those with the same backbone."""
    backbones = {name: json.dumps(one.backbone, sort_keys=True) for name, one in suite.predictors.items()}
    shortest = {backbones[name]: name for name in sorted(backbones, key=len, reverse=True)}
    return {name: shortest[backbone] for name, backbone in backbones.items()}


def answers(models: pd.DataFrame, suite: Suite, *, is_log: bool, by_cost: bool = False) -> list[Claim]:
    """Answer the questions of a suite; those of the same words are one."""
    asked: dict[str, list[list[str]]] = {}
    sizes = _sizes(suite)
    for question in suite.questions:
        pair = (name.partition(", ") for name in (*question.models, question.against))
        asked.setdefault(question.ask, []).append([f"{sizes[size]}, {attention}" for size, _, attention in pair])
    rule = _RULE.format(of=", of logarithms" if is_log else "", cost=_BY_COST if by_cost else "")
    return [_answer(models, ask, pairs, rule, is_log=is_log, by_cost=by_cost) for ask, pairs in asked.items()]


def _answer(
    models: pd.DataFrame, ask: str, pairs: Sequence[Sequence[str]], rule: str, *, is_log: bool, by_cost: bool
) -> Claim:
    text, is_of_paper = ask.removesuffix(OURS), not ask.endswith(OURS)
    parts, of_seeds = [], ["error", "cost", "is_edge", "width", "steps"]
    for pair in pairs:
        one, other = (models[models["model"] == name].set_index("seed")[of_seeds] for name in pair)
        parts.append(one.join(other.add_suffix("_other"), how="inner").assign(size=len(parts)))
    found = pd.concat(parts).reset_index()
    if found.empty:
        return Claim(text, "no such runs", None, rule, is_of_paper)
    errors = found[["error", "error_other"]].astype("float64")
    logs = np.log(errors) if is_log else errors
    result = pooled((logs["error"] - logs["error_other"]).groupby([found["size"], found["seed"]]).first())
    costs = found["cost"] / found["cost_other"]
    verdict, why = result.verdict(), ""
    if verdict is not None:
        if found.groupby("size")["is_edge_other" if verdict else "is_edge"].first().mean() > 0.5:
            verdict, why = None, ", where what is higher has its rate at the edge of those tried"
        elif by_cost and (costs.max() > 1 if verdict else costs.min() < 1):
            verdict, why = None, ", where what is lower has more flops"
    means = errors.groupby(found["size"]).mean().itertuples(index=False)
    beside = "; ".join(f"{one:.3g} against {other:.3g}" for one, other in means)
    flops = " to ".join(f"{one:.2f}" for one in dict.fromkeys([round(costs.min(), 2), round(costs.max(), 2)]))
    words = f"{_said(result, is_log=is_log)}{why} ({beside}), with {flops} times the flops"
    widths = pd.concat([found["width"], found["width_other"]])
    size = f"width {listed(widths)}; {result.seeds} seeds; {listed(found['steps'])} steps"
    return Claim(text, words, verdict, rule, is_of_paper, size)


def _said(result: Pooled, *, is_log: bool) -> str:
    mean, low, high, least = result.mean, result.low, result.high, result.detectable
    if is_log:
        mean, low, high, least = (float(np.exp(one)) for one in (mean, low, high, -least))
        words, detected = f"{mean:.2f} times ({low:.2f} to {high:.2f})", f"{least:.2f} times"
    else:
        words, detected = f"{mean:+.3f} nats ({low:+.3f} to {high:+.3f})", f"{least:.3f} nats"
    words += f", lower in {result.below} of {result.pairs} pairs"
    words += f", p {max(result.p, 0.001):.3f}" if result.verdict() is not None else f"; {detected} would be detected"
    return words.replace("-", _MINUS)


def _table(models: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    rows = []
    for (size, attention), part in models.groupby(["size", "attention"], sort=False):
        first = part.iloc[0]
        row = {"model": size, "attention": attention, "error": part["error"].mean(), "spread": part["error"].std()}
        row |= {name: int(first[name]) for name in columns} | {"flops": int(first["cost"]), "seeds": len(part)}
        row |= {"learning rate": float(first["learning_rate"]), "rates": int(first["candidates"])}
        row |= {"edge": "yes" if first["is_edge"] else "no", "parameters": int(first["parameters"])}
        rows.append({**row, "seconds": part["seconds"].astype("float64").median()})
    return pd.DataFrame(rows).sort_values(["flops", "model", "attention"], ignore_index=True)


def _figure(models: pd.DataFrame, *, is_log: bool) -> Figure:
    figure, ((ax,),) = new_axes((8, 4.5))
    few = models["heads"].fillna(0) == 1
    series = models["attention"].where(~few, models["attention"] + ", one head")
    for number, (name, part) in enumerate(models.astype({"cost": "float64"}).groupby(series, sort=False)):
        style = {"color": f"C{number % 10}", "marker": "osD^vP*X"[number % 8]}
        means = part.groupby("cost")["error"].mean()
        ax.plot(means.index, means, **style, lw=1.2, label=name)
        ax.plot(part["cost"], part["error"], ".", color=style["color"], ms=4, alpha=0.6)
    ax.set(xscale="log", yscale="log" if is_log else "linear", xlabel="flops of a forward pass", ylabel="error")
    figure.legend(frameon=False, fontsize=9, loc="outside right upper")
    return figure
