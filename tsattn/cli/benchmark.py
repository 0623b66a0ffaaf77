"""`tsattn benchmark`: run a suite of predictors and attentions on data sets, with a record of each run."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tsattn.cli.output import say
from tsattn.cli.sentence_parser import SentenceParser
from tsattn.cli.slurm import ray_script
from tsattn.errors import UserError, one_of
from tsattn.experiments.configs import config_names, find_config

__all__ = ["run"]

_SUITES = "suites/*.yaml"
_RESULTS = Path("benchmarks", "results", "leaderboard")

_DESCRIPTION = """\
Run a suite: data sets x horizons x predictors x attentions x seeds, each once, and record what came of it.

Run the same command again to go on: what is finished is never repeated, what has changed is never taken for it."""

_ENDING = """\
The output folder holds records.parquet, a row for each run; windows.parquet, the errors of every test window;
selected.json, what was chosen on validation; origins.json, the errors on rolling origins (--origins); and the report
of them, as `report` writes it. The runs themselves stay in the working folder."""


def run(words: list[str]) -> int:
    """Run what is left of a suite; the exit code is 0, or a `UserError` is raised.

    Args:
        words: the words after ``benchmark``.
    """
    options = _parser().parse_args(words)
    if options.suite is None:
        raise UserError(f"benchmark needs a suite: --suite NAME, a file or one of {one_of(config_names(_SUITES))}")
    file = find_suite(options.suite)
    if options.slurm:
        print(ray_script(words, f"benchmark_{file.stem}", options.slurm), end="")
        return 0

    from tsattn.cli.session import session
    from tsattn.cli.suite_run import run_suite
    from tsattn.ray_cluster import import_ray

    if options.ray is not None:
        import_ray("--ray")  # before the data are read
    with session():
        places = run_suite(file, options, words, say)
    if not (options.dry_run or options.no_report):
        _report(*places)
    return 0


def find_suite(name: str) -> Path:
    """The file of a suite, which is found by its name if it comes with tsattn.

    Raises:
        UserError: listing those that do.
    """
    path = Path(name)
    if path.is_file():
        return path
    short = path.name.removesuffix(".yaml")
    if f"suites/{short}.yaml" in config_names(_SUITES) and str(path.parent) in (".", "suites"):
        return find_config(f"suites/{short}", "suite", _SUITES)
    known = one_of(Path(one).stem for one in config_names(_SUITES))
    raise UserError(f"no suite {name}: neither a file nor one of {known}")


def _report(output: Path, folder: Path) -> None:
    """Write the report of the records, if it can be: the runs are done in any case."""
    from tsattn.cli.board_report import run as report

    try:
        report([str(output), "--runs", str(folder)])
    except UserError as error:
        say(f"no report was written: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="python -m tsattn benchmark",
        usage="python -m tsattn benchmark --suite NAME [--dry-run] [--jobs N] [--shard I/N] [options]",
        description=_DESCRIPTION,
        epilog=_ENDING,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", metavar="NAME", help="a file, or the name of one under configs/suites/")
    parts = parser.add_argument_group("a part of it")
    parts.add_argument("--data", type=_names, metavar="NAMES", help="of data sets: ETTh1,ETTh2")
    parts.add_argument("--predictor", type=_names, metavar="NAMES", help="of predictors; what a mix is of comes along")
    parts.add_argument("--attention", type=_names, metavar="NAMES", help="of attentions: standard,mlr")
    parts.add_argument("--horizon", type=_counts, metavar="STEPS", help="of horizons: 96,336")
    parts.add_argument("--seeds", type=_count, metavar="N", help="seeds at every horizon of each data set")
    parts.add_argument("--shard", metavar="I/N", help="part I of N, for machines that share nothing")
    how = parser.add_argument_group("how")
    how.add_argument("--dry-run", action="store_true", help="list what would be run and how long it takes, and end")
    how.add_argument("--jobs", type=_count, default=1, metavar="N", help="runs at once (default: 1)")
    how.add_argument("--threads", type=_count, default=1, metavar="N", help="of each run (default: 1)")
    how.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster; local starts one of --jobs processors")
    how.add_argument(
        "--slurm", type=_count, metavar="N", help="print a SLURM script for a Ray cluster of N nodes, and end"
    )
    how.add_argument("--retry-failed", action="store_true", help="run what failed once more")
    how.add_argument(
        "--origins", type=_count, metavar="N", help="fit and score every arm on N rolling origins, too, to choose by"
    )
    how.add_argument("--add", action="append", default=[], metavar="RECORDS", help="take others' records, too")
    how.add_argument("--no-report", action="store_true", help="write records alone at the end")
    where = parser.add_argument_group("where")
    where.add_argument("--folder", metavar="DIR", help="to work in (default: runs/leaderboard/SUITE)")
    where.add_argument("--output", metavar="DIR", help=f"of the records (default: {_RESULTS}/SUITE)")
    return parser


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"must be names with commas between them, not {text!r}")
    return list(dict.fromkeys(names))


def _counts(text: str) -> list[int]:
    return [_count(part) for part in _names(text)]


def _count(text: str) -> int:
    if not re.fullmatch(r"\d+", text.strip()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)
