"""Entries and studies as tasks of a Ray cluster, whose machines need not share a disk."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tsattn.leaderboard.entry_run import Work, run_entry
from tsattn.leaderboard.packed_runs import pack, unpack
from tsattn.leaderboard.study_work import StudyWork, run_study_entry
from tsattn.leaderboard.worker_process import BUSY
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.ray_cluster import connect
from tsattn.training.quiet_lightning import quiet_lightning

__all__ = ["RayWorkers"]

_RETRIES = 5  # of a task whose machine or process is lost
_LOST = -9  # the exit code of one that was lost that often


class RayWorkers:
    """Tasks of a cluster: each runs in a temporary folder of its machine, and what comes of it is brought back here.

    A task whose machine goes away is run again on another. Its members, where it is an ensemble, are sent along.

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
        if not held.enter_context(self._folder.held(task.key)):
            self._busy.append(task.key)
            return
        members = {}
        if isinstance(task, Work):
            for key, path in task.members.items():
                members[key] = pack(self._folder.path, [str(Path(path).relative_to(self._folder.path))])
        study = pack(self._folder.path, [f"studies/{task.key}"]) if isinstance(task, StudyWork) else b""
        self._running[self._task.remote(task, members, study)] = task.key, held

    def ended(self, seconds: float) -> Mapping[str, int]:
        """By key, the exit codes of those that have ended, after waiting so long for the first."""
        codes = dict.fromkeys(self._busy, BUSY)
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

    def _bring(self, reference: Any) -> int:
        """Take what a task has made, its record last."""
        try:
            files, records, notes = self._ray.get(reference)
        except self._ray.exceptions.RayError:  # its machines went away too often, or its memory ran out
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


def _run_there(
    task: Work | StudyWork, members: Mapping[str, bytes], study: bytes
) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """What a task does on its machine: files of the run, its record, and lines for the journal."""
    with tempfile.TemporaryDirectory(prefix="tsattn_") as place, quiet_lightning():
        folder = WorkingFolder(place)
        folder.make()
        if isinstance(task, StudyWork):
            if study:
                unpack(study, folder.path)
            run_study_entry(task, folder)
            files, records = pack(folder.path, [f"studies/{task.key}"]), b""
        else:
            for packed in members.values():
                unpack(packed, folder.path)
            here = {key: str(folder.run(key)) for key in members}
            run_entry(replace(task, members=here), folder)
            run = str(folder.run(task.key).relative_to(folder.path))
            files = pack(folder.path, [run, "errors"])
            records = pack(folder.path, [f"entries/{task.key}.parquet"])
        return files, records, folder.notes()
