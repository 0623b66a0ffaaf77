"""How long entries will take, from those of like kind that are done."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from tsattn.leaderboard.plan import Entry, StudyEntry
from tsattn.leaderboard.working_folder import WorkingFolder

__all__ = ["Estimates", "duration"]

# the more alike, the earlier
_ALIKE = (
    ("dataset", "horizon", "predictor", "attention"),
    ("dataset", "horizon", "predictor"),
    ("dataset", "predictor"),
    ("horizon", "predictor"),
    ("predictor",),
    ("dataset",),
    (),
)


class Estimates:
    """Seconds of entries to come.

    Args:
        folder: whose journal says how long entries took.
        entries: planned, done and to come.
    """

    def __init__(self, folder: WorkingFolder, entries: Iterable[Entry]) -> None:
        walls = {note["key"]: note["wall"] for note in folder.notes() if note["event"] == "done"}
        self._seen: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for entry in entries:
            record = folder.record(entry.key) if entry.key else None
            if record is not None and record.row["status"] == "done":
                # of one that was done elsewhere the fit alone is known
                self.add(entry, walls.get(entry.key, record.row["seconds"]))

    def add(self, entry: Entry, seconds: float) -> None:
        """Count one that is done."""
        for alike in _ALIKE:
            self._seen[_kind(alike, entry.labels)].append(seconds)

    def of(self, entry: Entry) -> float | None:
        """The median of those that are most like it, as one may have stood still; None where nothing is done yet."""
        return self._median(entry.labels)

    def of_study(self, study: StudyEntry, horizon: int) -> float | None:
        """That of a study, whose trials take as long as entries do."""
        labels = {
            "dataset": study.dataset,
            "horizon": horizon,
            "predictor": study.predictor,
            "attention": study.attention,
        }
        median = self._median(labels)
        return None if median is None else median * study.trials * max(1, study.folds)

    def _median(self, labels: Mapping[str, Any]) -> float | None:
        for alike in _ALIKE:
            seen = self._seen.get(_kind(alike, labels))
            if seen:
                return statistics.median(seen)
        return None


def _kind(names: tuple[str, ...], labels: Mapping[str, Any]) -> tuple[Any, ...]:
    return (names, *(labels[name] for name in names))


def duration(seconds: float) -> str:
    """Seconds as words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
