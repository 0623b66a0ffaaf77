"""A study: its storage, the values that its trials draw, its processes, and its results.

Optuna keeps a study in a database: SQLite in the study folder for the processes of one machine, PostgreSQL for several
machines. A running trial gives signs of life there; a trial without them is failed, and its values are tried again.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
import pandas as pd
from optuna import Study, TrialPruned
from optuna.exceptions import DuplicatedStudyError, StorageInternalError, UpdateFinishedTrialError
from optuna.importance import get_param_importances
from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.storages._heartbeat import get_heartbeat_thread  # which `Study.optimize` alone starts otherwise
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import QueuePool, event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from typing_extensions import override

from tsattn.backbones.task_network import difference
from tsattn.errors import UserError, duration, one_line, scrubbed, without_password
from tsattn.tuning.search import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "study.db"
REASON = "reason"
DIED, SURPLUS = "its process died", "another process ran the last one"
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
BEAT, GRACE = 10, 45  # seconds between signs of life; seconds without one, after which a process counts as dead
RETRIES = 2  # retries of a trial whose process died
_LOCK = 60.0  # seconds to wait for the file that another process writes
_ATTEMPTS = 5  # to make the tables, which several processes may start to do at once
_PATIENCE = 10.0  # seconds that another process has to describe a study that it has made
_POLL = 1.0  # seconds between checks of the trials of others
_IDENTITY = "identity"
_FINAL = "final"  # marks a failed trial that is not to be tried again
_FACTS = ("error", "parameters", "flops", "seconds", "memory", "step", "seed")  # of a trial
_AXES = {"flops": "flops of a forward pass of one window", "parameters": "parameters that are fitted"}
_AXES |= {"seconds": "seconds of fit and validation", "memory": "peak memory, bytes"}
_MEANING = {"fingerprint": "its data have changed since it was begun"}
_MEANING |= {"results": "another version of tsattn began it, whose results cannot be compared with those of this one"}

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
warnings.filterwarnings("ignore", "Heartbeat of storage is supposed to be used with Study.optimize")


class StudyStorage(RDBStorage):
    """Optuna's database; signs of life continue after the connection was lost for a while."""

    @override
    def record_heartbeat(self, trial_id: int) -> None:
        with contextlib.suppress(StorageInternalError, SQLAlchemyError):
            super().record_heartbeat(trial_id)


