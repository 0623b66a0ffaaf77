"""Which process runs a trial, and whether it is still alive: alike for every storage.

Optuna's own heartbeat lives in relational databases only, not in a journal. Here each running trial carries the process
that runs it and the time of its last sign of life as attributes.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import threading
import time
from collections.abc import Iterator
from typing import Any

from optuna import Study, create_trial
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

__all__ = [
    "BEAT",
    "GRACE",
    "REASON",
    "RETRIES",
    "RETRY_OF",
    "STORAGE_ERRORS",
    "claimed",
    "give_back",
    "retry_dead_trials",
]

STORAGE_ERRORS = (StorageInternalError, SQLAlchemyError)
BEAT = 20.0  # seconds between signs of life
GRACE = 180.0  # seconds without one, after which a process elsewhere is taken for dead
_UNCLAIMED = 30.0  # seconds without a process, which marks a trial as soon as it is begun
RETRIES = 2  # a trial that has ended so many processes more is not tried again

REASON = "reason"
RETRY_OF = "retry_of"  # the number of the trial whose place one takes
_WORKER = "worker"
_ALIVE = "alive"
_RETRIED = "retries"


@contextlib.contextmanager
def claimed(trial: Trial) -> Iterator[None]:
    """Mark a trial as run by this process, and give signs of life until the end."""
    trial.set_user_attr(_ALIVE, time.time())
    trial.set_user_attr(_WORKER, {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())})
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            try:
                trial.set_user_attr(_ALIVE, time.time())
            except UpdateFinishedTrialError:  # taken for dead
                return
            except STORAGE_ERRORS:  # it may come back; if not, the trial itself will say so
                continue

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def retry_dead_trials(study: Study, storage: BaseStorage) -> list[int]:
    """Fail the running trials whose process is dead and queue them again; the numbers of those failed here.

    A process on this machine is looked up; one elsewhere is dead when it has given no sign of life for `GRACE` seconds.
    """
    dead = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not _is_alive(trial) and give_back(study, storage, trial, "its process died"):
            dead.append(trial.number)
    return dead


def give_back(study: Study, storage: BaseStorage, trial: FrozenTrial, reason: str, counts: bool = True) -> bool:
    """Fail a running trial and queue its values again; False if another process was faster.

    Args:
        study: the study.
        storage: its storage.
        trial: the trial.
        reason: why, for the table of trials.
        counts: whether this is one of the `RETRIES`.
    """
    number = storage.get_trial_id_from_study_id_trial_number(
        storage.get_study_id_from_name(study.study_name), trial.number
    )
    try:
        storage.set_trial_user_attr(number, REASON, reason)
        if not storage.set_trial_state_values(number, TrialState.FAIL):
            return False
    except UpdateFinishedTrialError:
        return False
    retries = trial.user_attrs.get(_RETRIED, 0) + counts
    if retries <= RETRIES:
        study.add_trial(
            create_trial(
                state=TrialState.WAITING,
                params=trial.params,
                distributions=trial.distributions,
                system_attrs={name: value for name, value in trial.system_attrs.items() if name == "fixed_params"},
                user_attrs={_RETRIED: retries, RETRY_OF: trial.number},
            )
        )
    return True


def _is_alive(trial: FrozenTrial) -> bool:
    worker: dict[str, Any] | None = trial.user_attrs.get(_WORKER)
    if worker is None:  # not claimed yet, or its process died before that
        assert trial.datetime_start is not None
        return datetime.datetime.now() - trial.datetime_start < datetime.timedelta(seconds=_UNCLAIMED)
    if worker["host"] == _host():
        return _started(worker["pid"]) == str(worker["started"])
    return time.time() - float(trial.user_attrs[_ALIVE]) < GRACE


def _host() -> str:
    """This machine; where a process number means something else inside a container, this container."""
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _started(pid: int) -> str | None:
    """When a process was started, which tells it from a later one with its number; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return None
    else:
        return None if fields[0] == "Z" else fields[19]  # a zombie runs nothing
    try:  # without /proc the number must do
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "running"
    return "running"
