"""Made-up records of runs, of which a test knows what they say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import yaml

from tsattn.leaderboard.records import Record, Records

__all__ = ["made_up", "records_of"]


def made_up(
    predictor: str, attention: str, seed: int | None, experiment: Mapping[str, Any], status: str = "done", **values: Any
) -> Record:
    """One run; `values` are columns of the records."""
    row = {
        "suite": "made_up",
        "dataset": "made_up",
        "horizon": 8,
        "predictor": predictor,
        "attention": attention,
        "seed": seed,
        "status": status,
        "reason": "" if status == "done" else "training diverged",
        "key": f"{predictor}-{attention}-{seed}",
        "experiment": yaml.safe_dump(dict(experiment)),
        "versions": '{"tsattn": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}',
        "cpu": "a CPU",
        "device": "cpu",
        "finished": datetime(2026, 1, 1, tzinfo=UTC),
    }
    if status == "done":
        row |= {"parameters": 100, "flops": 1000.0, "seconds": 2.0, **values}
    return Record.of(row)


def records_of(*records: Record) -> Records:
    return Records.of(records)
