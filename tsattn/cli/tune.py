"""`tsattn tune`: search for better values of a configuration, by validation alone."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from tsattn.cli.command_options import Given, flat
from tsattn.cli.words import Words, say, session
from tsattn.errors import UserError, one_of, without_password
from tsattn.experiments.configs import config_names, find_config

__all__ = ["STORAGE", "tune"]

STORAGE = "TSATTN_STORAGE"  # the variable of the environment that may hold the URL of the storage
_SEARCHES = "search/*.yaml"
_OF_FIT_ALONE = ("--run", "--ckpt_path", "--start", "--resume", "--refit")
_SEEN = (
    "warning: everybody on this machine can see a password on a command line, which is why it is written nowhere else; "
    f"give the URL in {STORAGE}, or the password in PGPASSWORD or a passfile"
)


def tune(given: Given) -> int:
    """Run or resume a study; the exit code is 0, or a `UserError` is raised."""
    options, rest = given.options, [*flat(given.others), *given.free]
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
    taken = Words("fit", rest)
    file = find_config(options.search, "search space", _SEARCHES)
    configs = [value for name, value in given.others if name == "--config" and value is not None]
    # the same for the same command, which resumes its study
    folder = Path(options.study or Path("runs", "tune", "-".join(Path(name).stem for name in [*configs, str(file)])))
    shown = [without_password(word) for word in given.typed]
    hint = ""
    if shown != given.typed:
        hint = f"; give the password in {STORAGE}, PGPASSWORD or a passfile"
        print(_SEEN, file=sys.stderr)
    options.cv = options.cv or 0
    options.storage = options.storage or os.environ.get(STORAGE) or None
    if options.test and (folder / "test").exists():
        raise UserError(f"{folder / 'test'} exists: the best trial is tested once, and that was done")

    from tsattn.cli import study_run
    from tsattn.tuning import read_search

    search = read_search(file)
    try:
        with session():
            study_run.tune(taken.experiment(), search, folder, options, shown)
        return _test_best(folder) if options.test else 0
    except KeyboardInterrupt as stop:
        how = f"go on with `{shlex.join(['tsattn', 'tune', *shown])}`{hint}"
        raise KeyboardInterrupt(str(stop) or how) from stop


def _test_best(folder: Path) -> int:
    """Train and test the best, which the first of several workers does; the exit code."""
    from tsattn.cli.fit import fit

    run = folder / "test"
    try:
        with FileLock(folder / ".test.lock", timeout=0):
            if not run.exists():
                return fit(Words("fit", ["--config", str(folder / "best.yaml"), "--run", str(run)]))
    except Timeout:
        pass
    say(f"another worker tests the best trial, or has done so: {run}")
    return 0
