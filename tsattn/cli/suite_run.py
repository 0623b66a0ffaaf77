"""A suite from the command line: planned, listed or run, and what it came to."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tsattn.errors import UserError, number_of
from tsattn.leaderboard.board import Board, Options, Workers
from tsattn.leaderboard.estimates import duration
from tsattn.leaderboard.origins import score_on_origins
from tsattn.leaderboard.shards import Shard
from tsattn.leaderboard.suite_file import read_suite
from tsattn.leaderboard.worker_process import LocalWorkers
from tsattn.leaderboard.working_folder import WorkingFolder

__all__ = ["run_suite"]

_PLACES = ("--folder", "--output", "--add")


def run_suite(
    file: Path, options: argparse.Namespace, words: list[str], say: Callable[[str], None]
) -> tuple[Path, Path]:
    """List what a suite would run, or run it; the folder of its records, and that of its runs.

    Args:
        file: of the suite.
        options: those of the command.
        words: after ``benchmark``, as they were typed.
        say: takes lines.

    Raises:
        UserError: for a suite, a part of it, or records that cannot be.
        KeyboardInterrupt: if it was interrupted, saying how to go on.
    """
    suite = read_suite(file)
    narrowed = suite.narrowed(
        data=options.data,
        predictors=options.predictor,
        attentions=options.attention,
        horizons=options.horizon,
        seeds=options.seeds,
    )
    folder = WorkingFolder(options.folder or Path("runs", "leaderboard", suite.name))
    output = Path(options.output or Path("benchmarks", "results", "leaderboard", suite.name))
    how = Options(
        threads=options.threads,
        jobs=options.jobs,
        shard=Shard.parse(options.shard) if options.shard else Shard(),
        retries_failed=options.retry_failed,
        added=tuple(options.add),
        command=_command(_without_places(words)),
    )
    board = Board(suite, narrowed, folder, output, how, say)
    board.prepare(dry=options.dry_run)
    _say_plan(board, say, lists=options.dry_run)
    if options.dry_run:
        return output, folder.path
    try:
        board.run(_workers(folder, options))
        if options.origins is not None:
            score_on_origins(board, options.origins, say)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"go on with `{_command(words)}`") from stop
    _say_end(board, say)
    return output, folder.path


def _command(words: Iterable[str]) -> str:
    return shlex.join(["python", "-m", "tsattn", "benchmark", *words])


def _without_places(words: Iterable[str]) -> Iterator[str]:
    """Words without where files lie: records are read elsewhere, and folders of a machine say nothing there."""
    left = iter(words)
    for word in left:
        name, is_whole, _ = word.partition("=")
        if name not in _PLACES:
            yield word
        elif not is_whole:
            next(left, None)


def _workers(folder: WorkingFolder, options: argparse.Namespace) -> Workers:
    if options.ray is None:
        return LocalWorkers(folder, options.jobs)
    from tsattn.leaderboard.ray_workers import RayWorkers

    return RayWorkers(folder, options.ray, options.jobs, options.threads)


def _say_plan(board: Board, say: Callable[[str], None], *, lists: bool) -> None:
    entries, studies = board.mine(), board.open_studies()
    if lists:
        estimates = board.estimates()
        for study in studies:
            folds = f" on {study.folds} rolling origins" if study.folds else ""
            say(f"{'study':<14}  {study.title}: {number_of(study.trials, 'trial')}{folds}")
        for entry in entries:
            state = board.state(entry)
            seconds = estimates.of(entry) if state in ("left", "waits") else None
            about = f": {entry.reason}" if entry.reason else "" if seconds is None else f"  ~{duration(seconds)}"
            say(f"{state:<14}  {entry.name}{about}")
        if (whole := board.seconds_in_all()) is not None:
            say(f"all of it, done and left, takes about {duration(whole)}, {board.options.jobs} at once")
    states = Counter(board.state(entry) for entry in entries)
    say(f"{board.suite.name}: {number_of(len(entries), 'entry')}: {_counted(states)}")
    if entries and set(states) == {"does not apply"}:
        reason, count = Counter(entry.reason for entry in entries).most_common(1)[0]
        raise UserError(f"nothing of the suite {board.suite.name} can be run; of {count} entries: {reason}")
    left = len(board.left())
    if studies:
        say(f"{number_of(len(studies), 'study')} to be run first, to choose values")
    if left:
        seconds, jobs = board.seconds_left(), f"{board.options.jobs} at once"
        if seconds is None:
            say("no run of this suite is recorded yet, so nothing tells how long it will take")
        else:
            say(f"about {duration(seconds)} are left, {jobs}")


def _say_end(board: Board, say: Callable[[str], None]) -> None:
    entries = board.mine()
    failed = [entry for entry in entries if board.state(entry) == "failed"]
    for entry in failed:
        say(f"failed: {entry.name}: {board.reason(entry)}")
    say(f"{board.suite.name}: {_counted(Counter(board.state(entry) for entry in entries))}")
    if failed:
        say("run what failed once more with --retry-failed; what each said is under errors/ in the working folder")
    say(f"records: {board.output}")


def _counted(states: Counter[str]) -> str:
    names = {"left": "to be run", "waits": "waiting for a study"}
    return ", ".join(f"{count} {names.get(state, state)}" for state, count in sorted(states.items())) or "none"
