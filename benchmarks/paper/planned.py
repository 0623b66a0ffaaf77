"""What a suite has and its records lack, so that a report knows that it is one of a part."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from tsattn.experiments import Experiment
from tsattn.leaderboard.plan import Planner
from tsattn.leaderboard.records import LABELS, Records
from tsattn.leaderboard.suite import read_suite

__all__ = ["LEFT", "with_left"]

LEFT = "left"
"""The status of a run that is still to be made."""


class _WithoutData(Planner):
    """Plans without reading data, and so knows no keys."""

    @override
    def key(self, experiment: Experiment) -> str:
        return ""


def with_left(records: Records, suite: Path) -> Records:
    """Records with a row of the status `LEFT`, which has an experiment, for each run of the suite that they lack.

    Args:
        records: of the suite, or of a part of it.
        suite: its file.

    Raises:
        UserError: if the file is no suite.
    """
    there = records.table.to_pylist()
    known = {tuple(row[name] for name in LABELS) for row in there}
    left = [
        {**entry.labels, "suite": suite.stem, "status": LEFT, "key": "", "experiment": entry.experiment.to_yaml()}
        for entry in _WithoutData().plan(read_suite(suite))
        if entry.experiment is not None and tuple(entry.labels.values()) not in known
    ]
    return Records.of([*there, *left], records.suites) if left else records
