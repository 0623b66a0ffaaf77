"""One study of a suite, in the process that runs it: its trials in a SQLite file, its best values written down."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.leaderboard.plan import StudyEntry
from tsattn.leaderboard.study_space import search_for
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.tuning import (
    Budget,
    HeldData,
    best_trial,
    check_one_trial,
    check_search,
    open_storage,
    open_study,
    run_study,
)
from tsattn.tuning.worker import REASON

__all__ = ["StudyWork", "run_study_entry"]

logger = logging.getLogger("tsattn")


@dataclass(frozen=True)
class StudyWork:
    """What a process needs to know of a study.

    Attributes:
        key: its name.
        title: as words.
        experiment: what is searched around, as plain data.
        search: the name of the search space.
        trials: how many.
        folds: rolling origins; 0 for the validation part.
        threads: of torch.
    """

    key: str
    title: str
    experiment: Mapping[str, Any]
    search: str
    trials: int
    folds: int
    threads: int

    @classmethod
    def of(cls, study: StudyEntry, search: str, threads: int) -> StudyWork:
        """That of a planned study."""
        content = study.experiment.to_dict()
        return cls(study.name, study.title, content, search, study.trials, study.folds, threads)


def run_study_entry(work: StudyWork, folder: WorkingFolder) -> None:
    """Run the trials that are left, and write down what was chosen, or why nothing was.

    Raises:
        KeyboardInterrupt: if it was interrupted; the trial under way is then queued again.
    """
    if (folder.selected(work.key) or {}).get("status") == "done":
        return
    torch.set_num_threads(work.threads)
    place = folder.study(work.key)
    place.mkdir(parents=True, exist_ok=True)
    folder.note("begin study", work.key, name=work.title)
    try:
        content = _studied(work, folder)
    except UserError as error:
        content = {"status": "failed", "reason": str(error)}
    folder.keep_selected(work.key, {"title": work.title, **content})
    folder.note(f"{content['status']} study", work.key)


def _studied(work: StudyWork, folder: WorkingFolder) -> dict[str, Any]:
    base = Experiment.of(work.experiment)
    search = search_for(work.search, base)
    assert search is not None, "a study is planned where there is something to search for"
    check_one_trial(base)
    held = HeldData()
    check_search(search, base.to_dict(), held.check)
    storage = open_storage(f"sqlite:///{folder.study(work.key) / 'study.db'}", folder.study(work.key))
    as_it_is = search.configured(base.to_dict())
    first = search.grid() if search.sampler == "grid" else [as_it_is] if as_it_is else []
    trials = min(work.trials, len(first)) if search.sampler == "grid" else work.trials
    identity = json.loads(json.dumps({"config": base.to_dict(), "search": dict(search.content), "cv": work.folds}))
    study = open_study(storage, work.key, search, identity=identity, first=first, seed=base.seed or 0)
    run_study(study, storage, base, search=search, held=held, folds=work.folds, budget=Budget(trials), say=logger.info)
    best = best_trial(study)
    if best is None:
        last = next((one for one in reversed(study.trials) if REASON in one.user_attrs), None)
        why = f"; the last: {last.user_attrs[REASON]}" if last else ""
        raise UserError(f"no trial of the study {work.title} was completed{why}")
    taken = {path: search.parameters[path].value(what) for path, what in best.params.items()}
    return {
        "status": "done",
        "values": taken,
        "trial": best.number,
        "error": best.values[0],
        "selected_by": best.user_attrs.get("selected_by"),
        "validation": f"mean of {work.folds} rolling origins" if work.folds else "the validation part",
        "trials": [
            {
                "trial": one.number,
                "state": one.state.name.lower(),
                "params": one.params,
                "error": one.values[0] if one.values else None,
                "errors": one.user_attrs.get("errors"),
                "reason": one.user_attrs.get(REASON),
                "seconds": round(one.duration.total_seconds(), 2) if one.duration else None,
            }
            for one in study.trials
        ],
    }
