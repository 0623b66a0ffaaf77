"""A study from the command line: checked, run, and written down."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from optuna import Study
from optuna.trial import Trial

from tsattn.cli.output import say
from tsattn.cli.study_folder import write_study
from tsattn.errors import UserError
from tsattn.experiments import RESULTS_VERSION, Experiment
from tsattn.experiments.fingerprint import fingerprint
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
from tsattn.tuning.study import FILE, reason

__all__ = ["tune"]


@storage_errors()
def tune(experiment: Experiment, search: Search, folder: Path, options: argparse.Namespace, words: list[str]) -> None:
    """Check everything, run the trials, and write down what they found.

    Args:
        experiment: what is searched around.
        search: the space.
        folder: of the study.
        options: those of the command.
        words: that were typed, without passwords.

    Raises:
        UserError: for a space that does not fit, another study in the folder, or no trial that was completed.
        KeyboardInterrupt: if it was interrupted.
    """
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
    study = open_study(
        storage,
        folder.resolve().name,
        search,
        identity=json.loads(json.dumps(identity)),
        first=first,
        seed=base.seed or 0,
    )
    trials = options.trials or (None if options.timeout else 40)
    if search.sampler == "grid":
        trials = min(trials or len(first), len(first))
    done = counted(study.get_trials(deepcopy=False))
    say(f"study {study.study_name} in {folder}: {done} {f'of {trials} ' if trials else ''}trials are done")
    command = ["tsattn", "tune", *words]

    def write() -> None:
        write_study(base, held, study, search, folder, folds=options.cv, as_it_is=as_it_is, command=command)

    def objective(trial: Trial) -> list[float]:
        return run_trial(trial, base, search.suggest(trial), search=search, held=held, folds=options.cv)

    try:
        run_study(study, storage, objective, trials=trials, seconds=options.timeout or math.inf, say=say)
    except KeyboardInterrupt:
        write()
        raise
    write()
    _say_result(study, folder)


def _say_result(study: Study, folder: Path) -> None:
    best = best_trial(study)
    if best is None:
        reasons = [reason(trial) for trial in study.get_trials(deepcopy=False) if reason(trial)]
        why = f"; the last: {reasons[-1]}" if reasons else ""
        raise UserError(f"no trial of the study {study.study_name} was completed within its constraints{why}")
    say(f"\nbest: trial {best.number}, validation {error_word(best)} {best.values[0]:.4f}")
    for path, value in best.params.items():
        say(f"  {path}: {f'{value:.4g}' if isinstance(value, float) else value}")
    say(f"train and test it with `tsattn fit --config {folder / 'best.yaml'}`")
