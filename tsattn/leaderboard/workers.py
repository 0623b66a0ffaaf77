"""Workers that run the entries of a suite: processes of this machine, or tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing import connection
from pathlib import Path
from types import ModuleType
from typing import Any

from tsattn.errors import UserError, first_line, import_ray, one_line
from tsattn.leaderboard.entry_run import Work, WorkingFolder, run_entry
from tsattn.training.execution import quiet_lightning

BUSY = "busy"
"""The outcome of a run that another process is making."""

_BUSY_CODE, _INTERRUPTED = 75, 130
_PATIENCE = 60.0  # seconds that processes have to save their work
_RETRIES = 5  # of a task whose machine is lost
_FORKS = multiprocessing.get_context("forkserver")  # it imports everything once


class LocalWorkers:
    """Processes of this machine, one for each run."""

    def __init__(self, folder: WorkingFolder, jobs: int) -> None:
        _FORKS.set_forkserver_preload([__name__])
        self._jobs = jobs
        self._folder = folder
        self._running: dict[str, Any] = {}

    @property
    def free(self) -> int:
        """How many more runs can be started now."""
        return self._jobs - len(self._running)

    def start(self, work: Work) -> None:
        """Start a run in a new process."""
        process = _FORKS.Process(target=_run_here, args=(work, str(self._folder.path)), name=work.key)
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # or a script that calls `compare` would run again
        try:
            process.start()
        finally:
            sys.modules["__main__"] = main
        self._running[work.key] = process

    def ended(self, seconds: float) -> Mapping[str, str]:
        """Wait up to `seconds` for an end; return outcomes by key: empty, `BUSY`, or why a run left no record."""
        connection.wait([process.sentinel for process in self._running.values()], seconds)
        ended = {key: process for key, process in self._running.items() if process.exitcode is not None}
        for key, process in ended.items():
            process.join()
            del self._running[key]
        return {key: _outcome(process.exitcode) for key, process in ended.items()}

    def stop(self) -> None:
        """End all runs; each saves its work."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for process in self._running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
        self._running.clear()


def _outcome(code: int) -> str:
    if code in (0, _INTERRUPTED):
        return ""
    if code == _BUSY_CODE:
        return BUSY
    if code < 0:
        name = signal.Signals(-code).name
        return f"its process was ended by {name}{', as when memory runs out' if name == 'SIGKILL' else ''}"
    return f"its process ended with code {code}"


def _run_here(work: Work, path: str) -> None:
    """Make a run in this process, with its output in a log file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then sends SIGTERM
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    folder = WorkingFolder(path)
    log = folder.log(work.key)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:  # all output goes there
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    with contextlib.suppress(ValueError):
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    with folder.held(work.key) as is_free:
        if not is_free:
            sys.exit(_BUSY_CODE)
        if folder.is_finished(work):  # another process has finished it in the meantime
            return
        print(f"begin {work.name} in process {os.getpid()}", flush=True)
        try:
            with quiet_lightning():
                run_entry(work, folder)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)


def _end_with(sentinel: int) -> None:
    """End at once when the parent process is gone: nothing else would stop this process."""
    connection.wait([sentinel])
    os._exit(1)


def _connect(address: str, processors: int) -> Any:
    """Connect to a Ray cluster; the address ``local`` starts one, which ends with this process."""
    ray = import_ray("--ray")
    if address not in ("local", "auto"):  # Ray would try an address without an answer for minutes
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, ValueError, OverflowError) as error:
            what = f"no Ray cluster answers at {address}; valid is its HOST:PORT, or local to start one"
            raise UserError(what) from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # errors are raised instead
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"num_cpus": processors, "include_dashboard": False}
    ends = signal.getsignal(signal.SIGTERM)  # Ray replaces the handler, and would end without a message
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = one_line(error, 200)
        raise UserError(f"the Ray cluster at {address} cannot be used: {said}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ends or signal.SIG_DFL)
    return ray


class RayWorkers:
    """Tasks of a Ray cluster, without a shared disk; a task whose machine is lost runs again on another machine."""

    def __init__(self, folder: WorkingFolder, address: str, jobs: int, threads: int) -> None:
        self._ray = _connect(address, jobs * threads)
        self._folder = folder
        self._threads = threads
        self._task = self._ray.remote(num_cpus=threads, max_retries=_RETRIES)(_run_there)
        self._running: dict[Any, tuple[str, contextlib.ExitStack]] = {}
        self._at_once: dict[str, str] = {}

    @property
    def free(self) -> int:
        """How many more runs the present machines of the cluster can take."""
        processors = int(self._ray.cluster_resources().get("CPU", 0))
        return max(0, processors // self._threads - len(self._running))

    def start(self, work: Work) -> None:
        """Start a run on a machine of the cluster."""
        held = contextlib.ExitStack()
        is_free = held.enter_context(self._folder.held(work.key))
        if not is_free or self._folder.is_finished(work):
            held.close()
            self._at_once[work.key] = "" if is_free else BUSY
            return
        files = _files(self._folder.path, [self._folder.run(key) for key in (work.key, *work.members)])
        self._running[self._task.remote(work, files)] = work.key, held

    def ended(self, seconds: float) -> Mapping[str, str]:
        """By key, the outcome of runs that have ended; see `LocalWorkers.ended`."""
        outcomes, self._at_once = self._at_once, {}
        if not self._running:
            time.sleep(0.0 if outcomes else seconds)
            return outcomes
        ready, _ = self._ray.wait([*self._running], num_returns=1, timeout=0 if outcomes else seconds)
        for reference in ready:
            key, held = self._running.pop(reference)
            with held:
                outcomes[key] = self._bring(reference)
        return outcomes

    def _bring(self, reference: Any) -> str:
        """Copy the files of a run from its machine, its record last; return its outcome."""
        try:
            files = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            return f"on its machine: {type(cause).__name__}: {first_line(cause)}"
        except self._ray.exceptions.RayError:
            return "its machine went away, or ran out of memory, each time that it was started"
        _write(files, self._folder.path)
        return ""

    def stop(self) -> None:
        """End all runs, and leave the cluster."""
        for reference, (_, held) in self._running.items():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
            held.close()
        self._running.clear()
        self._ray.shutdown()


def _run_there(work: Work, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Make a run on a machine of the cluster; return the files of its run folder, and its record."""
    with tempfile.TemporaryDirectory(prefix="tsattn_") as place, quiet_lightning():
        folder = WorkingFolder(place)
        _write(files, folder.path)
        run_entry(work, folder)
        return _files(folder.path, [folder.run(work.key), folder.file(work.key)])


def _files(root: Path, places: list[Path]) -> dict[str, bytes]:
    """Read files, including all files in folders, by their paths relative to `root`, in this order."""
    found = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    return {str(file.relative_to(root)): file.read_bytes() for file in found if file.is_file()}


def _write(files: Mapping[str, bytes], root: Path) -> None:
    """Write files below a folder: each run folder whole or not at all, the record last."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming_", dir=root) as place:
        for name, content in files.items():
            file = Path(place, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        parts = {Path(*Path(name).parts[:2]) for name in files}
        for part in sorted(parts, key=lambda part: (part.parts[0] == "records", part)):
            target = root / part
            target.parent.mkdir(exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            (Path(place) / part).replace(target)
