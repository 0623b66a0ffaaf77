"""What a suite has and its records lack, so that a report knows that it is one of a part."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import override

from tsattn.experiments import Experiment
from tsattn.leaderboard.planner import Planner
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import LABELS, Record
from tsattn.leaderboard.suite_file import read_suite

__all__ = ["LEFT", "with_left"]

LEFT = "left"
"""The status of an entry that is still to be run."""


class _WithoutData(Planner):
    """Plans without reading data, and so knows no keys."""

    @override
    def key(self, experiment: Experiment) -> str:
        return ""


def with_left(records: Records, suite: Path) -> Records:
    """Records with an entry of the status `LEFT`, which has an experiment, for each of the suite that they lack.

    Args:
        records: of the suite, or of a part of it.
        suite: its file.

    Raises:
        UserError: if the file is no suite.
    """
    there = records.each()
    known = {tuple(one.row[name] for name in LABELS) for one in there}
    refused = {tuple(one.row[name] for name in LABELS[:-1]) for one in there if one.row["status"] == "does not apply"}
    entries = _WithoutData({}).plan(read_suite(suite)).entries
    names = [tuple(entry.labels.values()) for entry in entries]
    lacking = [
        entry
        for entry, name in zip(entries, names, strict=True)
        if name not in known and name[:-1] not in refused  # of a refusal there is one record, without a seed
    ]
    left = [
        Record.of({**entry.labels, "status": LEFT, "experiment": entry.experiment.to_yaml()})
        for entry in lacking
        if entry.experiment is not None
    ]
    return Records.of([*there, *left]) if left else records
