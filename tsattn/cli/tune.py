"""`tsattn tune`: search for better values of a configuration, by validation alone."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from tsattn.cli.slurm import slurm_script
from tsattn.cli.words import SentenceParser, Words, as_pairs, at_least, count, say, session
from tsattn.errors import UserError, one_of, without_password
from tsattn.experiments.configs import config_names, find_config

__all__ = ["STORAGE", "run"]

STORAGE = "TSATTN_STORAGE"  # the variable of the environment that may hold the URL of the storage
_SEARCHES = "search/*.yaml"
_OF_FIT_ALONE = ("--run", "--ckpt_path", "--start", "--resume", "--refit")
_SEEN = (
    "warning: everybody on this machine can see a password on a command line, which is why it is written nowhere else; "
    f"give the URL in {STORAGE}, or the password in PGPASSWORD or a passfile"
)

_DESCRIPTION = """\
Search for better values of a configuration. Trials are measured on the validation set, never on the test set.

Options of a configuration, as --model.loss, change the starting point. Repeat the command to resume a study. Run it in
several processes, or on several machines with one --storage, to share the study."""

_ENDING = """\
The study folder holds best.yaml, which `fit --config` takes; trials.csv; study.json; and figures."""


def run(words: list[str]) -> int:
    """Run or resume a study; the exit code is 0, or a `UserError` is raised."""
    options, rest = _parser().parse_known_args(words)
    if options.search is None:
        raise UserError(f"tune needs a search space: --search NAME, a file or one of {one_of(config_names(_SEARCHES))}")
    if not rest:
        raise UserError(f"tune needs a configuration: --config NAME, a file or one of {one_of(config_names())}")
    if any(name in _OF_FIT_ALONE for name, _ in as_pairs(rest)):
        raise UserError(
            f"tune takes none of {one_of(_OF_FIT_ALONE)}: its results lie in --study, trials start afresh, and "
            "`fit --config best.yaml` trains the best of them"
        )
    if "://" in (options.study or ""):
        raise UserError("--study is a folder; the URL of a database is for --storage")
    taken = Words("fit", rest)
    file = find_config(options.search, "search space", _SEARCHES)
    configs = [value for name, value in as_pairs(rest) if name in ("-c", "--config") and value is not None]
    # the same for the same command, which resumes its study
    folder = Path(options.study or Path("runs", "tune", "-".join(Path(name).stem for name in [*configs, str(file)])))
    shown = [without_password(word) for word in words]
    hint = ""
    if shown != words:
        hint = f"; give the password in {STORAGE}, PGPASSWORD or a passfile"
        print(_SEEN, file=sys.stderr)
    options.storage = options.storage or os.environ.get(STORAGE) or None
    if options.slurm:
        print(slurm_script(shown, folder, options.slurm), end="")
        return 0
    if options.test and (folder / "test").exists():
        raise UserError(f"{folder / 'test'} exists: the best trial is tested once, and that was done")

    from tsattn.cli.study_run import tune
    from tsattn.tuning import read_search

    search = read_search(file)
    try:
        with session():
            tune(taken.experiment(), search, folder, options, shown)
        return _test_best(folder) if options.test else 0
    except KeyboardInterrupt as stop:
        how = f"go on with `{shlex.join(['tsattn', 'tune', *shown])}`{hint}"
        raise KeyboardInterrupt(str(stop) or how) from stop


def _test_best(folder: Path) -> int:
    """Train and test the best, which the first of several workers does; the exit code."""
    from tsattn.cli import fit

    run = folder / "test"
    try:
        with FileLock(folder / ".test.lock", timeout=0):
            if not run.exists():
                return fit.run(Words("fit", ["--config", str(folder / "best.yaml"), "--run", str(run)]))
    except Timeout:
        pass
    say(f"another worker tests the best trial, or has done so: {run}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="tsattn tune",
        usage="tsattn tune --config NAME --search NAME [--trials N] [--timeout TIME] [options of fit]",
        description=_DESCRIPTION,
        epilog=_ENDING,
    )
    add = parser.add_argument
    add("--search", metavar="NAME", help="search space: a file, or a name under search/")
    trials = "finished trials, pruned ones included (default: 40; with --timeout: no limit)"
    add("--trials", type=count, metavar="N", help=trials)
    add("--timeout", type=_seconds, metavar="TIME", help="start no trial after 90s, 30m, 2h or 1h30m")
    add("--study", metavar="DIR", help="study folder, which names the study (default: runs/tune/CONFIG-SEARCH)")
    storage = (
        "database, instead of an SQLite file in the study folder "
        f"(default: ${STORAGE}); put its password into ${STORAGE}, PGPASSWORD or a passfile"
    )
    add("--storage", metavar="URL", help=storage)
    add("--cv", type=at_least(2), default=0, metavar="K", help="validate on K rolling origins before the test set")
    add("--test", action="store_true", help="train the best trial at the end, and test it once")
    add("--slurm", type=count, metavar="N", help="print a SLURM script of N workers and end")
    return parser


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text.strip())
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total == 0:
        raise argparse.ArgumentTypeError(f"must be a time like 90s, 30m, 2h or 1h30m, not {text}")
    return float(total)
