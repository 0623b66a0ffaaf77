"""The files of a study: its table, its best configuration, its summary and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.experiments import Experiment
from tsattn.experiments.run_folder import versions
from tsattn.experiments.run_sizes import device_type
from tsattn.saved_folders import write_text, write_whole
from tsattn.tuning import HeldData, Search, best_trial, error_word
from tsattn.tuning.report import figures, front, importances, trial_table

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


__all__ = ["write_study"]


def write_study(
    base: Experiment,
    held: HeldData,
    study: Study,
    search: Search,
    folder: Path,
    *,
    folds: int,
    as_it_is: Mapping[str, Any] | None,
    command: list[str],
) -> None:
    """Write the files of the study folder, each all or nothing: several processes may do so at once.

    Args:
        base: what is searched around.
        held: gives its data.
        study: with its trials.
        search: the space.
        folder: of the study; it must be there.
        folds: number of rolling origins, 0 for the validation part.
        as_it_is: what the configuration itself takes, if that is in the space.
        command: what was typed, without passwords.
    """
    trials = study.get_trials(deepcopy=False)
    write_text(folder / "trials.csv", trial_table(study, search).to_csv(index=False))
    best = best_trial(study)
    if best is None:
        return
    configs = {}
    for trial in {one.number: one for one in [*front(study), best]}.values():
        score = f"validation {error_word(trial)} {trial.values[0]:.6g}" + (
            f", the mean of {folds} rolling origins" if folds else ""
        )
        head = f"# trial {trial.number} of the study {study.study_name}: {score}\n"
        configs[f"trial_{trial.number}.yaml"] = head + search.experiment(base, trial.params).to_yaml()
    write_text(folder / "best.yaml", configs[f"trial_{best.number}.yaml"])
    if len(search.objectives) > 1:
        (folder / "front").mkdir(exist_ok=True)
        for name, text in configs.items():
            write_text(folder / "front" / name, text)
        for file in (folder / "front").glob("trial_*.yaml"):
            if file.name not in configs:  # beaten since
                file.unlink(missing_ok=True)
    shares = importances(study)
    default = next((t for t in trials if as_it_is and t.params == as_it_is and t.state.name == "COMPLETE"), None)
    states = [trial.state.name.lower() for trial in trials]
    summary = {
        "study": study.study_name,
        "data": held.of(base).name,
        "objectives": list(search.objectives),
        "constraints": dict(search.constraints),
        "validation": f"mean of {folds} rolling origins" if folds else "the validation part",
        "trials": {state: states.count(state) for state in sorted(set(states))},
        "best": {"trial": best.number, "values": best.values, "params": best.params, **_facts(best)},
        "configuration_as_it_is": default and {"trial": default.number, "values": default.values, **_facts(default)},
        "front": [trial.number for trial in front(study)],
        "importance": shares,
        "versions": versions(command, device_type(base)),
    }
    write_text(folder / "study.json", json.dumps(summary, indent=2) + "\n")
    for name, figure in figures(study, search).items():
        write_whole(folder / f"{name}.png", partial(figure.savefig, format="png", dpi=130))


def _facts(trial: FrozenTrial) -> dict[str, Any]:
    names = ("parameters", "flops", "seconds", "memory", "step", "seed", "errors", "selected_by")
    return {name: trial.user_attrs.get(name) for name in names}
