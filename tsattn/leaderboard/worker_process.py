"""Processes that run one entry, study or arm on rolling origins each, and end with the one that started them."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tsattn.leaderboard.entry_run import Work, run_entry
from tsattn.leaderboard.origin_work import OriginWork, run_origins
from tsattn.leaderboard.study_work import StudyWork, run_study_entry
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.training.quiet_lightning import quiet_lightning

__all__ = ["BUSY", "LocalWorkers", "why_ended"]

BUSY = 75  # the exit code of one whose entry another process has
_PATIENCE = 60.0  # seconds that processes have to keep what they have done

# its server imports everything once, and each process starts as a fork of it
_FORKS = multiprocessing.get_context("forkserver")


class LocalWorkers:
    """Some processes of this machine.

    Args:
        folder: that they work in.
        jobs: how many at once.
    """

    def __init__(self, folder: WorkingFolder, jobs: int) -> None:
        _FORKS.set_forkserver_preload([__name__])
        self.jobs = jobs
        self._folder = folder
        self._running: dict[str, Any] = {}

    @property
    def free(self) -> int:
        """How many more can be started now."""
        return self.jobs - len(self._running)

    def start(self, task: Work | StudyWork | OriginWork) -> None:
        """Begin with an entry, a study, or an arm on rolling origins."""
        process = _FORKS.Process(target=_run, args=(task, str(self._folder.path)), name=task.key)
        process.start()
        self._running[task.key] = process

    def ended(self, seconds: float) -> dict[str, int]:
        """By key, the exit codes of those that have ended, after waiting so long for the first."""
        connection.wait([process.sentinel for process in self._running.values()], seconds)
        codes: dict[str, int] = {}
        for key, process in list(self._running.items()):
            if process.exitcode is not None:
                process.join()
                codes[key] = process.exitcode
                del self._running[key]
        return codes

    def stop(self) -> None:
        """End all, which keep what they have done."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for process in self._running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
        self._running.clear()


def why_ended(code: int | str) -> str:
    """Why a worker ended without a result.

    Args:
        code: the exit code of its process, or what is said of it already.
    """
    if isinstance(code, str):
        return code
    if code < 0:
        name = signal.Signals(-code).name
        return f"its process was ended by {name}{', as it is where memory runs out' if name == 'SIGKILL' else ''}"
    return f"its process ended with code {code}"


def _run(task: Work | StudyWork | OriginWork, path: str) -> None:
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that started it, which then sends SIGTERM
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _end_with_parent()
    folder = WorkingFolder(path)
    _say_into(folder.path / "logs" / f"{task.key[:40]}.txt")
    with folder.held(task.key) as free:
        if not free:
            sys.exit(BUSY)
        try:
            with quiet_lightning():
                if isinstance(task, StudyWork):
                    run_study_entry(task, folder)
                elif isinstance(task, OriginWork):
                    run_origins(task, folder)
                elif folder.record(task.key) is None:
                    run_entry(task, folder)
        except KeyboardInterrupt:
            sys.exit(130)
        except BaseException:
            traceback.print_exc()
            raise


def _end_with_parent() -> None:
    """End at once when the process that started this one is gone: nobody would look after what it does."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _say_into(path: Path) -> None:
    """Let all that is said go into a file."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    with contextlib.suppress(ValueError):
        logging.basicConfig(level=logging.INFO, format="%(message)s")
