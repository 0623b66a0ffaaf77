"""The frame of an experiment of the paper: its suites are run by the leaderboard, its report is made of the records."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.paper.claims import PaperReport
    from tsattn.leaderboard.records import Records

__all__ = ["PaperExperiment"]

_ROOT = Path(__file__).parents[2]
_SIZES = ("small", "full")
_INTERRUPTED = 130  # an exit code
_PARTS = {
    "--data": ("NAMES", "of data sets"),
    "--predictor": ("NAMES", "of predictors"),
    "--attention": ("NAMES", "of attentions"),
    "--horizon": ("STEPS", "of horizons"),
    "--seeds": ("N", "seeds, at most"),
}
"""Options of `tsattn benchmark` that leave out runs."""

_HOW = {
    "--threads": ("N", "of each run (default: 1)"),
    "--ray": ("ADDRESS", "run on a Ray cluster; local starts one of --jobs processors"),
    "--slurm": ("N", "print a SLURM script for a Ray cluster of N nodes, and end"),
    "--folder": ("DIR", "to work in (default: runs/paper/SUITE)"),
}

_DESCRIPTION = """\
{doc}

Runs what is left of its suite, and reports the records. Run it again to go on: what is finished is never repeated.
The suite alone:

    tsattn benchmark --suite {suite}"""

_ENDING = """\
The output folder holds records.parquet, as the leaderboard writes it; report.md, table.csv,
figure.png and claims.json are made of these."""


@dataclass(frozen=True)
class PaperExperiment:
    """One experiment.

    Attributes:
        name: of its suites, ``suites/NAME_small.yaml`` and ``suites/NAME_full.yaml``, and of the folder of its results.
        doc: what it is about.
        report: makes the report of the records.
        suites: the folder of the suites.
        data_options: options of the command that name a file for an argument of the data, by name what its help says.
            With one of them the suite is another, of its own name, folder and records, which are told apart by the
            name and the content of the file.
    """

    name: str
    doc: str
    report: Callable[[Records], PaperReport]
    suites: Path = Path(__file__).parent / "suites"
    data_options: Mapping[str, str] = field(default_factory=dict)

    def main(self, words: Sequence[str] | None = None) -> int:
        """Run it from the command line; the exit code is that of `tsattn benchmark`.

        Args:
            words: of the command; those of this process by default.
        """
        parser = self._parser()
        words = sys.argv[1:] if words is None else words
        if any(word.split("=")[0] == "--suite" for word in words):
            parser.error("the suite is that of the experiment: --size small or --size full")
        options = parser.parse_args(words)
        parts, how = _given(options, _PARTS), _given(options, _HOW)
        how += ["--retry-failed"] if options.retry_failed else []
        if options.report_only and (parts or how):
            parser.error(f"with --report-only nothing is run: leave {[*parts, *how][0]} out")
        if parts and not (options.output or options.dry_run or options.slurm):
            parser.error(f"with {parts[0]} a part is run, which needs an --output of its own")
        files = {name: getattr(options, name) for name in self.data_options if getattr(options, name) is not None}
        for name, file in files.items():
            if not Path(file).is_file():
                parser.error(f"--{name} must be a file, and {file} is none")
        size = [] if options.size == "small" else [options.size]
        of_files = [_word(Path(file)) for file in files.values()]
        suite = "_".join([self.name, options.size, *of_files])
        output = options.output or _ROOT / "benchmarks/results/paper" / "_".join([self.name, *size, *of_files])
        if not options.report_only:
            run = [*parts, *how, "--jobs", str(options.jobs), "--output", str(output)]
            run += [] if options.folder else ["--folder", str(Path("runs", "paper", suite))]
            code = self._run(options.size, suite, files, [*run, *(["--dry-run"] if options.dry_run else [])])
            if code or options.dry_run or options.slurm:
                return code
        command = [f"python benchmarks/paper/{self.name}.py", *(f"--size {one}" for one in size)]
        command += [*(f"--{name} {Path(file).name}" for name, file in files.items()), *parts]
        return self._write_report(output, options.size, suite, " ".join(command))

    def _run(self, size: str, suite: str, files: Mapping[str, str], how: Sequence[str]) -> int:
        """Run what is left of a suite; the exit code."""
        from tsattn.cli import main as tsattn
        from tsattn.errors import UserError

        file = self._suite(size)
        if files:
            try:
                file = _with_files(file, files, Path("runs", "paper", f"{suite}.yaml"))
            except UserError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
        shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
        code = tsattn(["benchmark", "--suite", str(shown), "--no-report", *how])
        if code == _INTERRUPTED:
            print("repeat your command to go on: it also makes the report", file=sys.stderr)
        return code

    def _write_report(self, output: Path, size: str, suite: str, command: str) -> int:
        from benchmarks.paper.claims import how_made
        from benchmarks.paper.clock import by_the_clock, clock_seconds
        from benchmarks.paper.outcomes import write_outcome
        from benchmarks.paper.planned import LEFT, with_left
        from benchmarks.paper.runs import runs_of
        from tsattn.errors import UserError
        from tsattn.leaderboard.records import FILE, Records

        if not (output / FILE).is_file():
            print(f"error: nothing was run into {output} yet: run it without --report-only", file=sys.stderr)
            return 2
        try:
            records = with_left(Records.read(output), self._suite(size))
            runs = runs_of(records)
            made = f"{how_made(runs, command, suite)}\n\n{by_the_clock(runs)}"
            planned = runs[runs["status"] != "does not apply"]
            counts = int((planned["status"] != LEFT).sum()), len(planned)
            write_outcome(output, self.report(records), made, seconds=clock_seconds(runs), runs=counts)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(f"report: {output / 'report.md'}")
        return 0

    def _suite(self, size: str) -> Path:
        return self.suites / f"{self.name}_{size}.yaml"

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python benchmarks/paper/{self.name}.py",
            usage=f"python benchmarks/paper/{self.name}.py [--size small|full] [--jobs N] [--dry-run] [options]",
            description=_DESCRIPTION.format(
                doc=self.doc.strip(), suite=f"benchmarks/paper/suites/{self.name}_SIZE.yaml"
            ),
            epilog=_ENDING,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--size", choices=_SIZES, default="small", help="small for two cores, full for a GPU")
        for name, said in self.data_options.items():
            parser.add_argument(f"--{name}", metavar="FILE", help=said)
        parser.add_argument("--report-only", action="store_true", help="make the report of the records that are there")
        parser.add_argument(
            "--output", type=Path, metavar="DIR", help=f"of the records (default: benchmarks/results/paper/{self.name})"
        )
        part = parser.add_argument_group("a part of it, into an --output of its own")
        for option, (metavar, said) in _PARTS.items():
            part.add_argument(option, metavar=metavar, help=said)
        how = parser.add_argument_group("how")
        how.add_argument("--dry-run", action="store_true", help="list what would be run and how long it takes, and end")
        how.add_argument("--jobs", default=1, metavar="N", help="runs at once (default: 1)")
        how.add_argument("--retry-failed", action="store_true", help="run what failed once more")
        for option, (metavar, said) in _HOW.items():
            how.add_argument(option, metavar=metavar, help=said, action="store")
        return parser


def _given(options: argparse.Namespace, names: Mapping[str, Any]) -> list[str]:
    """The words of those of some options that were given."""
    words: list[str] = []
    for name in names:
        value = getattr(options, name.removeprefix("--"))
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            words += [name, one]
    return words


def _word(file: Path) -> str:
    """What a file is called in the name of a suite: its stem, and the beginning of a hash of its content."""
    stem = re.sub(r"\W+", "_", file.stem)
    return f"{stem}_{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}"


def _with_files(suite: Path, files: Mapping[str, str], file: Path) -> Path:
    """Write a suite with other files of its data sets into a file.

    Raises:
        UserError: if a data set cannot be made of them at one of the horizons.
    """
    import yaml

    from tsattn.descriptions import imported

    content = yaml.safe_load(suite.read_text())
    paths = {name: str(Path(one).absolute()) for name, one in files.items()}  # read from anywhere
    for data in content["data"]:
        data["init_args"] = {**data.get("init_args", {}), **paths}
        for horizon in content["horizons"]:
            imported(data["class_path"])(**data["init_args"], prediction_length=horizon)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file
