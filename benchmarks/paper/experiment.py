"""The command of an experiment: the leaderboard runs its suite, and its report is made of the records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.paper.claims import PaperReport
    from tsattn.leaderboard.records import Records

RESULTS = Path(__file__).parents[1] / "results" / "paper"
_INTERRUPTED = 130  # an exit code

_EPILOG = """\
All options of `tsattn benchmark` work too: --jobs N for N runs at once, --retry-failed, --threads, --ray.
Repeat the command to resume: no finished run is repeated. The output folder holds records.parquet, and, once no run is
left, report.md, table.csv, figure.png and claims.json made of it."""


@dataclass(frozen=True)
class PaperExperiment:
    """One experiment.

    Attributes:
        name: of its suites ``suites/NAME_small.yaml`` and ``suites/NAME_full.yaml``, and of the folder of its results.
        doc: what it is about.
        report: makes the report of the records.
        suites: the folder of the suites.
    """

    name: str
    doc: str
    report: Callable[[Records], PaperReport]
    suites: Path = Path(__file__).parent / "suites"

    def main(self, words: Sequence[str] | None = None) -> int:
        """Run what is left of the suite and write its report; return the exit code of `tsattn benchmark`."""
        script = f"python benchmarks/paper/{self.name}.py"
        raw = argparse.RawDescriptionHelpFormatter
        parser = argparse.ArgumentParser(
            prog=script, description=self.doc.strip(), epilog=_EPILOG, allow_abbrev=False, formatter_class=raw
        )
        parser.add_argument("--size", choices=("small", "full"), default="small", help="two cores, or a GPU")
        parser.add_argument("--report-only", action="store_true", help="write the report of the records that are there")
        parser.add_argument("--dry-run", action="store_true", help="list the runs and their time")
        default = f"benchmarks/results/paper/{self.name}"
        parser.add_argument("--output", type=Path, metavar="DIR", help=f"of the records (default: {default})")
        parser.add_argument("--folder", type=Path, metavar="DIR", help="of the runs (default: runs/paper/SUITE)")
        options, how = parser.parse_known_args(words)
        if any(word.split("=")[0] == "--suite" for word in how):
            parser.error("the suite is that of the experiment: --size small or --size full")
        if options.report_only and how:
            parser.error(f"with --report-only nothing is run: leave {how[0]} out")
        suite = f"{self.name}_{options.size}"
        file = self.suites / f"{suite}.yaml"
        output = options.output or RESULTS / (self.name if options.size == "small" else suite)
        if not options.report_only:
            run = [*how, "--output", str(output), "--folder", str(options.folder or Path("runs/paper", suite))]
            code = _run(file, [*run, *(["--dry-run"] if options.dry_run else [])])
            if code or options.dry_run or any(word.startswith("--slurm") for word in how):
                return code
        command = script if options.size == "small" else f"{script} --size {options.size}"
        left, code = _write_report(output, file, command, self.report)
        return 0 if left and not options.report_only else code


def _run(file: Path, how: Sequence[str]) -> int:
    from tsattn.cli import main as tsattn

    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    code = tsattn(["benchmark", "--suite", str(shown), "--no-report", *how])
    if code == _INTERRUPTED:
        print("repeat your command to go on: it also makes the report", file=sys.stderr)
    return code


def _write_report(output: Path, file: Path, command: str, report: Callable[[Records], PaperReport]) -> tuple[int, int]:
    """Return how many runs are left, without which there is no report, and the exit code."""
    from benchmarks.paper.claims import write_outcome
    from benchmarks.paper.runs import clock_seconds, how_made, left_of, runs_of
    from tsattn.errors import UserError, number_of
    from tsattn.leaderboard.records import FILE, Records

    left = 0
    try:
        if not (output / FILE).is_file():
            raise UserError(f"nothing was run into {output} yet: run it without --report-only")
        records = Records.read(output)
        left = left_of(records, file)
        if left:
            raise UserError(f"{number_of(left, 'run')} of {file.stem} left: the report is made when all are done")
        runs = runs_of(records)
        made = how_made(runs, command, file.stem)
        write_outcome(output, report(records), made, seconds=clock_seconds(runs))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return left, 2
    print(f"report: {output / 'report.md'}")
    return 0, 0
