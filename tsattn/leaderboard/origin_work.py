"""One arm on rolling origins, in the process that scores it: fitted before each block of rows, validated on it."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tsattn.errors import UserError
from tsattn.experiments import Experiment, Hooks, RunFolder, run
from tsattn.experiments.measuring import measured
from tsattn.leaderboard.entry_run import finished_members
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.saved_folders import write_text
from tsattn.training import Execution, TrainerOptions
from tsattn.tuning import HeldData
from tsattn.tuning.rolling import Fold

__all__ = ["OriginScores", "OriginWork", "run_origins"]

_METRIC = "mse_scaled"  # for all arms, whatever error their own training is validated by
_PREFIX = "origins-"


class OriginScores:
    """Errors on rolling origins, fold by fold, as they lie in a working folder.

    Args:
        folder: the working folder.
        folds: how many blocks.
    """

    def __init__(self, folder: WorkingFolder, folds: int) -> None:
        self.folder = folder
        self.folds = folds

    def known(self, entry: Entry) -> list[float]:
        """The errors of the folds that are there."""
        assert entry.experiment is not None
        selection = entry.experiment.selection
        found = (self.kept(entry.key, number, selection) for number in range(self.folds))
        return [error for error in found if error is not None]

    def failure(self, entry: Entry) -> str:
        """Why an arm could not be scored."""
        file = self._failed(entry.key)  # which another process removes when it tries again
        return str(json.loads(file.read_text())["reason"]) if file.exists() else "see its log"

    def kept(self, key: str, number: int, selection: str) -> float | None:
        """The error of a fold, if it is there, and of `_METRIC`; older files hold another, that of its training."""
        file = self.place(key, number) / "error.json"
        if not file.exists():
            return None
        content = json.loads(file.read_text())
        return float(content["error"]) if content.get("metric", selection) == _METRIC else None

    def keep(self, key: str, number: int, error: float) -> None:
        """Write down the error of a fold."""
        write_text(self.place(key, number) / "error.json", json.dumps({"error": error, "metric": _METRIC}) + "\n")

    def keep_failure(self, key: str, reason: str | None) -> None:
        """Write down why an arm could not be scored; None forgets it."""
        file = self._failed(key)
        if reason is None:
            file.unlink(missing_ok=True)
        else:
            write_text(file, json.dumps({"reason": reason}) + "\n")

    def place(self, key: str, number: int) -> Path:
        """The folder of a fold."""
        return self._of(key) / f"{number + 1}_of_{self.folds}"

    def _failed(self, key: str) -> Path:
        return self._of(key) / f"failed_of_{self.folds}.json"

    def _of(self, key: str) -> Path:
        return self.folder.path / "origins" / key[:24]


@dataclass(frozen=True)
class OriginWork:
    """What a process needs to know to score an arm.

    Attributes:
        key: that tells it apart from other work.
        entry: the key of the experiment.
        experiment: as plain data.
        members: keys of the experiments that fit members of it.
        folds: how many blocks.
        threads: of torch.
    """

    key: str
    entry: str
    experiment: Mapping[str, Any]
    members: tuple[str, ...]
    folds: int
    threads: int

    @classmethod
    def of(cls, entry: Entry, folds: int, threads: int) -> OriginWork:
        """That of a planned entry."""
        assert entry.experiment is not None
        content = entry.experiment.to_dict()
        return cls(f"{_PREFIX}{entry.key}", entry.key, content, tuple(entry.members), folds, threads)

    @staticmethod
    def of_key(key: str) -> str:
        """The key of the experiment of the work that has a key."""
        return key.removeprefix(_PREFIX)


def run_origins(work: OriginWork, folder: WorkingFolder) -> None:
    """Fit and validate an arm before each block where that is not done yet, or write down why it cannot be.

    A fold that is interrupted begins anew the next time.
    """
    torch.set_num_threads(work.threads)
    scores = OriginScores(folder, work.folds)
    scores.keep_failure(work.entry, None)
    try:
        experiment, held = Experiment.of(work.experiment), HeldData()
        for number in range(work.folds):
            if scores.kept(work.entry, number, experiment.selection) is None:
                scores.keep(work.entry, number, _error(work, experiment, scores, held, number))
    except Exception as error:
        traceback.print_exc()
        scores.keep_failure(
            work.entry, str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        )


def _error(work: OriginWork, experiment: Experiment, scores: OriginScores, held: HeldData, number: int) -> float:
    place = RunFolder(scores.place(work.entry, number) / "run")
    if place.path.exists():  # it was killed
        shutil.rmtree(place.path)
    members = [scores.place(key, number) / "run" for key in work.members]
    data = held.of(experiment, Fold(number, work.folds))
    hooks = Hooks(fitted=finished_members(str(path) for path in members if (path / "metrics.json").exists()))
    fitted = run(experiment, place.path, data=data, test=False, hooks=hooks).fitted
    # a training may have looked at some of these windows only; arms are compared on all
    execution = Execution(TrainerOptions.of(experiment.made()[1]))
    return float(measured(fitted.predictor, data, "val", execution).scores()[_METRIC])
