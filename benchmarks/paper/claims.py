"""What the paper claims beside what runs came to: tables of runs, choices by validation, and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from matplotlib.figure import Figure

from tsattn.errors import UserError, number_of
from tsattn.experiments.dotted import get_at
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.markdown_text import markdown_table
from tsattn.leaderboard.report.parts import Cell, Column, ReportTable
from tsattn.leaderboard.whole_files import write_text, write_whole

__all__ = [
    "EDGE",
    "LEAST_SEEDS",
    "Claim",
    "PaperReport",
    "chosen_by_validation",
    "described_by",
    "how_made",
    "listed",
    "paragraph",
    "runs_of",
    "table_of",
    "write_report",
]

LEAST_SEEDS = 3
"""Of each arm, below which no claim is decided."""

EDGE = "`edge` says whether the rate is the least or the greatest of those tried, so that one beyond may be better."
"""What reports say of a choice at the edge of its grid."""

_WORDS = {True: "**holds**", False: "**does not hold**", None: "not decided"}


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes:
        text: what the paper says.
        found: what the runs came to, with its spread.
        holds: whether they agree; None where that is not decided.
        rule: by what that is decided.
    """

    text: str
    found: str
    holds: bool | None
    rule: str


@dataclass(frozen=True)
class PaperReport:
    """What an experiment came to.

    Attributes:
        title: of the report.
        about: paragraphs that say what was done.
        claims: of the paper.
        table: a row an arm, as the report shows it and ``table.csv`` holds it.
        legend: what the columns of the table are.
        figure: of it.
        caption: of the figure.
        differs: what is not as in the paper.
        asked_by: who makes the claims, as their table says it.
    """

    title: str
    about: Sequence[str]
    claims: Sequence[Claim]
    table: pd.DataFrame
    legend: str
    figure: Figure
    caption: str
    differs: Sequence[str]
    asked_by: str = "the paper"


def runs_of(records: Records) -> pd.DataFrame:
    """All entries of the records, a row each; ``values`` is the description of the experiment as plain data.

    Raises:
        UserError: if no run is done.
    """
    frame = records.frame
    if not (frame["status"] == "done").any():
        raise UserError("no run is done, so there is nothing to report")
    frame["values"] = [yaml.load(text, yaml.CSafeLoader) if text else {} for text in frame["experiment"]]
    return frame


def described_by(runs: pd.DataFrame, **paths: str) -> pd.DataFrame:
    """The same with a column for each of some values of the experiments, None where one has no such value.

    Args:
        runs: from `runs_of`.
        **paths: by the name of the column, the dotted path of the value: ``width="model.backbone.d_model"``.
    """

    def at(values: Mapping[str, Any], path: str) -> Any:
        try:
            return get_at(values, path)
        except KeyError:
            return None

    return runs.assign(**{name: [at(values, path) for values in runs["values"]] for name, path in paths.items()})


def chosen_by_validation(
    runs: pd.DataFrame, arm: Sequence[str], candidate: Sequence[str], error: str = "validation_mse"
) -> pd.DataFrame:
    """Of each arm the runs of the candidate with the least validation error, mean over seeds.

    A candidate of which a run failed, as one that diverged, is not chosen; nor is one that has fewer seeds than another
    of the same arm.

    Args:
        runs: from `runs_of`, described.
        arm: the columns that tell arms apart.
        candidate: those that are chosen, such as the learning rate.
        error: the column of the validation error.

    Returns:
        rows of `runs`, with ``candidates``, how many there were; ``is_edge``, whether the first of these columns has
        the least or greatest number of those tried; and ``is_whole``, whether all seeds of the runs were tried with
        every candidate, so that no later run can change the choice.
    """
    parts = []
    seeds = runs["seed"].nunique()
    for _, part in runs.groupby([*arm], dropna=False, sort=False):
        groups = part.groupby([*candidate], dropna=False, sort=False)
        whole = groups.filter(lambda group: bool((group["status"] == "done").all()))
        if not len(whole):
            continue
        sizes = whole.groupby([*candidate], dropna=False)["seed"].transform("size")
        whole = whole[sizes == sizes.max()]
        means = whole.groupby([*candidate], dropna=False)[error].transform("mean")
        best = whole[means == means.min()]
        tried = part[candidate[0]]
        is_edge = False
        if pd.api.types.is_numeric_dtype(tried) and tried.min() < tried.max():
            is_edge = best[candidate[0]].iloc[0] in (tried.min(), tried.max())
        is_whole = bool((groups["seed"].nunique() == seeds).all())
        parts.append(best.assign(candidates=len(groups), is_edge=is_edge, is_whole=is_whole))
    if not parts:
        return runs.iloc[:0].assign(candidates=0, is_edge=False, is_whole=False)
    return pd.concat(parts, ignore_index=True)


