"""What an experiment came to, as files: its report, and its claims as JSON, of which the report over all is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.paper.claims import PaperReport, write_report
from tsattn.leaderboard.whole_files import write_text

__all__ = ["CLAIMS_FILE", "clock_seconds", "write_outcome"]

CLAIMS_FILE = "claims.json"

_BREAK = pd.Timedelta(minutes=1)


def write_outcome(folder: Path, report: PaperReport, made: str, *, seconds: float) -> None:
    """Write the report of an experiment, see `write_report`, and ``claims.json``.

    Args:
        folder: of its records.
        report: what it came to.
        made: how, and where, as Markdown.
        seconds: by the clock, in which it ran.
    """
    write_report(folder, report, made)
    claims = [
        {"claim": one.text, "found": one.found, "holds": None if one.holds is None else bool(one.holds)}
        for one in report.claims
    ]
    content = {"title": report.title, "claims": claims, "seconds": round(float(seconds), 1)}
    write_text(folder / CLAIMS_FILE, json.dumps(content, indent=2) + "\n")


def clock_seconds(runs: pd.DataFrame) -> float:
    """The time by the clock in which one of some runs at least was going on, in seconds.

    Runs say when they finished and how long they trained. Between trainings they are started and scored: so the time
    between two counts too, unless it is over a minute, when the experiment was not going on.

    Args:
        runs: from `runs_of`, with ``finished`` and ``seconds``.
    """
    done = runs[(runs["status"] == "done") & runs["seconds"].notna()]
    ends = pd.to_datetime(done["finished"], utc=True)
    spans: list[tuple[Any, Any]] = sorted(zip(ends - pd.to_timedelta(done["seconds"], unit="s"), ends, strict=True))
    total, last = pd.Timedelta(0), None
    for begin, end in spans:
        if last is None or begin > last + _BREAK:
            last = begin
        if end > last:
            total += end - last
            last = end
    return float(total.total_seconds())
