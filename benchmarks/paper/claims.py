"""Claims of the paper and of ours: how runs decide them, and the report that says so."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from benchmarks.measuring import table
from tsattn.saved_folders import write_text, write_whole

CLAIMS_FILE = "claims.json"
ASKED_BY = {True: "the paper", False: "ours"}
WORDS = {True: "**holds**", False: "**does not hold**", None: "not decided"}
_DASH, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Claim:
    """One claim: `found` has the numbers of the runs, `holds` is None where it is not decided, by the `rule`."""

    text: str
    found: str
    holds: bool | None
    rule: str
    is_of_paper: bool = True  # else the paper says nothing of it, and we ask


@dataclass(frozen=True)
class PaperReport:
    """The parts of a report, with the last paragraph of `doc`; `differs` lists what is not as in the paper."""

    title: str
    doc: str | None
    claims: Sequence[Claim]
    table: pd.DataFrame
    legend: str
    figure: Figure
    caption: str
    differs: Sequence[str]


def write_outcome(folder: Path, report: PaperReport, made: str, *, seconds: float) -> None:
    """Write ``report.md``, ``table.csv``, ``figure.png`` and ``claims.json``; `seconds` are by the clock."""
    rules = {rule: f"({number})" for number, rule in enumerate(dict.fromkeys(one.rule for one in report.claims), 1)}
    rows = [
        (one.text, ASKED_BY[one.is_of_paper], one.found, WORDS[one.holds], rules[one.rule]) for one in report.claims
    ]
    about = " ".join((report.doc or "").split("\n\n")[-1].split())
    parts = [
        f"# {report.title}",
        *filter(None, [about]),
        "## Claims",
        "\n".join(table(("claim", "of", "here", "", "rule"), rows)[:-1]),
    ]
    parts += ["\n\n".join(f"Rule {number}: {rule}." for rule, number in rules.items())]
    parts += [f"![{report.caption}](figure.png)", f"*{report.caption}*", "## Runs", report.legend]
    parts += [markdown_table(report.table), "## What differs from the paper"]
    parts += ["\n".join(f"- {one}" for one in report.differs), "## How it was made", made]
    claims = [
        {"claim": one.text, "is_of_paper": one.is_of_paper, "found": one.found}
        | {"holds": None if one.holds is None else bool(one.holds)}  # NumPy's is not JSON's
        for one in report.claims
    ]
    content = {"title": report.title, "claims": claims, "seconds": round(float(seconds), 1)}
    write_text(folder / "table.csv", report.table.to_csv(index=False))
    write_whole(folder / "figure.png", lambda file: report.figure.savefig(file, format="png", dpi=130))
    write_text(folder / "report.md", "\n\n".join(parts) + "\n")
    write_text(folder / CLAIMS_FILE, json.dumps(content, indent=2) + "\n")


def most(verdicts: Iterable[bool | None]) -> bool | None:
    """Return the verdict of more than half, where none says the opposite; None counts as not decided."""
    found = list(verdicts)
    for verdict in (True, False):
        if found.count(verdict) * 2 > len(found) and (not verdict) not in found:
            return verdict
    return None


def claim_of(text: str, parts: Iterable[tuple[str, bool | None]], rule: str, *, is_of_paper: bool = True) -> Claim:
    """Make a claim that most of some comparisons decide, each with its words and its verdict."""
    found = [*parts]
    words = "; ".join(words for words, _ in found) or "no such runs"
    return Claim(text, words, most(verdict for _, verdict in found), rule, is_of_paper)


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean by Student's t; infinite for fewer than two values."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean = float(np.mean(values))
    reach = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values))
    return mean - reach, mean + reach


def is_lower(errors: Sequence[float], others: Sequence[float], level: float = 0.95) -> bool | None:
    """Return whether the errors of seeds, not paired, lie below all others, or above (False); None if neither.

    The interval of the difference of their mean logarithms (Welch) must exclude 0, too.
    """
    if min(len(errors), len(others)) < 2:
        return None
    below, above = max(errors) < min(others), min(errors) > max(others)
    if not below and not above:
        return None
    if np.ptp(errors) == 0 and np.ptp(others) == 0:
        return below
    moments = (value for logs in map(np.log, (errors, others)) for value in (logs.mean(), logs.std(ddof=1), len(logs)))
    p = float(stats.ttest_ind_from_stats(*moments, equal_var=False).pvalue)
    return below if p < 1 - level else None


def with_spread(value: float, spread: float) -> str:
    """Write ``0.366 ± 0.002``; without a spread where there is none."""
    digits = 3 if abs(value) >= 0.1 else 4 if abs(value) >= 0.01 else 5
    return f"{value:.{digits}f}" if math.isnan(spread) else f"{value:.{digits}f} ± {spread:.{digits}f}"


def percent(value: float) -> str:
    """Write ``+0.31 %``, and ``-2.4 %`` with a real minus."""
    return _DASH if math.isnan(value) else f"{value:+.{2 if abs(value) < 0.995 else 1}f} %".replace("-", _MINUS)


def markdown_table(frame: pd.DataFrame) -> str:
    """Write a frame as a table of pipes; numbers have four significant digits, and stand right."""
    marks = ["---:" if pd.api.types.is_numeric_dtype(frame[name]) else "---" for name in frame]
    rows = (map(_text, row) for row in frame.itertuples(index=False))
    return "\n".join(table([str(name).replace("_", r"\_") for name in frame.columns], rows, marks)[:-1])


def _text(value: Any) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return _DASH
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int | np.integer) else str(value).replace("_", r"\_")


def new_axes(size: tuple[float, float], rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, NDArray[Any]]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(max(1, rows), max(1, columns), squeeze=False, **shared)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes
