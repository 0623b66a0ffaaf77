"""What the paper claims beside what runs came to, and the report that says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.clock import counted_seconds
from benchmarks.paper.planned import LEFT
from benchmarks.paper.words import markdown_table
from tsattn.errors import number_of
from tsattn.saved_folders import write_text, write_whole

__all__ = ["ASKED_BY", "Claim", "PaperReport", "how_made", "paragraph", "write_report"]

ASKED_BY = {True: "the paper", False: "ours"}
"""Whose a claim is, as tables say it."""

_WORDS = {True: "**holds**", False: "**does not hold**", None: "not decided"}


@dataclass(frozen=True)
class Claim:
    """One claim, of the paper or of ours.

    Attributes:
        text: what is claimed.
        found: what the runs came to, with its spread.
        holds: whether they agree; None where that is not decided.
        rule: by what that is decided.
        is_of_paper: False where the paper says nothing of it, and we ask.
    """

    text: str
    found: str
    holds: bool | None
    rule: str
    is_of_paper: bool = True


@dataclass(frozen=True)
class PaperReport:
    """What an experiment came to.

    Attributes:
        title: of the report.
        about: paragraphs that say what was done.
        claims: of the paper, and of ours.
        table: a row an arm, as the report shows it and ``table.csv`` holds it.
        legend: what the columns of the table are.
        figure: of it.
        caption: of the figure.
        differs: what is not as in the paper.
    """

    title: str
    about: Sequence[str]
    claims: Sequence[Claim]
    table: pd.DataFrame
    legend: str
    figure: Figure
    caption: str
    differs: Sequence[str]


def paragraph(doc: str | None) -> str:
    """The last paragraph of the documentation of a module, in one line: what an experiment does."""
    return " ".join((doc or "").split("\n\n")[-1].split())


def write_report(folder: Path, report: PaperReport, made: str, left: str = "") -> None:
    """Write ``report.md``, ``table.csv`` and ``figure.png`` into the folder of the records.

    Args:
        folder: of the records.
        report: what the experiment came to.
        made: how, and where, as Markdown, see `how_made`.
        left: which runs are still to be made; empty where none is.
    """
    rules = {rule: f"({number})" for number, rule in enumerate(dict.fromkeys(one.rule for one in report.claims), 1)}
    claims = pd.DataFrame(
        [(one.text, ASKED_BY[one.is_of_paper], one.found, _WORDS[one.holds], rules[one.rule]) for one in report.claims],
        columns=["claim", "of", "here", "", "rule"],
    )
    parts = [
        f"# {report.title}",
        *([f"**This is the report of a part:** {left}."] if left else []),
        *report.about,
        "## Claims",
        _plain_table(claims),
        "\n\n".join(f"Rule {number}: {rule}." for rule, number in rules.items()),
        f"![{report.caption}](figure.png)",
        f"*{report.caption}*",
        "## Runs",
        report.legend,
        markdown_table(report.table),
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
    escaped = ([str(cell).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def how_made(runs: pd.DataFrame, command: str, suite: str) -> str:
    """How the runs of a suite were made, on what, and which of them failed.

    Args:
        runs: all entries, from `runs.runs_of`.
        command: that does all of it.
        suite: the name of the suite.
    """
    counts = runs["status"].value_counts()
    done = runs[runs["status"] == "done"]
    versions = json.loads(done.iloc[-1]["versions"] or "{}")
    named = ", ".join(f"{name} {versions[name]}" for name in ("tsattn", "torch", "python") if name in versions)
    others = ", ".join(f"{count} {status}" for status, count in counts.items() if status not in ("done", LEFT))
    planned = int((runs["status"] != "does not apply").sum())
    lines = [
        f"`{command}`, the suite `{suite}`: {int(counts['done'])} of {number_of(planned, 'run')} done"
        f"{f', {others}' if others else ''}, {counted_seconds(runs).sum() / 3600:.1f} hours of training in all, "
        f"on {' and '.join(sorted(set(done['cpu'])))} ({' and '.join(sorted(set(done['device'])))}); {named}.",
    ]
    failed = runs[runs["status"] == "failed"]
    lines += [
        f"- failed: {row.dataset}, {row.horizon}: {row.predictor} {row.attention}, seed {row.seed}: {row.reason}"
        for row in failed.itertuples(index=False)
    ]
    return "\n".join(lines)