def listed(values: pd.Series) -> str:
    """The different numbers of a column, as a report lists them: ``200, 1000``; ``none`` where there are none."""
    return ", ".join(f"{value:g}" for value in sorted(values.dropna().unique())) or "none"


def paragraph(doc: str | None) -> str:
    """The last paragraph of the documentation of a module, in one line: what an experiment does."""
    return " ".join((doc or "").split("\n\n")[-1].split())


def table_of(frame: pd.DataFrame) -> ReportTable:
    """A frame as a table; numbers have four digits that count."""
    columns = [Column(str(name), is_number=pd.api.types.is_numeric_dtype(frame[name])) for name in frame]
    rows = [[Cell(_text(value)) for value in row] for row in frame.itertuples(index=False)]
    return ReportTable("table", "", columns, rows)


def write_report(folder: Path, report: PaperReport, made: str) -> None:
    """Write ``report.md``, ``table.csv`` and ``figure.png`` into the folder of the records.

    Args:
        folder: of the records.
        report: what the experiment came to.
        made: how, and where, as Markdown, see `how_made`.
    """
    claims = pd.DataFrame(
        [(one.text, one.found, _WORDS[one.holds], one.rule) for one in report.claims],
        columns=[report.asked_by, "here", "", "decided by"],
    )
    parts = [
        f"# {report.title}",
        *report.about,
        "## Claims",
        _plain_table(claims),
        f"![{report.caption}](figure.png)",
        f"*{report.caption}*",
        "## Runs",
        report.legend,
        markdown_table(table_of(report.table)),
        "## What differs from the paper",
        "\n".join(f"- {one}" for one in report.differs),
        "## How it was made",
        made,
    ]
    write_text(folder / "table.csv", report.table.to_csv(index=False))
    write_whole(folder / "figure.png", lambda file: report.figure.savefig(file, format="png", dpi=130))
    write_text(folder / "report.md", "\n\n".join(parts) + "\n")


def _plain_table(frame: pd.DataFrame) -> str:
    """A table whose cells are Markdown already."""
    lines = [frame.columns, ["---"] * len(frame.columns), *frame.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def how_made(runs: pd.DataFrame, command: str, suite: str) -> str:
    """How the runs of a suite were made, on what, and which of them failed.

    Args:
        runs: all entries, from `runs_of`.
        command: that does all of it.
        suite: the name of the suite.
    """
    counts = runs["status"].value_counts()
    done = runs[runs["status"] == "done"]
    versions = json.loads(done.iloc[-1]["versions"] or "{}")
    named = ", ".join(f"{name} {versions[name]}" for name in ("tsattn", "torch", "python") if name in versions)
    others = ", ".join(f"{count} {status}" for status, count in counts.items() if status != "done")
    seconds = float(done["seconds"].sum())
    lines = [
        f"`{command}`, the suite `{suite}`: {number_of(int(counts['done']), 'run')} done"
        f"{f', {others}' if others else ''}, {seconds / 3600:.1f} hours of training in all, "
        f"on {' and '.join(sorted(set(done['cpu'])))} ({' and '.join(sorted(set(done['device'])))}); {named}.",
    ]
    failed = runs[runs["status"] == "failed"]
    lines += [
        f"- failed: {row.predictor} {row.attention}, seed {row.seed}: {row.reason}"
        for row in failed.itertuples(index=False)
    ]
    return "\n".join(lines)


def _text(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return "\N{EN DASH}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    return str(value)
