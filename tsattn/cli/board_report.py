"""`tsattn report`: what records say, as a page, as Markdown, and as the table of a README; or the page of runs."""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tsattn.cli.output import say
from tsattn.cli.run_report import PAGE, are_runs, report_runs
from tsattn.cli.sentence_parser import SentenceParser
from tsattn.errors import UserError, number_of, one_of

if TYPE_CHECKING:
    from tsattn.leaderboard.records import Records
    from tsattn.leaderboard.report.analysis import Analysis
    from tsattn.leaderboard.standings import Standings

__all__ = ["run"]

MARKDOWN = "report.md"

_DESCRIPTION = """\
Report what a benchmark's records of runs say: means and spreads over seeds, what validation chose, paired differences
with intervals over blocks of time and over seeds, ranks, costs, published numbers, and what failed.

RECORDS are folders with records.parquet and windows.parquet, as `benchmark` writes them; several are merged.

Or, of the folders of runs, as `fit` writes them: report each run's scores, by step and by series, its training,
forecasts to step through, its configuration beside those of the others, and how it was run."""

_ENDING = f"""\
Written are {PAGE}, one file that needs no network, and {MARKDOWN}; with --readme alone only that file is changed.
Of runs it is {PAGE} alone, and --output the only option."""


def run(words: list[str]) -> int:
    """Write a report; the exit code is 0, or a `UserError` is raised.

    Args:
        words: the words after ``report``.
    """
    options = _parser().parse_args(words)
    if not options.records:
        raise UserError("report needs records: a folder with records.parquet, or several; or the folders of runs")
    _check_output(options.output)
    if are_runs(options.records):
        _check_options_of_runs(options)
        report_runs(options.records, options.output)
        return 0
    from tsattn.leaderboard.origins import read_origins
    from tsattn.leaderboard.records import Records
    from tsattn.leaderboard.report.analysis import Analysis
    from tsattn.leaderboard.report.published import read_published, shipped_numbers
    from tsattn.leaderboard.standings import Standings

    file = options.published or shipped_numbers()
    published = read_published(file) if file is not None else []
    records = Records.read(*options.records)
    fresh = options.confirm
    if not fresh:
        records, fresh = records.and_fresh_seeds()
    board = Standings(records)
    _check_seeds(fresh, sorted({int(seed) for seed in board.done["seed"].dropna()}))
    _check_chose_nothing(options.confirm, board, [_folder_of(source) for source in options.records])
    analysis = Analysis(board, published, fresh, origins=read_origins(options.records))
    if options.readme is None or options.output is not None:
        folders = [_folder_of(source) for source in options.records]
        analysis = _with_pictures(analysis, records, options.runs, folders)
        _write(analysis, options.output or folders[0])
    if options.readme is not None:
        from tsattn.leaderboard.report.readme_part import write_readme

        write_readme(options.readme, analysis)
        say(f"{options.readme}: its table is that of these records")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(
        prog="python -m tsattn report",
        description=_DESCRIPTION,
        epilog=_ENDING,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("records", nargs="*", metavar="RECORDS", help="folders, or files records.parquet; or runs")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="of the report; the first of the records or runs if left out"
    )
    parser.add_argument(
        "--confirm",
        type=_seeds,
        default=(),
        metavar="SEEDS",
        help="such as 4,5: find differences without these seeds, and see with them alone what is left (default: the "
        "fresh_seeds of the suites)",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="FOLDER",
        help="with run folders, to draw forecasts, which are kept beside the records",
    )
    parser.add_argument("--published", type=Path, metavar="FILE", help="TOML of published numbers, instead of our own")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="write the table of what was chosen into this file")
    return parser


def _check_output(output: Path | None) -> None:
    """Refuse the name of a file for the folder of a report, which would become a folder of that name.

    Raises:
        UserError: for it.
    """
    if output is not None and output.suffix in (".html", ".htm", ".md") and not output.is_dir():
        raise UserError(f"--output is a folder, in which {PAGE} is written: instead of {output} give {output.parent}")


def _check_options_of_runs(options: argparse.Namespace) -> None:
    """Refuse options that say something about records alone."""
    for name in ("confirm", "runs", "published", "readme"):
        if getattr(options, name):
            raise UserError(f"--{name} is for records of a benchmark; beside the folders of runs valid is --output")


def _seeds(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", text.strip()):
        raise argparse.ArgumentTypeError(f"must be seeds such as 4,5, not {text}")
    return tuple(sorted({int(seed) for seed in text.split(",")}))


def _check_seeds(fresh: tuple[int, ...], known: list[int]) -> None:
    """Refuse seeds that nobody ran, and all of them at once, which would leave nothing to choose by."""
    if unknown := [seed for seed in fresh if seed not in known]:
        raise UserError(f"--confirm {unknown[0]}: no run has this seed; there are {one_of(map(str, known)) or 'none'}")
    if fresh and set(fresh) == set(known):
        raise UserError("--confirm names every seed that was run; leave some to find differences with")


def _check_chose_nothing(fresh: tuple[int, ...], board: Standings, folders: list[Path]) -> None:
    """Refuse the seed with which studies and rolling origins chose values."""
    from tsattn.leaderboard.chosen_values import SELECTED
    from tsattn.leaderboard.origins import ORIGINS

    first = int(board.done["seed"].min()) if board.done["seed"].notna().any() else None
    if first in fresh and any((folder / name).exists() for folder in folders for name in (SELECTED, ORIGINS)):
        raise UserError(f"--confirm {first}: values were chosen with the first seed; fresh are those after it")


def _folder_of(source: str) -> Path:
    path = Path(source)
    return path if path.is_dir() else path.parent


def _with_pictures(analysis: Analysis, records: Records, runs: Path | None, folders: list[Path]) -> Analysis:
    from tsattn.leaderboard.report.window_pictures import window_pictures

    if runs is None:
        pictures, lacking = window_pictures(analysis, records, runs, folders)
    else:
        from tsattn.cli.session import session

        with session():
            pictures, lacking = window_pictures(analysis, records, runs, folders)
    if lacking and runs is not None:
        say(f"note: {lacking}")
    return dataclasses.replace(analysis, pictures=pictures, why_no_pictures=lacking)


def _write(analysis: Analysis, folder: Path) -> None:
    from tsattn.leaderboard.report.contents import sections_of, title_of
    from tsattn.leaderboard.report.markdown_text import markdown_report
    from tsattn.leaderboard.report.page import page
    from tsattn.saved_folders import write_text

    title, sections = title_of(analysis), sections_of(analysis)
    texts = {MARKDOWN: markdown_report(title, sections), PAGE: page(title, sections)}
    for name, text in texts.items():
        write_text(folder / name, text)
    entries = analysis.board.entries
    counts = entries["status"].value_counts()
    failed = f", {counts['failed']} failed" if "failed" in counts else ""
    say(f"{number_of(len(analysis.board.done), 'run')}{failed}: {folder / PAGE}, {folder / MARKDOWN}")
