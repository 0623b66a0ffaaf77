"""`tsattn report`: what the records of a benchmark say, as a page, as Markdown, and as a part of other files."""

from __future__ import annotations

import argparse
from pathlib import Path

from tsattn.cli.words import SentenceParser, say
from tsattn.errors import UserError, number_of

__all__ = ["run"]

_DESCRIPTION = """\
Write the page of a benchmark: whether an attention helps, a figure, a table, the answers to the suite's questions, and
details.

RECORDS are folders with records.parquet, as `benchmark` writes them. Several make one page."""

_ENDING = """\
Written are report.html, which needs no network, report.md and report.png."""


def run(words: list[str]) -> int:
    """Write a report; the exit code is 0, or a `UserError` is raised."""
    options = _parser().parse_args(words)
    if not options.records:
        raise UserError("report needs records: name a folder with records.parquet, as `benchmark` writes it")
    for source in map(Path, options.records):
        if (source / "config.yaml").is_file():
            raise UserError(f"{source} is a run: see its forecast.png, or `tsattn compare {source} OTHER_RUN`")
    if options.output is None and len(options.records) > 1:
        raise UserError("several records make one page: name its folder with --output DIR")
    first = Path(options.records[0])
    output = options.output or (first if first.is_dir() else first.parent)
    if output.suffix in (".html", ".md"):
        raise UserError(f"--output is a folder, not {output.name}: pass --output {output.parent}")

    from tsattn.leaderboard.analysis import Analysis
    from tsattn.leaderboard.page import HTML, MARKDOWN, write_readme, write_report
    from tsattn.leaderboard.published import read_published, shipped_numbers
    from tsattn.leaderboard.records import Records

    published = shipped_numbers()
    analysis = Analysis(Records.read(*options.records), read_published(published) if published else ())
    page = write_report(analysis, output)
    failed = f", {len(analysis.failed)} failed" if len(analysis.failed) else ""
    say(f"{number_of(len(analysis.runs), 'run')}{failed}: {output / HTML}, {output / MARKDOWN}")
    for file in options.readme:
        write_readme(file, page, output)
        say(f"{file}: its part is that of these records")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(prog="tsattn report", description=_DESCRIPTION, epilog=_ENDING)
    add = parser.add_argument
    add("records", nargs="*", metavar="RECORDS", help="folders with records.parquet, or such files")
    add("--output", type=Path, metavar="DIR", help="folder of the report (default: that of the records)")
    into = "put answer, figure and table between two comments of this file, too; may be repeated"
    add("--readme", type=Path, action="append", default=[], metavar="FILE", help=into)
    return parser
