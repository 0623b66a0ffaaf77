"""Running the trials of a study, beside any number of other processes that do the same."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from optuna import Study, TrialPruned
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from tsattn.errors import UserError, duration
from tsattn.experiments import Experiment
from tsattn.tuning.held_data import HeldData
from tsattn.tuning.search import Search
from tsattn.tuning.trial import run_trial
from tsattn.tuning.worker import REASON, STORAGE_ERRORS, claimed, give_back, retry_dead_trials

__all__ = ["FINISHED", "Budget", "best_trial", "counted", "error_word", "run_study"]

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
_POLL = 1.0  # seconds between looks at the trials of others


@dataclass(frozen=True)
class Budget:
    """How long a study is run.

    Attributes:
        trials: finished trials, pruned ones among them, of all processes together; None for any number.
        seconds: after which this process starts no other trial; infinite by default.
    """

    trials: int | None
    seconds: float = math.inf


def run_study(
    study: Study,
    storage: BaseStorage,
    base: Experiment,
    *,
    search: Search,
    held: HeldData,
    folds: int,
    budget: Budget,
    say: Callable[[str], None],
) -> None:
    """Run trials until the budget is spent; the study then has exactly that many finished trials.

    A trial whose process has died is failed and run again here, as its values. Where the last trials run in other
    processes this one waits for them, so that none is lost with its process.

    Args:
        study: from `open_study`.
        storage: the one that it is kept in.
        base: what the trials change.
        search: the space.
        held: gives the data.
        folds: number of rolling origins to validate on, 0 for the validation part.
        budget: when to end.
        say: takes a line of progress.

    Raises:
        KeyboardInterrupt: if it was interrupted; the running trial is then queued again.
    """
    most = math.inf if budget.trials is None else budget.trials
    deadline = time.monotonic() + budget.seconds
    waits = False
    while True:
        for number in retry_dead_trials(study, storage):
            say(f"trial {number}: its process died, it is tried again")
        trials = study.get_trials(deepcopy=False)
        finished = counted(trials)
        if finished >= most or time.monotonic() >= deadline:
            return
        running = sum(trial.state == TrialState.RUNNING for trial in trials)
        if finished + running >= most:
            if not waits:
                say(f"waiting for the last trials, which run in other processes: {running}")
            waits = True
            time.sleep(_POLL)
            continue
        waits = False
        trial = study.ask()
        with claimed(trial):
            if _is_surplus(study, trial, most):
                _leave(study, storage, trial, "another process ran the last one")
                continue
            _run(study, storage, trial, base, search=search, held=held, folds=folds)
        say(_progress(study, trial.number, most))


def counted(trials: list[FrozenTrial]) -> int:
    """How many trials count: those that are finished, pruned ones among them."""
    return sum(trial.state in FINISHED for trial in trials)


def best_trial(study: Study) -> FrozenTrial | None:
    """The trial with the lowest validation error that keeps to the constraints, if there is one yet."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    kept = [trial for trial in done if all(above <= 0 for above in trial.constraints.values())]
    return min(kept, key=lambda trial: (trial.values, trial.number), default=None)


def error_word(trial: FrozenTrial) -> str:
    """What the error of a trial is called: MSE, MAE or CRPS."""
    return str(trial.user_attrs.get("selected_by", "mse_scaled")).removesuffix("_scaled").upper()


def _is_surplus(study: Study, trial: Trial, most: float) -> bool:
    """Whether two processes have started the last trial at once, and this is the later."""
    others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
    earlier = sum(other.state == TrialState.RUNNING and other.number < trial.number for other in others)
    return counted(others) + earlier >= most


def _leave(study: Study, storage: BaseStorage, trial: Trial, reason: str) -> None:
    """Fail a trial that was not begun; values that were queued are queued again."""
    frozen = _frozen(study, trial)
    if frozen.params or "fixed_params" in frozen.system_attrs:
        give_back(study, storage, frozen, reason, counts=False)
    else:
        trial.set_user_attr(REASON, reason)
        study.tell(trial, state=TrialState.FAIL)


def _run(
    study: Study,
    storage: BaseStorage,
    trial: Trial,
    base: Experiment,
    *,
    search: Search,
    held: HeldData,
    folds: int,
) -> None:
    """Run a trial and tell the study how it ended."""
    try:
        values = run_trial(trial, base, search.suggest(trial), search=search, held=held, folds=folds)
        _tell(study, trial, TrialState.COMPLETE, values)
    except TrialPruned:
        _tell(study, trial, TrialState.PRUNED)
    except KeyboardInterrupt:
        give_back(study, storage, _frozen(study, trial), "interrupted", counts=False)
        raise
    except UpdateFinishedTrialError:
        pass  # taken for dead by another process, which runs it again
    except STORAGE_ERRORS as error:
        why = " ".join(str(error.__cause__ or error).split())[:200]
        raise UserError(
            f"the storage was lost in trial {trial.number}, which will be tried again: {why}; start `tune` once more"
        ) from error
    except Exception as error:
        trial.set_user_attr(REASON, f"{type(error).__name__}: {error}"[:500])
        _tell(study, trial, TrialState.FAIL)
        raise


def _tell(study: Study, trial: Trial, state: TrialState, values: list[float] | None = None) -> None:
    """Finish a trial, unless another process has taken this one for dead."""
    if _frozen(study, trial).state == TrialState.RUNNING:
        study.tell(trial, values, state=state)


def _frozen(study: Study, trial: Trial) -> FrozenTrial:
    return next(one for one in study.get_trials(deepcopy=False) if one.number == trial.number)


def _progress(study: Study, number: int, most: float) -> str:
    """A line: what the trial came to, the best so far, and how long the rest will take."""
    trials = study.get_trials(deepcopy=False)
    trial, best = trials[number], best_trial(study)
    if trial.state == TrialState.COMPLETE:
        said = f"validation {error_word(trial)} {trial.values[0]:.4f}"
    else:
        said = f"{trial.state.name.lower()}: {trial.user_attrs.get(REASON, 'taken over by another process')}"
    line = f"trial {number:>3}  {said}"
    if best is not None:
        line += f"; best {best.values[0]:.4f} (trial {best.number})"
    done = [one for one in trials if one.state in FINISHED]
    if most == math.inf:
        return f"{line}; {len(done)} done"
    # those that run, this process's next among them
    workers = 1 + sum(one.state == TrialState.RUNNING for one in trials)
    seconds = sum(one.duration.total_seconds() for one in done if one.duration)
    left = (most - len(done)) * seconds / max(1, len(done)) / workers
    return f"{line}; {len(done)} of {most:.0f} done, {duration(left)} left"
