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
MIN_SEEDS = 3  # of each model, below which no claim is decided
WORDS = {True: "**holds**", False: "**refuted at this size**", None: "undecided"}
_DASH, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Claim:
    """One claim: `found` has the numbers of the runs of a `size`, `holds` is None where they decide nothing."""

    text: str
    found: str
    holds: bool | None
    rule: str
    is_of_paper: bool = True  # else the paper says nothing of it, and we ask
    size: str = ""

    @property
    def shown(self) -> str:
        return self.text if self.is_of_paper else f"{self.text} (ours)"


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


def write_outcome(folder: Path, report: PaperReport, made: str, command: str, left: int = 0) -> None:
    """Write ``report.md``, ``table.csv``, ``figure.png`` and ``claims.json``; `left` runs may change what they say."""
    rules = {rule: f"({number})" for number, rule in enumerate(dict.fromkeys(one.rule for one in report.claims), 1)}
    more = f"; {left} runs left" if left else ""
    rows = [(one.shown, WORDS[one.holds], one.found, f"{one.size}{more}", rules[one.rule]) for one in report.claims]
    about = " ".join((report.doc or "").split("\n\n")[-1].split())
    parts = [
        f"# {report.title}",
        *filter(None, [about]),
        "## Claims",
        "\n".join(table(("claim", "verdict", "here", "size", "rule"), rows)[:-1]),
    ]
    parts += ["\n\n".join(f"Rule {number}: {rule}." for rule, number in rules.items())]
    parts += [f"![{report.caption}](figure.png)", f"*{report.caption}*", "## Runs", report.legend]
    parts += [markdown_table(report.table), "## What differs from the paper"]
    parts += ["\n".join(f"- {one}" for one in report.differs), "## How it was made", made]
    claims = [
        {"claim": one.shown, "is_of_paper": one.is_of_paper, "found": one.found, "size": f"{one.size}{more}"}
        | {"holds": None if one.holds is None else bool(one.holds)}  # NumPy's is not JSON's
        for one in report.claims
    ]
    content = {"title": report.title, "command": command, "claims": claims}
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


def claim_of(
    text: str, parts: Iterable[tuple[str, bool | None]], rule: str, *, is_of_paper: bool = True, size: str = ""
) -> Claim:
    """Make a claim that most of some comparisons decide, each with its words and its verdict."""
    found = [*parts]
    words = "; ".join(words for words, _ in found) or "no such runs"
    return Claim(text, words, most(verdict for _, verdict in found), rule, is_of_paper, size)


@dataclass(frozen=True)
class Pooled:
    """The mean of paired differences, its interval of 95 %, and the least difference that would be detected."""

    mean: float
    low: float
    high: float
    p: float
    detectable: float  # with a power of 80 %
    freedom: float
    below: int
    pairs: int
    seeds: int

    def verdict(self) -> bool | None:
        """Return whether the difference lies below 0, None where that is not decided."""
        if self.seeds < MIN_SEEDS or self.low <= 0 <= self.high:
            return None
        return self.mean < 0

    def is_within(self, margin: float) -> bool:
        """Return whether the interval of 90 % lies within a margin on both sides of 0."""
        known = stats.t(self.freedom)
        reach = (self.high - self.mean) * float(known.ppf(0.95) / known.ppf(0.975))
        return self.seeds >= MIN_SEEDS and abs(self.mean) + reach < margin


def pooled(differences: pd.Series) -> Pooled:
    """Pool paired differences, indexed by ``size`` and ``seed``: sizes count alike, and seeds are clusters.

    Without gaps this is Student's t of the means of seeds. A seed may lack a size: each size counts with the variance
    of its own seeds, and the degrees of freedom are those of Bell and McCaffrey (2002).
    """
    table = differences.rename("difference").reset_index().pivot_table("difference", "seed", "size")
    counts, (seeds, sizes) = table.count(), table.shape
    mean, freedom, error = float(table.mean().mean()), 1.0, math.inf
    if counts.min() > 1:
        scale = 1 / np.sqrt(counts * (counts - 1)) / sizes
        error = float(np.linalg.norm(((table - table.mean()) * scale).sum(axis=1)))
        seen = (table.notna() * scale).to_numpy()
        spread = np.diag((seen**2).sum(axis=1)) - (seen / counts.to_numpy()) @ seen.T
        freedom = float(np.trace(spread) ** 2 / (spread**2).sum())
    known = stats.t(freedom)
    reach, detectable = (error * float(one) for one in (known.ppf(0.975), known.ppf(0.975) + known.ppf(0.8)))
    p = 2 * float(known.sf(abs(mean) / error)) if error else math.nan
    below, pairs = int((differences < 0).sum()), len(differences)
    return Pooled(mean, mean - reach, mean + reach, p, detectable, freedom, below, pairs, seeds)


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
