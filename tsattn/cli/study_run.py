"""A study from the command line: checked, run, and written down."""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

from optuna import Study
from optuna.trial import FrozenTrial, Trial

from tsattn.cli.words import say
from tsattn.errors import UserError
from tsattn.experiments import RESULTS_VERSION, Experiment
from tsattn.experiments.experiment import fingerprint
from tsattn.experiments.run_folder import versions
from tsattn.experiments.run_sizes import device_type
from tsattn.saved_folders import write_text, write_whole
from tsattn.tuning import (
    HeldData,
    Search,
    best_trial,
    check_one_trial,
    check_search,
    comparable,
    counted,
    error_word,
    open_storage,
    open_study,
    run_study,
    run_trial,
    storage_errors,
)
from tsattn.tuning.report import figures, front, importances, trial_table
from tsattn.tuning.study import FILE, reason

__all__ = ["tune"]

_FACTS = ("parameters", "flops", "seconds", "memory", "step", "seed", "errors", "selected_by")


@storage_errors()
def tune(experiment: Experiment, search: Search, folder: Path, options: argparse.Namespace, words: list[str]) -> None:
    """Check everything, run the trials, and write down what they found; the words are those without passwords."""
    base = comparable(experiment)
    check_one_trial(base)
    held = HeldData()
    check_search(search, base.to_dict(), held.check)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the study folder {folder} cannot be made: {error.strerror}") from error
    if options.storage is None and (folder / "trials.csv").exists() and not (folder / FILE).exists():
        raise UserError(f"{folder} has results of a study, but no {FILE} to continue; name another folder by --study")
    storage = open_storage(options.storage, folder)
    as_it_is = search.configured(base.to_dict())
    first = search.grid() if search.sampler == "grid" else [as_it_is] if as_it_is else []
    identity = {
        **{"config": base.to_dict(), "search": dict(search.content), "cv": options.cv},
        **{"fingerprint": fingerprint(held.of(base)), "results": RESULTS_VERSION},
    }
    identity, name = json.loads(json.dumps(identity)), folder.resolve().name
    study = open_study(storage, name, search, identity=identity, first=first, seed=base.seed or 0)
    trials = options.trials or (None if options.timeout else 40)
    if search.sampler == "grid":
        trials = min(trials or len(first), len(first))
    done = counted(study.get_trials(deepcopy=False))
    say(f"study {study.study_name} in {folder}: {done} {f'of {trials} ' if trials else ''}trials are done")
    write = partial(_write, base, held, study, search, folder, options.cv, as_it_is, ["tsattn", "tune", *words])

    def objective(trial: Trial) -> list[float]:
        return run_trial(trial, base, search.suggest(trial), search=search, held=held, folds=options.cv)

    try:
        run_study(study, storage, objective, trials=trials, seconds=options.timeout or math.inf, say=say)
    except KeyboardInterrupt:
        write()
        raise
    write()
    best = best_trial(study)
    if best is None:
        reasons = [reason(trial) for trial in study.get_trials(deepcopy=False) if reason(trial)]
        why = f"; the last: {reasons[-1]}" if reasons else ""
        raise UserError(f"no trial of the study {study.study_name} was completed within its constraints{why}")
    say(f"\nbest: trial {best.number}, validation {error_word(best)} {best.values[0]:.4f}")
    for path, value in best.params.items():
        say(f"  {path}: {f'{value:.4g}' if isinstance(value, float) else value}")
    say(f"train and test it with `tsattn fit --config {folder / 'best.yaml'}`")


def _write(
    base: Experiment,
    held: HeldData,
    study: Study,
    search: Search,
    folder: Path,
    folds: int,
    as_it_is: dict[str, Any] | None,
    command: list[str],
) -> None:
    """Write the files of the study folder, each all or nothing: several processes may do so at once."""
    trials = study.get_trials(deepcopy=False)
    write_text(folder / "trials.csv", trial_table(study, search).to_csv(index=False))
    best = best_trial(study)
    if best is None:
        return
    configs = {}
    of_folds = f", the mean of {folds} rolling origins" if folds else ""
    for trial in {one.number: one for one in [*front(study), best]}.values():
        score = f"validation {error_word(trial)} {trial.values[0]:.6g}{of_folds}"
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
        "importance": importances(study),
        "versions": versions(command, device_type(base)),
    }
    write_text(folder / "study.json", json.dumps(summary, indent=2) + "\n")
    for name, figure in figures(study, search).items():
        write_whole(folder / f"{name}.png", partial(figure.savefig, format="png", dpi=130))


def _facts(trial: FrozenTrial) -> dict[str, Any]:
    return {name: trial.user_attrs.get(name) for name in _FACTS}