def open_storage(url: str | None, folder: Path) -> StudyStorage:
    """Open the storage at an Optuna URL, by default SQLite in the study's folder; a `UserError` hides passwords."""
    engine: dict[str, Any] = {"pool_pre_ping": True}
    shown = without_password(url or str(folder / FILE))
    if url is None:  # a path may hold characters that have a meaning in a URL
        creator = partial(sqlite3.connect, folder / FILE, timeout=_LOCK, check_same_thread=False)
        url, engine = "sqlite://", {"poolclass": QueuePool, "creator": creator}
    elif url.startswith("sqlite:"):
        engine["connect_args"] = {"timeout": _LOCK}
    url = re.sub("^postgresql://", "postgresql+psycopg://", url)  # the driver of the extra
    if re.match(r"[^@]*://[^@]*@[^/?]*@", url):
        raise UserError(f"the storage {shown} has an @ in its password or user: write it as %40")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            storage = StudyStorage(url, engine, heartbeat_interval=BEAT, grace_period=GRACE)
            break
        except ImportError as error:
            raise UserError(f"the storage {shown} needs a driver: pip install 'tsattn[postgres]'") from error
        except (ArgumentError, NoSuchModuleError, ValueError, TypeError):
            # `from None`: a library's message may hold the whole URL
            name = shown if "://" in shown else "the value of --storage"
            valid = "postgresql://USER@HOST/DATABASE or sqlite:///FILE"
            raise UserError(f"{name} is not the URL of a database; valid are, for example, {valid}") from None
        except (StorageInternalError, SQLAlchemyError) as error:
            if attempt == _ATTEMPTS:
                raise UserError(f"the storage {shown} cannot be reached: {scrubbed(_said(error), url)}") from None
            time.sleep(0.2 * attempt)
    if storage.engine.dialect.name == "sqlite":
        # else two processes may read that a trial waits before either has written that it begins
        storage.engine.dispose()
        event.listen(storage.engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return storage


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Say in a sentence that the storage was lost, or cannot be written any more."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        advice = "repair this, then repeat the command: finished trials are kept"
        raise UserError(f"the study cannot be read or written: {_said(error)}; {advice}") from error


def _said(error: BaseException) -> str:
    error = error.__cause__ or error
    return one_line(getattr(error, "orig", None) or error, 200)


class SeededSampler(PartialFixedSampler):
    """TPE or random draws, seeded by the number of trials before; the first trials take given values.

    A retried trial counts as the trial that it repeats, so that a resumed study draws what it would have drawn.
    """

    def __init__(self, name: str, seed: int, first: Sequence[Mapping[str, Any]]) -> None:
        super().__init__({}, RandomSampler())
        self.name, self.seed, self.first = name, seed, first

    @override
    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        trials = study.get_trials(deepcopy=False)
        place = next(iter(retries(trials[trial.number])), trial.number)
        place -= sum(bool(retries(other)) for other in trials[:place])
        seed = (self.seed * 1_000_003 + place) % 2**32
        inner = TPESampler(seed=seed) if self.name == "tpe" else RandomSampler(seed=seed)
        super().__init__(dict(self.first[place]) if place < len(self.first) else {}, inner)
        super().before_trial(study, trial)


def open_study(
    storage: StudyStorage, name: str, search: Search, identity: Mapping[str, Any], first: Sequence[Any], seed: int
) -> Study:
    """Open or make the study of this name, whose first trials take `first`; a `UserError` for another identity."""
    pruner = optuna.pruners.MedianPruner() if search.pruner == "median" else optuna.pruners.NopPruner()
    shared: Any = {"storage": storage, "sampler": SeededSampler(search.sampler, seed, first), "pruner": pruner}
    try:
        study = optuna.create_study(study_name=name, directions=["minimize"] * len(search.objectives), **shared)
    except DuplicatedStudyError:
        study = optuna.load_study(study_name=name, **shared)
        until = time.monotonic() + _PATIENCE
        while _IDENTITY not in study.user_attrs and time.monotonic() < until:
            time.sleep(0.2)
    if _IDENTITY not in study.user_attrs:  # new, or its maker died
        study.set_user_attr(_IDENTITY, identity)
    for part, value in identity.items():
        if (there := study.user_attrs[_IDENTITY].get(part)) != value:
            said = difference(there, value, part) if isinstance(there, dict) else f"its {part} is {there}, not {value}"
            raise UserError(f"the study {name} cannot be resumed: {_MEANING.get(part, said)}; name a new --study")
    return study


def run_study(
    study: Study,
    storage: StudyStorage,
    objective: Callable[[Trial], list[float]],
    *,
    trials: int | None,
    seconds: float = math.inf,
    say: Callable[[str], None],
) -> None:
    """Run trials until this many of all processes are finished or pruned, or no time is left to start another.

    Any number of processes may do so at once. A trial whose process has died, or was interrupted, is failed, and its
    values are run again. This process waits for the last trials of others, so that none is lost with its process.
    """
    most, deadline = math.inf if trials is None else trials, time.monotonic() + seconds
    seen, waits = set[int](), False
    while True:
        fail_stale_trials(study)
        there = study.get_trials(deepcopy=False)
        running = [trial for trial in there if trial.state == TrialState.RUNNING]
        for trial in running:
            if trial.number not in seen:  # without a first sign of life Optuna never takes its process for dead
                seen.add(trial.number)
                storage.record_heartbeat(trial._trial_id)
        if counted(there) >= most or time.monotonic() >= deadline:
            return
        if counted(there) + len(running) >= most:
            if not waits:
                say(f"waiting for {len(running)} last trials in other processes")
            waits = True
            time.sleep(_POLL)
            continue
        for number in _queue_again(study):
            say(f"trial {number}: its process died; trying it again")
        if (ended := _run(study, storage, objective, most)) is not None:
            say(_progress(study, ended, most))


def _queue_again(study: Study) -> list[int]:
    """Queue the values of unfinished trials; return the numbers of trials whose process died."""
    trials = study.get_trials(deepcopy=False)
    repeated = {number for trial in trials for number in retries(trial)}
    dead = []
    for trial in trials:
        deaths = [number for number in (*retries(trial), trial.number) if reason(trials[number]) == DIED]
        unfinished = trial.state == TrialState.FAIL and not trial.user_attrs.get(_FINAL)
        if unfinished and trial.number not in repeated and len(deaths) <= RETRIES:
            again = copy.deepcopy(trial)
            again.user_attrs = {}
            RetryHeartbeatStaleTrialCallback()(study, again)
            dead += [trial.number] if reason(trial) == DIED else []
    return dead


def _run(study: Study, storage: StudyStorage, objective: Callable[[Trial], list[float]], most: float) -> int | None:
    """Run a trial, and report its end to the study; return its number, or None if another process began it before."""
    trial = study.ask()
    trials = study.get_trials(deepcopy=False)
    earlier, repeats = trials[: trial.number], retries(trials[trial.number])
    is_surplus = counted(trials) + sum(other.state == TrialState.RUNNING for other in earlier) >= most
    needless = SURPLUS if is_surplus else None
    if repeats and any(retries(other)[-1:] == repeats[-1:] for other in earlier):
        needless = "another process repeats the same one"

    def failed(why: str, is_final: bool) -> None:
        trial.set_user_attr(_FINAL, is_final)
        trial.set_user_attr(REASON, why)
        study.tell(trial, state=TrialState.FAIL)

    # another process may have taken this one for dead, and run it again
    with get_heartbeat_thread(trial._trial_id, storage), contextlib.suppress(UpdateFinishedTrialError):
        try:
            if needless is None:
                study.tell(trial, objective(trial), TrialState.COMPLETE, skip_if_finished=True)
            else:
                failed(needless, needless != SURPLUS)
        except TrialPruned:
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        except (StorageInternalError, SQLAlchemyError, UpdateFinishedTrialError):
            raise
        except BaseException as error:
            is_mistake = not isinstance(error, KeyboardInterrupt)
            with contextlib.suppress(UpdateFinishedTrialError):
                failed(f"{type(error).__name__}: {error}"[:500] if is_mistake else "interrupted", is_mistake)
            raise
    return trial.number if needless is None else None


def counted(trials: Sequence[FrozenTrial]) -> int:
    """How many trials count: finished trials, including pruned ones."""
    return sum(trial.state in FINISHED for trial in trials)


def retries(trial: FrozenTrial) -> list[int]:
    """The numbers of the trials that this trial repeats, the original first."""
    return RetryHeartbeatStaleTrialCallback.retry_history(trial)


def reason(trial: FrozenTrial) -> str | None:
    """Why a trial was pruned or failed; without a reason from its process, that its process died."""
    said: str | None = trial.user_attrs.get(REASON)
    return DIED if said is None and trial.state == TrialState.FAIL else said


def best_trial(study: Study) -> FrozenTrial | None:
    """The trial with the lowest validation error that keeps to the constraints, if there is one yet."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    kept = [trial for trial in done if all(above <= 0 for above in trial.constraints.values())]
    return min(kept, key=lambda trial: (trial.values, trial.number), default=None)


def error_word(trial: FrozenTrial) -> str:
    """The name of the error of a trial: MSE, MAE or CRPS."""
    return str(trial.user_attrs.get("selected_by", "mse_scaled")).removesuffix("_scaled").upper()


def _progress(study: Study, number: int, most: float) -> str:
    trials, best = study.get_trials(deepcopy=False), best_trial(study)
    trial, said = trials[number], f"{trials[number].state.name.lower()}: {reason(trials[number])}"
    if trial.state == TrialState.COMPLETE:
        said = f"validation {error_word(trial)} {trial.values[0]:.4f}"
    so_far, done = f"; best {best.values[0]:.4f} (trial {best.number})" if best else "", counted(trials)
    line = f"trial {number:>3}  {said}{so_far}; {done}"
    if most == math.inf:
        return f"{line} done"
    workers = 1 + sum(one.state == TrialState.RUNNING for one in trials)  # this process's next among them
    seconds = sum(one.duration.total_seconds() for one in trials if one.duration and one.state in FINISHED)
    return f"{line} of {most:.0f} done, {duration((most - done) * seconds / max(1, done) / workers)} left"


def trial_table(study: Study, search: Search) -> pd.DataFrame:
    """One row per trial: its state, why it was pruned or failed, its values, and its results."""
    on_front = {trial.number for trial in front(study)}
    return pd.DataFrame(
        {
            **{"trial": trial.number, "state": trial.state.name.lower()},
            **{path: trial.params.get(path) for path in search.parameters},
            **{name: trial.user_attrs.get(name) for name in _FACTS},
            "retry_of": next(iter(retries(trial)[-1:]), None),
            "feasible": all(above <= 0 for above in trial.constraints.values()),
            **{"front": trial.number in on_front, REASON: reason(trial)},
        }
        for trial in study.get_trials(deepcopy=False)
    )


def front(study: Study) -> list[FrozenTrial]:
    """The trials that no other beats in every objective, by rising error; for one objective, the best trial."""
    best = [best_trial(study)] if len(study.directions) == 1 else study.best_trials
    return sorted(filter(None, best), key=lambda trial: (trial.values, trial.number))


def importances(study: Study) -> dict[str, float]:
    """The share of each parameter in how the errors differ, by PED-ANOVA (Watanabe et al. 2023); {} if none differ."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.values[0] for trial in done}) < 2:
        return {}
    with warnings.catch_warnings(action="ignore"):  # that low is good, and that trials are few
        shares = get_param_importances(study, target=lambda trial: trial.values[0])
    return {path: round(float(share), 4) for path, share in shares.items()}


def figures(study: Study, search: Search) -> dict[str, Figure]:
    """Draw Optuna's plots, by name: history, importance of parameters, and front of at most three objectives."""
    import matplotlib
    from matplotlib import pyplot as plt
    from optuna.visualization.matplotlib import plot_optimization_history, plot_param_importances, plot_pareto_front

    best, several = best_trial(study), len(search.objectives) > 1
    name = "validation error" if best is None else f"validation {error_word(best)}"
    names = [name, *(_AXES[objective] for objective in search.objectives[1:3])]
    error: dict[str, Any] = {"target": lambda trial: trial.values[0], "target_name": name}
    with warnings.catch_warnings(action="ignore"), matplotlib.rc_context({"backend": "agg"}):
        axes = {"history": plot_optimization_history(study, **(error if several else {"target_name": name}))}
        if importances(study):
            axes["importance"] = plot_param_importances(study, **error)
        if several:
            axes["front"] = plot_pareto_front(study, targets=lambda trial: trial.values[:3], target_names=names)
        figures = {what: figure for what, one in axes.items() if (figure := one.get_figure(root=True))}
        for figure in figures.values():
            figure.set_layout_engine("constrained")
            plt.close(figure)
    return figures
