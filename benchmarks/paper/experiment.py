"""The command of an experiment: the leaderboard runs its suite, and its report is made of the records."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.paper.claims import PaperReport
    from tsattn.leaderboard.records import Records

_ROOT = Path(__file__).parents[2]
_INTERRUPTED = 130  # an exit code
_PARTS = ("data", "predictor", "attention", "horizon", "seeds")  # options of `tsattn benchmark` that leave runs out

_EPILOG = """\
All options of `tsattn benchmark` work too: --jobs N for N runs at once, --retry-failed, --threads, --ray.
Repeat the command to resume: no finished run is repeated. The output folder holds records.parquet, and report.md,
table.csv, figure.png and claims.json made of it."""


@dataclass(frozen=True)
class PaperExperiment:
    """One experiment.

    Attributes:
        name: of its suites ``suites/NAME_small.yaml`` and ``suites/NAME_full.yaml``, and of the folder of its results.
        doc: what it is about.
        report: makes the report of the records.
        suites: the folder of the suites.
        data_options: options that name a file for an argument of the data, with their help. Another file makes another
            suite with its own folder, told apart by the name and the content of the file.
    """

    name: str
    doc: str
    report: Callable[[Records], PaperReport]
    suites: Path = Path(__file__).parent / "suites"
    data_options: Mapping[str, str] = field(default_factory=dict)

    def main(self, words: Sequence[str] | None = None) -> int:
        """Run what is left of the suite and write its report; return the exit code of `tsattn benchmark`."""
        parser = self._parser()
        options, how = parser.parse_known_args(words)
        if any(word.split("=")[0] == "--suite" for word in how):
            parser.error("the suite is that of the experiment: --size small or --size full")
        given = ((name, getattr(options, name)) for name in _PARTS)
        parts = [word for name, value in given if value is not None for word in (f"--{name}", value)]
        if options.report_only and (parts or how):
            parser.error(f"with --report-only nothing is run: leave {[*parts, *how][0]} out")
        if parts and not (options.output or options.dry_run):
            parser.error(f"with {parts[0]} a part is run, which needs an --output of its own")
        files = {name: getattr(options, name) for name in self.data_options if getattr(options, name) is not None}
        for name, file in files.items():
            if not Path(file).is_file():
                parser.error(f"--{name} must be a file, and {file} is none")
        of_files = [_word(Path(file)) for file in files.values()]
        suite = "_".join([self.name, options.size, *of_files])
        size = [] if options.size == "small" else [options.size]
        output = options.output or _ROOT / "benchmarks/results/paper" / "_".join([self.name, *size, *of_files])
        if not options.report_only:
            run = [*parts, *how, "--output", str(output), "--folder", str(options.folder or Path("runs/paper", suite))]
            code = self._run(options.size, suite, files, [*run, *(["--dry-run"] if options.dry_run else [])])
            if code or options.dry_run:
                return code
        command = [f"python benchmarks/paper/{self.name}.py", *(f"--size {one}" for one in size)]
        command += [*(f"--{name} {Path(file).name}" for name, file in files.items()), *parts]
        return self._write_report(output, self._suite(options.size), suite, " ".join(command))

    def _run(self, size: str, suite: str, files: Mapping[str, str], how: Sequence[str]) -> int:
        from tsattn.cli import main as tsattn
        from tsattn.errors import UserError

        file = self._suite(size)
        try:
            file = _with_files(file, files, Path("runs", "paper", f"{suite}.yaml")) if files else file
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
        code = tsattn(["benchmark", "--suite", str(shown), "--no-report", *how])
        if code == _INTERRUPTED:
            print("repeat your command to go on: it also makes the report", file=sys.stderr)
        return code

    def _write_report(self, output: Path, file: Path, suite: str, command: str) -> int:
        from benchmarks.paper.claims import write_outcome
        from benchmarks.paper.runs import LEFT, clock_seconds, how_made, runs_of, with_left
        from tsattn.errors import UserError
        from tsattn.leaderboard.records import FILE, Records

        if not (output / FILE).is_file():
            print(f"error: nothing was run into {output} yet: run it without --report-only", file=sys.stderr)
            return 2
        try:
            records = with_left(Records.read(output), file)
            runs = runs_of(records)
            planned = runs[runs["status"] != "does not apply"]
            counts = int((planned["status"] != LEFT).sum()), len(planned)
            made = how_made(runs, command, suite)
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
            description=self.doc.strip(),
            epilog=_EPILOG,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--size", choices=("small", "full"), default="small", help="two cores, or a GPU")
        for name, said in self.data_options.items():
            parser.add_argument(f"--{name}", metavar="FILE", help=said)
        parser.add_argument("--report-only", action="store_true", help="write the report of the records that are there")
        parser.add_argument("--dry-run", action="store_true", help="list the runs and their time")
        default = f"benchmarks/results/paper/{self.name}"
        parser.add_argument("--output", type=Path, metavar="DIR", help=f"of the records (default: {default})")
        parser.add_argument("--folder", type=Path, metavar="DIR", help="of the runs (default: runs/paper/SUITE)")
        for name in _PARTS:
            parser.add_argument(f"--{name}", metavar="VALUE", help="run a part, into an --output of its own")
        return parser


def _word(file: Path) -> str:
    """Name a file in the name of a suite: its stem, and the beginning of a hash of its content."""
    stem = re.sub(r"\W+", "_", file.stem)
    return f"{stem}_{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}"


def _with_files(suite: Path, files: Mapping[str, str], file: Path) -> Path:
    """Write a suite with other files of its data sets.

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
