"""What a study found: tables as plain data, and figures. Validation only."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from optuna import Study
from optuna.importance import get_param_importances
from optuna.trial import FrozenTrial, TrialState

from tsattn.figures.style import ACCENT, INK, OTHERS
from tsattn.tuning.search import Search
from tsattn.tuning.study import best_trial, error_word
from tsattn.tuning.worker import REASON

__all__ = ["front", "importances", "plot_front", "plot_history", "plot_importances", "trial_table"]

_AXES = {
    "flops": "flops of a forward pass of one window",
    "parameters": "parameters that are fitted",
    "seconds": "seconds of fit and validation",
    "memory": "peak memory, bytes",
}
_FACTS = ("error", "parameters", "flops", "seconds", "memory", "step", "seed", "retry_of")


def trial_table(study: Study, search: Search) -> pd.DataFrame:
    """A row a trial: its state, why it was pruned or failed, what it took, and what it came to."""
    on_front = {trial.number for trial in front(study)}
    rows = []
    for trial in study.get_trials(deepcopy=False):
        row: dict[str, Any] = {"trial": trial.number, "state": trial.state.name.lower()}
        row |= {path: trial.params.get(path) for path in search.parameters}
        row |= {name: trial.user_attrs.get(name) for name in _FACTS}
        row |= {"feasible": all(above <= 0 for above in trial.constraints.values()), "front": trial.number in on_front}
        row[REASON] = trial.user_attrs.get(REASON)
        rows.append(row)
    return pd.DataFrame(rows)


def front(study: Study) -> list[FrozenTrial]:
    """The trials that no other beats in every objective, by rising error; of one objective, the best."""
    if len(study.directions) == 1:
        best = best_trial(study)
        return [] if best is None else [best]
    return sorted(study.best_trials, key=lambda trial: (trial.values, trial.number))


def importances(study: Study) -> dict[str, float]:
    """The share that each parameter has in how the errors differ, by PED-ANOVA (Watanabe et al. 2023).

    Nothing where fewer than two completed trials differ in their error: there is nothing to be explained.
    """
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.values[0] for trial in done}) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*PedAnova.*")  # that low is good
        warnings.filterwarnings("ignore", message=".*less than 2 trials.*")
        shares = get_param_importances(study, target=lambda trial: trial.values[0])
    return {path: round(float(share), 4) for path, share in shares.items()}


def plot_history(study: Study) -> Figure:
    """The error of each completed trial, and the lowest so far."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    pruned = [t for t in study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)) if t.intermediate_values]
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.subplots()
    numbers, errors = [t.number for t in done], [t.values[0] for t in done]
    ax.plot(numbers, errors, "o", color=INK, ms=5, label="completed")
    if pruned:
        last = [min(t.intermediate_values.values()) for t in pruned]
        ax.plot([t.number for t in pruned], last, "x", color="0.6", ms=5, label="stopped early")
    ax.step(numbers, np.minimum.accumulate(errors), where="post", color=ACCENT, lw=1.5, label="lowest so far")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("trial")
    ax.set_ylabel(_error_axis(study))
    _finish(figure, ax)
    return figure


def plot_importances(study: Study, shares: dict[str, float]) -> Figure:
    """A bar for each parameter, the most important on top."""
    figure = Figure(figsize=(6.4, 1.0 + 0.35 * max(1, len(shares))), layout="constrained")
    ax = figure.subplots()
    ordered = sorted(shares.items(), key=lambda item: item[1])
    ax.barh([path for path, _ in ordered], [share for _, share in ordered], color=ACCENT)
    ax.set_xlabel(f"importance for {_error_axis(study)}")
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def plot_front(study: Study, search: Search) -> Figure:
    """The error against each other objective; the Pareto front of all of them stands out."""
    others = search.objectives[1:]
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    best = front(study)
    figure = Figure(figsize=(5.2 * len(others), 3.8), layout="constrained")
    for place, (ax, name) in enumerate(zip(figure.subplots(1, len(others), squeeze=False)[0], others, strict=True), 1):
        costs = [t.values[place] for t in done]
        ax.plot(costs, [t.values[0] for t in done], "o", color=OTHERS[3], ms=4, label="trials")
        points = sorted((t.values[place], t.values[0]) for t in best)
        xs, ys = [x for x, _ in points], [y for _, y in points]
        ax.plot(xs, ys, "o", color=ACCENT, ms=6, label="Pareto front")
        if len(others) == 1:
            ax.step(xs, ys, where="post", color=ACCENT, lw=1.2)
        for trial in best:
            at = trial.values[place], trial.values[0]
            ax.annotate(str(trial.number), at, (4, 4), textcoords="offset points", size=8)
        ax.set_xlabel(_AXES[name])
        ax.set_ylabel(_error_axis(study))
        if name != "seconds" and min(xs, default=1) > 0 and max(xs, default=1) > 10 * min(xs, default=1):
            ax.set_xscale("log")
        _finish(figure, ax, legend=place == 1)
    return figure


def _error_axis(study: Study) -> str:
    best = best_trial(study)
    return "validation error" if best is None else f"validation {error_word(best)}"


def _finish(figure: Figure, ax: Any, legend: bool = True) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        figure.legend(*ax.get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False, fontsize=9)
