"""`tsattn report RUN...`: the page of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tsattn.cli.output import say
from tsattn.errors import UserError, number_of

__all__ = ["PAGE", "are_runs", "report_runs"]

PAGE = "report.html"


def are_runs(folders: Sequence[str]) -> bool:
    """Whether these are folders of runs, not of records.

    Raises:
        UserError: if some are, and others not, or one is neither.
    """
    from tsattn.leaderboard.run_page.reported_run import is_run_folder

    runs = [folder for folder in folders if is_run_folder(folder)]
    others = [folder for folder in folders if folder not in runs]
    if runs and others:
        raise UserError(
            f"{runs[0]} is the folder of a run, and {others[0]} is not: report takes runs, or records of a benchmark, "
            "not both at once"
        )
    neither = [folder for folder in folders if not _may_have_records(folder)]
    if neither and not runs:
        raise UserError(
            f"there are no records in {neither[0]}, and it is not the folder of a run: valid are folders that `fit` "
            "has written, and folders of `benchmark` with records.parquet"
        )
    return bool(runs)


def _may_have_records(path: str) -> bool:
    return Path(path).is_file() or (Path(path) / "records.parquet").is_file()


def report_runs(folders: Sequence[str], output: Path | None) -> None:
    """Write the page of runs.

    Args:
        folders: of the runs.
        output: the folder of the page; that of the first run by default.

    Raises:
        UserError: for a folder that is damaged, or a page that cannot be written.
    """
    from tsattn.cli.session import session
    from tsattn.leaderboard.report.page import page
    from tsattn.leaderboard.run_page.reported_run import read_runs
    from tsattn.leaderboard.run_page.run_contents import run_sections, run_title
    from tsattn.saved_folders import write_text

    with session():
        runs = read_runs(folders)
        sections = run_sections(runs)
    file = (output or runs[0].folder.path) / PAGE
    write_text(file, page(run_title(runs), sections))
    for sentence in dict.fromkeys(next(one.text for one in sections if one.name == "forecasts")):
        if "no forecasts here" in sentence:
            say(f"note: {sentence}")
    say(f"{number_of(len(runs), 'run')}: {file}")
