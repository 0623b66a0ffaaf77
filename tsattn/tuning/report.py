"""What a study found: tables as plain data, and figures. Validation only."""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from optuna import Study
from optuna.importance import get_param_importances
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization.matplotlib import plot_optimization_history, plot_param_importances, plot_pareto_front

from tsattn.tuning.search import Search
from tsattn.tuning.study import REASON, best_trial, error_word, reason, retries

__all__ = ["figures", "front", "importances", "trial_table"]

_AXES = {
    "flops": "flops of a forward pass of one window",
    "parameters": "parameters that are fitted",
    "seconds": "seconds of fit and validation",
    "memory": "peak memory, bytes",
}
_FACTS = ("error", "parameters", "flops", "seconds", "memory", "step", "seed")


def trial_table(study: Study, search: Search) -> pd.DataFrame:
    """A row a trial: its state, why it was pruned or failed, what it took, and what it came to."""
    on_front = {trial.number for trial in front(study)}
    rows = [
        {
            **{"trial": trial.number, "state": trial.state.name.lower()},
            **{path: trial.params.get(path) for path in search.parameters},
            **{name: trial.user_attrs.get(name) for name in _FACTS},
            "retry_of": next(iter(retries(trial)[-1:]), None),
            "feasible": all(above <= 0 for above in trial.constraints.values()),
            **{"front": trial.number in on_front, REASON: reason(trial)},
        }
        for trial in study.get_trials(deepcopy=False)
    ]
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


def figures(study: Study, search: Search) -> dict[str, Figure]:
    """Draw Optuna's plots, by name: history, importance of parameters, and front of at most three objectives."""
    best, several = best_trial(study), len(search.objectives) > 1
    name = "validation error" if best is None else f"validation {error_word(best)}"
    names = [name, *(_AXES[objective] for objective in search.objectives[1:3])]
    axes: dict[str, Any] = {}
    with warnings.catch_warnings(action="ignore"), matplotlib.rc_context({"backend": "agg"}):
        axes["history"] = plot_optimization_history(
            study, target=(lambda trial: trial.values[0]) if several else None, target_name=name
        )
        if importances(study):
            axes["importance"] = plot_param_importances(study, target=lambda trial: trial.values[0], target_name=name)
        if several:
            axes["front"] = plot_pareto_front(study, targets=lambda trial: trial.values[:3], target_names=names)
        for drawn in axes.values():
            drawn.figure.set_layout_engine("constrained")
            plt.close(drawn.figure)
    return {what: drawn.figure for what, drawn in axes.items()}
