"""`tsattn tune`: search for better values of a configuration, by validation alone."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tsattn.cli.words import Given, Words, flat, session
from tsattn.errors import UserError, one_of, without_password
from tsattn.experiments.configs import config_names, find_config

STORAGE = "TSATTN_STORAGE"  # the variable of the environment that may hold the URL of the storage
_SEARCHES = "search/*.yaml"
_OF_FIT_ALONE = ("--run", "--ckpt_path", "--start", "--resume", "--refit")
_SEEN = (
    "warning: everybody on this machine can see a password on a command line, which is why it is written nowhere else; "
    f"give the URL in {STORAGE}, or the password in PGPASSWORD or a passfile"
)


def tune(given: Given) -> None:
    """Run or resume a study; a `UserError` says what is wrong."""
    options, rest = given.options, [*given.free, *flat(given.others)]
    if options.search is None:
        raise UserError(f"tune needs a search space: --search NAME, a file or one of {one_of(config_names(_SEARCHES))}")
    if not rest:
        raise UserError(f"tune needs a configuration: --config NAME, a file or one of {one_of(config_names())}")
    if any(name in _OF_FIT_ALONE for name, _ in given.others):
        raise UserError(
            f"tune takes none of {one_of(_OF_FIT_ALONE)}: its results lie in --study, trials start afresh, and "
            "`fit --config best.yaml` trains the best of them"
        )
    if "://" in (options.study or ""):
        raise UserError("--study is a folder; the URL of a database is for --storage")
    taken, file = Words("fit", rest), find_config(options.search, "search space", _SEARCHES)
    configs = [value for name, value in given.others if name == "--config" and value is not None]
    # the same for the same command, which resumes its study
    folder = Path(options.study or Path("runs", "tune", "-".join(Path(name).stem for name in [*configs, str(file)])))
    if options.test and (folder / "test").exists():
        raise UserError(f"{folder / 'test'} exists: the best trial is tested once, and that was done")
    options.storage, options.cv = options.storage or os.environ.get(STORAGE) or None, options.cv or 0
    command = ["tsattn", "tune", *map(without_password, given.typed)]
    hint = ""
    if command[2:] != given.typed:
        hint = f"; give the password in {STORAGE}, PGPASSWORD or a passfile"
        print(_SEEN, file=sys.stderr)
    try:
        from tsattn.cli import study_run  # heavy

        with session():
            study_run.run_trials(taken.experiment(), file, folder, options, command)
        if options.test:
            study_run.test_best(folder)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or f"go on with `{shlex.join(command)}`{hint}") from stop
