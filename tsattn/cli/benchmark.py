"""`tsattn benchmark`: run a suite of predictors and attentions on data sets, with a record of each run."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tsattn.cli.slurm import ray_script
from tsattn.cli.words import SentenceParser, count, names, say, session, without_options
from tsattn.errors import UserError, one_of
from tsattn.experiments.configs import config_names, find_config

__all__ = ["add_running_options", "find_suite", "run"]

_SUITES = "suites/*.yaml"
_RESULTS = Path("benchmarks", "results", "leaderboard")
_PLACES = ("--folder", "--output")

_DESCRIPTION = """\
Run a suite: data sets x horizons x predictors x attentions x seeds, each once, with a record of each run.

Repeat the command to resume: a finished run is never repeated, a changed experiment is run again."""

_ENDING = """\
The output folder takes records.parquet, a row for each run with its test errors over time, and the report of them. The
runs themselves stay in the working folder, the output of each under logs/."""


def run(words: list[str]) -> int:
    """Run what is left of a suite; the exit code is 0, or a `UserError` is raised."""
    options = _parser().parse_args(words)
    if options.suite is None:
        raise UserError(f"benchmark needs a suite: --suite NAME, a file or one of {one_of(config_names(_SUITES))}")
    file = find_suite(options.suite)
    if options.slurm:
        print(ray_script(words, f"benchmark_{file.stem}", options.slurm), end="")
        return 0

    from tsattn.leaderboard.entry_run import WorkingFolder
    from tsattn.leaderboard.plan import Planner
    from tsattn.leaderboard.runner import Options, Runner
    from tsattn.leaderboard.suite import read_suite
    from tsattn.ray_cluster import import_ray

    for name in _PLACES:
        place = getattr(options, name.removeprefix("--"))
        if place is not None and Path(place).is_file():
            raise UserError(f"{name} is a folder, but {place} is a file; name another")
    if options.ray is not None:
        import_ray("--ray")  # before the data are read
    with session():
        suite, planner = read_suite(file), Planner()
        chosen = {"data": options.data, "predictors": options.predictor, "attentions": options.attention}
        part = suite.narrowed(**chosen, horizons=options.horizon, seeds=options.seeds)
        output = Path(options.output or _RESULTS / suite.name)
        folder = WorkingFolder(options.folder or Path("runs", "leaderboard", suite.name))
        # where files lie says nothing on another machine
        shown = shlex.join(["tsattn", "benchmark", *without_options(_PLACES, words)])
        how = Options(options.jobs, options.threads, options.retry_failed, shown)
        whole = planner.plan(suite)
        entries = whole if part == suite else planner.plan(part)
        runner = Runner(suite.name, suite.text, whole, entries, folder, output, how, say)
        runner.say_plan(lists=options.dry_run)
        if options.dry_run:
            return 0
        runner.run_all(options.ray, shlex.join(["tsattn", "benchmark", *words]))
    say(f"records: {output}")
    if not options.no_report:
        from tsattn.cli import board_report

        board_report.run([str(output)])
    return 0


def find_suite(name: str) -> Path:
    """The file of a suite, by its path or the name of an included one."""
    path = Path(name)
    if path.is_file():
        return path
    short, included = path.name.removesuffix(".yaml"), config_names(_SUITES)
    if f"suites/{short}.yaml" in included and str(path.parent) in (".", "suites"):
        return find_config(f"suites/{short}", "suite", _SUITES)
    raise UserError(f"no suite {name}: neither a file nor one of {one_of(Path(one).stem for one in included)}")


def add_running_options(parser: argparse.ArgumentParser, jobs: int | None = 1) -> None:
    """Add the options of how runs are made, which `compare` has too; jobs None are one for each processor."""
    shown = "one for each processor, one on a GPU" if jobs is None else jobs
    how = parser.add_argument_group("how")
    how.add_argument("--dry-run", action="store_true", help="list what would be run and how long it takes, and end")
    how.add_argument("--jobs", type=count, default=jobs, metavar="N", help=f"runs at once (default: {shown})")
    how.add_argument("--threads", type=count, default=1, metavar="N", help="threads of each run (default: 1)")
    how.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster; local starts one of --jobs processors")
    how.add_argument("--retry-failed", action="store_true", help="run failed ones again")


def _parser() -> argparse.ArgumentParser:
    usage = "tsattn benchmark --suite NAME [--dry-run] [--jobs N] [options]"
    parser = SentenceParser(prog="tsattn benchmark", usage=usage, description=_DESCRIPTION, epilog=_ENDING)
    parser.add_argument("--suite", metavar="NAME", help="a file, or the name of one under configs/suites/")
    parts = parser.add_argument_group("a part of it")
    parts.add_argument("--data", type=names, metavar="NAMES", help="data sets: ETTh1,ETTh2")
    parts.add_argument("--predictor", type=names, metavar="NAMES", help="predictors; members of a mix are included")
    parts.add_argument("--attention", type=names, metavar="NAMES", help="attentions: standard,mlr")
    parts.add_argument(
        "--horizon", type=lambda text: [*map(count, names(text))], metavar="STEPS", help="horizons: 96,336"
    )
    parts.add_argument("--seeds", type=count, metavar="N", help="at most so many seeds")
    add_running_options(parser)
    parser.add_argument("--slurm", type=count, metavar="N", help="print a SLURM script for a Ray cluster of N nodes")
    parser.add_argument("--no-report", action="store_true", help="write records only")
    where = parser.add_argument_group("where")
    where.add_argument("--folder", metavar="DIR", help="working folder (default: runs/leaderboard/SUITE)")
    where.add_argument("--output", metavar="DIR", help=f"folder of the records (default: {_RESULTS}/SUITE)")
    return parser
