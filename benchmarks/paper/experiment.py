"""The frame of an experiment of the paper: its suites are run by the leaderboard, its report is made of the records."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.paper.claims import PaperReport
    from tsattn.leaderboard.records import Records

__all__ = ["PaperExperiment"]

_ROOT = Path(__file__).parents[2]
_SIZES = ("small", "full")

_DESCRIPTION = """\
{doc}

Runs what is left of its suite, and reports the records. Run it again to go on: what is finished is never repeated.
The suite alone:

    python -m tsattn benchmark --suite {suite}"""

_ENDING = """\
All other options are those of `python -m tsattn benchmark`: --shard I/N, --ray ADDRESS, --threads N, --retry-failed,
--add RECORDS, --folder DIR, and those for a part of the suite.

The output folder holds records.parquet and windows.parquet, as the leaderboard writes them; report.md, table.csv and
figure.png are made of these."""


@dataclass(frozen=True)
class PaperExperiment:
    """One experiment.

    Attributes:
        name: of its suites, ``suites/NAME_small.yaml`` and ``suites/NAME_full.yaml``, and of the folder of its results.
        doc: what it is about.
        report: makes the report of the records.
        suites: the folder of the suites.
        data_options: options of the command that name a file for an argument of the data, by name what its help says.
            With one of them the suite is another, of its own name, folder and records.
    """

    name: str
    doc: str
    report: Callable[[Records], PaperReport]
    suites: Path = Path(__file__).parent / "suites"
    data_options: Mapping[str, str] = field(default_factory=dict)

    def main(self, words: Sequence[str] | None = None) -> int:
        """Run it from the command line; the exit code is that of `python -m tsattn benchmark`.

        Args:
            words: of the command; those of this process by default.
        """
        options, others = self._parser().parse_known_args(sys.argv[1:] if words is None else words)
        names = {word.split("=")[0] for word in others}
        if "--suite" in names:
            self._parser().error("the suite is that of the experiment: --size small or --size full")
        given = {name: getattr(options, name) for name in self.data_options if getattr(options, name) is not None}
        file = self.suites / f"{self.name}_{options.size}.yaml"
        words = [*map(_word, given.values())]
        suite = "_".join([self.name, options.size, *words])
        place = "_".join([self.name, *([] if options.size == "small" else [options.size]), *words])
        output = options.output or _ROOT / "benchmarks/results/paper" / place
        command = [f"python benchmarks/paper/{self.name}.py", *([] if options.size == "small" else ["--size full"])]
        command += [f"--{name} {value}" for name, value in given.items()]
        if not options.report_only:
            from tsattn.cli import main as tsattn

            for name in (name for name, value in given.items() if not Path(value).is_file()):
                self._parser().error(f"--{name} must be a file, and {given[name]} is none")
            if given:
                file = _with_data(file, given, Path("runs", "paper", f"{suite}.yaml"))
            how = ["--jobs", str(options.jobs), *(["--dry-run"] if options.dry_run else []), *others]
            if "--folder" not in names:
                how += ["--folder", str(Path("runs", "paper", suite))]
            shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
            code = tsattn(["benchmark", "--suite", str(shown), "--output", str(output), "--no-report", *how])
            if code or options.dry_run or "--slurm" in names:
                return code
        elif others:
            self._parser().error(f"with --report-only nothing is run: leave {others[0]} out")
        return self._write_report(output, suite, " ".join(command))

    def _write_report(self, output: Path, suite: str, command: str) -> int:
        from benchmarks.paper.claims import how_made, runs_of, write_report
        from tsattn.errors import UserError
        from tsattn.leaderboard.records import Records

        try:
            records = Records.read(output)
            write_report(output, self.report(records), how_made(runs_of(records), command, suite))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(f"report: {output / 'report.md'}")
        return 0

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python benchmarks/paper/{self.name}.py",
            description=_DESCRIPTION.format(
                doc=self.doc.strip(), suite=f"benchmarks/paper/suites/{self.name}_SIZE.yaml"
            ),
            epilog=_ENDING,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--size", choices=_SIZES, default="small", help="small for two cores, full for a GPU")
        parser.add_argument("--jobs", default=1, metavar="N", help="runs at once (default: 1)")
        parser.add_argument(
            "--dry-run", action="store_true", help="list what would be run and how long it takes, and end"
        )
        parser.add_argument("--report-only", action="store_true", help="make the report of the records that are there")
        parser.add_argument(
            "--output", type=Path, metavar="DIR", help=f"of the records (default: benchmarks/results/paper/{self.name})"
        )
        for name, words in self.data_options.items():
            parser.add_argument(f"--{name}", metavar="FILE", help=words)
        return parser


def _word(value: str) -> str:
    """What a value is called in the name of a suite: the stem of a file."""
    return re.sub(r"\W+", "_", Path(value).stem)


def _with_data(suite: Path, given: Mapping[str, str], file: Path) -> Path:
    """Write a suite with other arguments of its data sets into a file."""
    import yaml

    content = yaml.safe_load(suite.read_text())
    for data in content["data"]:
        data["init_args"] = {**data.get("init_args", {}), **given}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file
