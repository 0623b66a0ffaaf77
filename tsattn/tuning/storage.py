"""Where a study is kept: a journal in its folder, or a database that many machines share."""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna import Study
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from tsattn.errors import UserError
from tsattn.experiments.dotted import get_at, paths
from tsattn.experiments.experiment import as_before
from tsattn.passwords import scrubbed, without_password
from tsattn.tuning.samplers import SeededSampler
from tsattn.tuning.search import Search

__all__ = ["JOURNAL", "open_storage", "open_study"]

JOURNAL = "journal.log"
_IDENTITY = "identity"
_READY = "ready"
# parts of the identity that studies of earlier versions have not, and what it means that one differs
_CAME_LATER = {
    "fingerprint": "its data have changed since it was begun",
    "results": "another version of tsattn began it, whose results cannot be compared with those of this one",
}
_ATTEMPTS = 5  # to make the tables, which several processes may start to do at once
_LOCK_SECONDS = 15  # that a lock may be held, which takes as long as one line is written
_PATIENCE = 10.0  # seconds that another process has to fill a study it has made

optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_storage(url: str | None, folder: Path) -> BaseStorage:
    """The storage at an Optuna URL, by default a journal in the folder of the study.

    Args:
        url: e.g. ``postgresql://user@host/database``, ``sqlite:///study.db``, or None. A password in it is in no
            message; without one, PostgreSQL's driver looks for it in `PGPASSWORD` and in a passfile.
        folder: of the study; it must be there.

    Raises:
        UserError: if it cannot be reached, or needs a driver that is not installed.
    """
    if url is None:
        journal = folder / JOURNAL
        _mend(journal)
        try:
            return JournalStorage(JournalFileBackend(str(journal), _lock(journal)))
        except json.JSONDecodeError as error:
            raise UserError(
                f"{journal} is damaged: a line of it is no JSON; remove that line, put back a copy of the file, or "
                "name another folder"
            ) from error
    if url.startswith("postgresql://"):
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)  # the driver of the extra
    shown = without_password(url)
    if re.match(r"[^@]*://[^@]*@[^/?]*@", url):
        raise UserError(f"the storage {shown} has an @ in its password or user, which a URL must spell %40")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
        except ImportError as error:
            raise UserError(
                f"the storage {shown} needs a driver; for PostgreSQL: pip install 'tsattn[postgres]'"
            ) from error
        except (ArgumentError, NoSuchModuleError, ValueError, TypeError):
            # from nothing: what a library says of a URL may hold all of it
            name = shown if "://" in shown else "what --storage says"
            raise UserError(
                f"{name} is not the URL of a storage; valid are such as postgresql://USER@HOST/DATABASE and "
                f"sqlite:///FILE"
            ) from None
        except SQLAlchemyError as error:
            if attempt == _ATTEMPTS:
                why = str(getattr(error, "orig", None) or error)
                reason = " ".join(scrubbed(why, url).split())[:200]
                raise UserError(f"the storage {shown} cannot be reached: {reason}") from None
            time.sleep(0.2 * attempt)
    raise AssertionError("the last attempt returns or raises")


def open_study(
    storage: BaseStorage, name: str, search: Search, identity: Mapping[str, Any], first: list[dict[str, Any]], seed: int
) -> Study:
    """The study of this name, made if it is not there.

    Args:
        storage: where it is kept.
        name: of the study.
        search: says objectives, sampler and pruner.
        identity: plain data that must be that of the study: ``config`` of an experiment, search space, validation,
            ``fingerprint`` of the data, and version of the ``results``.
        first: what the first trials of a new study take.
        seed: of the sampler.

    Raises:
        UserError: if a study of this name has another identity; the message says where it differs.
    """
    pruner = optuna.pruners.MedianPruner() if search.pruner == "median" else optuna.pruners.NopPruner()
    shared: dict[str, Any] = {
        "study_name": name,
        "storage": storage,
        "sampler": SeededSampler(search.sampler, seed),
        "pruner": pruner,
    }
    try:
        study = optuna.create_study(directions=["minimize"] * len(search.objectives), **shared)
        is_new = True
    except DuplicatedStudyError:
        study = optuna.load_study(**shared)
        is_new = False
    until = time.monotonic() + (0 if is_new else _PATIENCE)
    while _READY not in study.user_attrs and time.monotonic() < until:
        time.sleep(0.2)
    if _READY not in study.user_attrs:  # new, or its maker died over it
        study.set_user_attr(_IDENTITY, identity)
        # compared as text: Optuna's own way to leave out what is there takes 20240101 for 20240102
        there = {_text(one.system_attrs.get("fixed_params", one.params)) for one in study.get_trials(deepcopy=False)}
        for params in first:
            if _text(params) not in there:
                study.enqueue_trial(params)
        study.set_user_attr(_READY, True)
    # a study that an earlier version began goes on, where what came since is as it was
    saved, identity = ({**one, "config": as_before(one["config"])} for one in (study.user_attrs[_IDENTITY], identity))
    identity = {part: value for part, value in identity.items() if part in saved or part not in _CAME_LATER}
    if saved != identity:
        raise UserError(f"the study {name} is another one: {_difference(saved, identity)}; name a new --study")
    return study


def _text(params: Mapping[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)


def _difference(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """The first path at which two differ, with both values."""
    for path in dict.fromkeys([*paths(saved), *paths(asked)]):
        values = []
        for content in (saved, asked):
            try:
                values.append(get_at(content, path))
            except KeyError:
                values.append("not there")
        one, other = values
        if one != other and not (isinstance(one, dict) and isinstance(other, dict)):
            return _CAME_LATER.get(path) or f"its {path.replace('.', ' ', 1)} is {one}, but {other} is asked for"
    return "its content differs"


def _lock(journal: Path) -> JournalFileOpenLock:
    """A lock that others take over once its process is dead; a link that dangles has no age, and is removed."""
    held = Path(f"{journal}.lock")
    if held.is_symlink() and not held.exists():  # of an earlier version, which made links
        held.unlink(missing_ok=True)
    return JournalFileOpenLock(str(journal), grace_period=_LOCK_SECONDS)


def _mend(journal: Path) -> None:
    """Cut off a last line that was not written to its end, as when the machine went down; it would spoil the next."""
    if not journal.exists():
        return
    lock = _lock(journal)
    lock.acquire()
    try:
        with journal.open("rb+") as file:
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
                os.fsync(file.fileno())
    finally:
        lock.release()


warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
