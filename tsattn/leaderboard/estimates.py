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
    ("dataset", "sort"),
    ("sort",),
    ("dataset",),
    (),
)

_ALIKE_STUDIES = (
    ("dataset", "predictor", "attention"),
    ("dataset", "predictor"),
    ("predictor", "attention"),
    ("predictor",),
)


class Estimates:
    """Seconds of entries to come.

    Args:
        folder: whose journal says how long entries took.
        entries: planned, done and to come.
        studies: that are done, each with what `tsattn.leaderboard.study_work.run_study_entry` wrote down of it.
    """

    def __init__(
        self,
        folder: WorkingFolder,
        entries: Iterable[Entry],
        studies: Iterable[tuple[StudyEntry, Mapping[str, Any]]],
    ) -> None:
        walls = {note["key"]: note["wall"] for note in folder.notes() if note["event"] == "done"}
        self._seen: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._trials: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for study, content in studies:
            complete = [
                one for one in content.get("trials", ()) if one["state"] == "complete"
            ]  # a pruned one is shorter
            of_a_fold = [one["seconds"] / max(1, study.folds) for one in complete if one.get("seconds") is not None]
            for alike in _ALIKE_STUDIES:
                self._trials[_kind(alike, _labels(study))] += of_a_fold
        for entry in entries:
            fit = _fit_alone(folder, entry)
            if fit is not None:  # that alone is known of one that was done elsewhere
                self.add(entry, walls.get(entry.key, fit))

    def add(self, entry: Entry, seconds: float) -> None:
        """Count one that is done."""
        for alike in _ALIKE:
            self._seen[_kind(alike, _labels_of_entry(entry))].append(seconds)

    def of(self, entry: Entry) -> float | None:
        """The median of those that are most like it, as one may have stood still; None where nothing is done yet."""
        return self._median(_labels_of_entry(entry))

    def of_study(self, study: StudyEntry, horizon: int) -> float | None:
        """That of a study, from trials of like studies, or else from entries, which take as long as one fold does."""
        kinds = [_kind(alike, _labels(study)) for alike in _ALIKE_STUDIES]
        of_a_fold = next((statistics.median(self._trials[kind]) for kind in kinds if self._trials.get(kind)), None)
        if of_a_fold is None:
            of_a_fold = self._median({**_labels(study), "horizon": horizon, "sort": "trained"})
        return None if of_a_fold is None else of_a_fold * study.trials * max(1, study.folds)

    def of_all(self, entries: Iterable[Entry], studies: Iterable[StudyEntry], horizon: int) -> float | None:
        """The sum over entries and studies; None where one of them cannot be known, or there is none.

        Args:
            entries: to be run.
            studies: likewise.
            horizon: at which studies choose.
        """
        seconds = [self.of(entry) for entry in entries]
        seconds += [self.of_study(study, horizon) for study in studies]
        known = [one for one in seconds if one is not None]
        return sum(known) if known and len(known) == len(seconds) else None

    def _median(self, labels: Mapping[str, Any]) -> float | None:
        for alike in _ALIKE:
            seen = self._seen.get(_kind(alike, labels))
            if seen:
                return statistics.median(seen)
        return None


def _fit_alone(folder: WorkingFolder, entry: Entry) -> float | None:
    """The seconds of a result without those of its members, which are entries of their own; None if it is not done."""
    record = folder.record(entry.key) if entry.key else None
    if record is None or record.row["status"] != "done":
        return None
    members = (folder.record(key) for key in entry.members)
    before = sum(float(one.row["seconds"]) for one in members if one is not None and one.row["status"] == "done")
    return max(0.0, float(record.row["seconds"]) - before)


def _labels_of_entry(entry: Entry) -> dict[str, Any]:
    """With the sort of work that it is: to train, to mix what others have trained, or neither."""
    return {**entry.labels, "sort": "mix" if entry.is_mix else "neither" if entry.seed is None else "trained"}


def _labels(study: StudyEntry) -> dict[str, Any]:
    return {"dataset": study.dataset, "predictor": study.predictor, "attention": study.attention}


def _kind(names: tuple[str, ...], labels: Mapping[str, Any]) -> tuple[Any, ...]:
    return (names, *(labels[name] for name in names))


def duration(seconds: float) -> str:
    """Seconds as words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
