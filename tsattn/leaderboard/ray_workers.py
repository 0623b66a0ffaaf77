"""Entries and studies as tasks of a Ray cluster, whose machines need not share a disk."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsattn.data.files import first_line
from tsattn.leaderboard.entry_run import Work, run_entry
from tsattn.leaderboard.packed_runs import pack, unpack
from tsattn.leaderboard.study_work import StudyWork, run_study_entry
from tsattn.leaderboard.worker_process import BUSY
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.ray_cluster import connect
from tsattn.training.quiet_lightning import quiet_lightning

__all__ = ["RayWorkers"]

_RETRIES = 5  # of a task whose machine or process is lost
_LOST = "its machine went away, or its memory ran out, each time that it was begun"


class RayWorkers:
    """Tasks of a cluster: each runs in a temporary folder of its machine, and what comes of it is brought back here.

    A task whose machine goes away is run again on another. Its members, where it is an ensemble, are sent along, and
    what an earlier process has begun here. Nothing comes back of one that does not end.

    Args:
        folder: that results are kept in.
        address: of the cluster, or ``local`` for one that is started here, and ends with this process.
        jobs: processors of a cluster that is started here, over `threads`.
        threads: of each task; a task takes as many processors.

    Raises:
        UserError: if Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, folder: WorkingFolder, address: str, jobs: int, threads: int) -> None:
        ray = connect(address, jobs * threads)
        self._ray = ray
        self._folder = folder
        self._threads = threads
        self._task = ray.remote(num_cpus=threads, max_retries=_RETRIES)(_run_there)
        self._running: dict[Any, tuple[str, contextlib.ExitStack]] = {}
        self._busy: list[str] = []

    @property
    def free(self) -> int:
        """How many more can be started now, on the machines that are there now."""
        processors = int(self._ray.cluster_resources().get("CPU", 0))
        return max(0, processors // self._threads - len(self._running))

    def start(self, task: Work | StudyWork) -> None:
        """Begin with an entry or a study, unless another process has it."""
        held = contextlib.ExitStack()
        is_free = held.enter_context(self._folder.held(task.key))
        if not is_free or (isinstance(task, Work) and self._folder.record(task.key) is not None):
            held.close()
            self._busy.append(task.key)
            return
        members = {}
        if isinstance(task, Work):
            for key, path in task.members.items():
                members[key] = pack(self._folder.path, [str(Path(path).relative_to(self._folder.path))])
        begun = pack(self._folder.path, [_place(task, self._folder)])
        notes = [note for note in self._folder.notes() if note["key"] == task.key]
        self._running[self._task.remote(task, members, begun, notes)] = task.key, held

    def ended(self, seconds: float) -> Mapping[str, int | str]:
        """By key, the exit codes of those that have ended, or why, after waiting so long for the first."""
        codes: dict[str, int | str] = dict.fromkeys(self._busy, BUSY)
        self._busy.clear()
        if not self._running:
            if not codes:
                time.sleep(seconds)
            return codes
        ready, _ = self._ray.wait([*self._running], num_returns=1, timeout=0 if codes else seconds)
        for reference in ready:
            key, held = self._running.pop(reference)
            with held:
                codes[key] = self._bring(reference)
        return codes

    def _bring(self, reference: Any) -> int | str:
        """Take what a task has made, its record last."""
        try:
            files, records, notes = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # of the machine: of a run itself there is a record
            cause = getattr(error, "cause", None) or error
            return f"on its machine: {type(cause).__name__}: {first_line(cause)}"
        except self._ray.exceptions.RayError:
            return _LOST
        if files:
            unpack(files, self._folder.path)
        if records:
            unpack(records, self._folder.path)
        for note in notes:
            self._folder.note(**note)
        return 0

    def stop(self) -> None:
        """End all, and leave the cluster."""
        for reference, (_, held) in self._running.items():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
            held.close()
        self._running.clear()
        self._ray.shutdown()


def _place(task: Work | StudyWork, folder: WorkingFolder) -> str:
    """Where a run or a study lies in its folder."""
    if isinstance(task, StudyWork):
        return f"studies/{task.key}"
    return str(folder.run(task.key).relative_to(folder.path))


def _run_there(
    task: Work | StudyWork, members: Mapping[str, bytes], begun: bytes, notes: list[dict[str, Any]]
) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """What a task does on its machine: files of the run, its record, and lines for the journal."""
    with tempfile.TemporaryDirectory(prefix="tsattn_") as place, quiet_lightning():
        folder = WorkingFolder(place)
        folder.make()
        for note in notes:
            folder.note(**note)
        unpack(begun, folder.path)
        if isinstance(task, StudyWork):
            run_study_entry(task, folder)
            files, records = pack(folder.path, [_place(task, folder)]), b""
        else:
            for packed in members.values():
                unpack(packed, folder.path)
            here = {key: str(folder.run(key)) for key in members}
            run_entry(replace(task, members=here), folder)
            files = pack(folder.path, [_place(task, folder), "errors"])
            records = pack(folder.path, [f"entries/{task.key}.parquet"])
        return files, records, folder.notes()[len(notes) :]
