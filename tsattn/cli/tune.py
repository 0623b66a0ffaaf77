"""`tsattn tune`: search for better values of a configuration, by validation error only."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from tsattn.cli.words import Words, flat, say, session
from tsattn.errors import UserError, one_of, without_password
from tsattn.experiments.configs import config_names, find_config
from tsattn.experiments.run_folder import versions
from tsattn.saved_folders import unwritten_named, write_text, write_whole

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

    from tsattn.experiments import Experiment
    from tsattn.tuning import HeldData, Search

STORAGE = "TSATTN_STORAGE"  # environment variable for the URL of the storage
_OF_FIT_ALONE = ("--run", "--ckpt_path", "--start", "--resume", "--refit")
_SEEN = (
    "warning: other users of this machine can see a password on a command line; "
    f"set the URL in {STORAGE}, or the password in PGPASSWORD or a passfile"
)


def tune(words: Words) -> None:
    """Run or resume a study; raise `UserError` for a mistake."""
    options, rest = words.options, [*words.free, *flat(words.pairs)]
    if options.search is None:
        names = one_of(config_names("search/*.yaml"))
        raise UserError(f"tune needs a search space: --search NAME, a file or one of {names}")
    if not rest:
        raise UserError(f"tune needs a configuration: --config NAME, a file or one of {one_of(config_names())}")
    if any(name in _OF_FIT_ALONE for name, _ in words.pairs):
        none = f"tune does not accept {one_of(_OF_FIT_ALONE)}: it writes to --study and trains each trial from scratch"
        raise UserError(f"{none}; train the best trial with `tsattn fit --config STUDY/best.yaml`")
    if "://" in (options.study or ""):
        raise UserError("--study is a folder; the URL of a database is for --storage")
    taken, file = Words("fit", rest), find_config(options.search, "search space", "search")
    configs = [value for name, value in words.pairs if name == "--config" and value is not None]
    # the default folder depends on the command only, so that repeating the command resumes its study
    folder = Path(options.study or Path("runs", "tune", "-".join(Path(name).stem for name in [*configs, str(file)])))
    run = folder / "test"
    if options.test and run.exists():
        raise UserError(f"the best trial was tested already; its results are in {run}: leave out --test")
    options.storage, options.cv = options.storage or os.environ.get(STORAGE) or None, options.cv or 0
    command, hint = [*map(without_password, words.typed)], ""
    if command != words.typed:
        hint = f"; give the password in {STORAGE}, PGPASSWORD or a passfile"
        print(_SEEN, file=sys.stderr)
    try:
        from tsattn import tuning  # heavy

        with session(), tuning.storage_errors():
            run_trials(taken.experiment(), file, folder, options, command)
        if options.test:
            from tsattn.cli.fit import fit

            with contextlib.suppress(Timeout), FileLock(folder / ".test.lock", timeout=0):
                if not run.exists():
                    fit(Words("fit", ["--config", str(folder / "best.yaml"), "--run", str(run)]))
                    return
            say(f"another worker is testing the best trial, or has tested it: {run}")
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or f"resume with `{shlex.join(command)}`{hint}") from stop


def run_trials(experiment: Experiment, file: Path, folder: Path, options: Namespace, command: list[str]) -> None:
    """Check everything, run the trials and write their results; `command` has no passwords."""
    from tsattn import tuning
    from tsattn.experiments.experiment import RESULTS_VERSION, fingerprint
    from tsattn.tuning.study import FILE, reason

    base, search, held = tuning.comparable(experiment), tuning.read_search(file), tuning.HeldData()
    tuning.check_one_trial(base)
    tuning.check_search(search, base.to_dict(), held.check)
    with unwritten_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if options.storage is None and (folder / "trials.csv").exists() and not (folder / FILE).exists():
        raise UserError(f"{folder} has results of a study, but no {FILE} to continue; name another folder with --study")
    storage = tuning.open_storage(options.storage, folder)
    as_it_is = search.configured(base.to_dict())
    first = search.grid() if search.sampler == "grid" else [as_it_is] if as_it_is else []
    identity: dict[str, Any] = {"config": base.to_dict(), "search": dict(search.content), "cv": options.cv}
    identity |= {"fingerprint": fingerprint(held.of(base)), "results": RESULTS_VERSION}
    identity, name = json.loads(json.dumps(identity)), folder.resolve().name
    study = tuning.open_study(storage, name, search, identity=identity, first=first, seed=base.seed or 0)
    trials = options.trials or (None if options.timeout else 40)
    trials = min(trials or len(first), len(first)) if search.sampler == "grid" else trials
    done = tuning.counted(study.get_trials(deepcopy=False))
    say(f"study {study.study_name} in {folder}: {done} {f'of {trials} ' if trials else ''}trials are done")

    def objective(trial: Trial) -> list[float]:
        return tuning.run_trial(trial, base, search.suggest(trial), search=search, held=held, folds=options.cv)

    write = partial(_write, base, held, study, search, folder, options.cv, as_it_is, command)
    try:
        tuning.run_study(study, storage, objective, trials=trials, seconds=options.timeout or math.inf, say=say)
    except KeyboardInterrupt:
        write()
        raise
    write()
    best = tuning.best_trial(study)
    if best is None:
        reasons = [*filter(None, map(reason, study.get_trials(deepcopy=False)))]
        why = f"; the last: {reasons[-1]}" if reasons else ""
        raise UserError(f"no trial of the study {study.study_name} was completed within its constraints{why}")
    say(f"\nbest: trial {best.number}, validation {tuning.error_word(best)} {best.values[0]:.4f}")
    for path, value in best.params.items():
        say(f"  {path}: {f'{value:.4g}' if isinstance(value, float) else value}")
    say(f"train and test it with `tsattn fit --config {folder / 'best.yaml'}`")


def _write(
    base: Experiment, held: HeldData, study: Study, search: Search, folder: Path, folds: int, as_it_is: Any, words: Any
) -> None:
    """Write the files of the study folder, each completely or not at all: several processes may write at once."""
    from tsattn.experiments.measuring import device_type
    from tsattn.tuning import best_trial, error_word
    from tsattn.tuning.study import figures, front, importances, trial_table

    trials, best, best_ones = study.get_trials(deepcopy=False), best_trial(study), front(study)
    write_text(folder / "trials.csv", trial_table(study, search).to_csv(index=False))
    if best is None:
        return
    configs = {}
    of_folds = f", the mean of {folds} rolling origins" if folds else ""
    for trial in {one.number: one for one in [*best_ones, best]}.values():
        score = f"validation {error_word(trial)} {trial.values[0]:.6g}{of_folds}"
        head = f"# trial {trial.number} of the study {study.study_name}: {score}\n"
        configs[f"trial_{trial.number}.yaml"] = head + search.experiment(base, trial.params).to_yaml()
    write_text(folder / "best.yaml", configs[f"trial_{best.number}.yaml"])
    if len(search.objectives) > 1:
        for name, text in configs.items():
            write_text(folder / "front" / name, text)
        for file in {*(folder / "front").glob("trial_*.yaml")} - {folder / "front" / name for name in configs}:
            file.unlink(missing_ok=True)  # no longer on the front
    default = next((t for t in trials if as_it_is and t.params == as_it_is and t.state.name == "COMPLETE"), None)
    states = [trial.state.name.lower() for trial in trials]

    def facts(trial: FrozenTrial) -> dict[str, Any]:
        names = ("parameters", "flops", "seconds", "memory", "step", "seed", "errors", "selected_by")
        seen = {name: trial.user_attrs.get(name) for name in names}
        return {"trial": trial.number, "values": trial.values, **seen}

    summary = {
        "study": study.study_name,
        "data": held.of(base).name,
        "objectives": list(search.objectives),
        "constraints": dict(search.constraints),
        "validation": f"mean of {folds} rolling origins" if folds else "the validation part",
        "trials": {state: states.count(state) for state in sorted(set(states))},
        "best": {**facts(best), "params": best.params},
        "configuration_as_it_is": default and facts(default),
        "front": [trial.number for trial in best_ones],
        "importance": importances(study),
        "versions": versions(words, device_type(base)),
    }
    write_text(folder / "study.json", json.dumps(summary, indent=2) + "\n")
    for name, figure in figures(study, search).items():
        write_whole(folder / f"{name}.png", partial(figure.savefig, format="png", dpi=130))
