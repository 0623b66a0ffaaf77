"""What is sent to the machines of a cluster, and what is said of tasks that end without a result; without Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.leaderboard.test_longer_training import planned
from tsattn.leaderboard import ray_workers
from tsattn.leaderboard.entry_run import Work
from tsattn.leaderboard.packed_runs import unpack
from tsattn.leaderboard.ray_workers import RayWorkers
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.worker_process import BUSY, why_ended
from tsattn.leaderboard.working_folder import WorkingFolder


class RayError(Exception):
    """Ray's: a task is lost."""


class RayTaskError(RayError):
    """Ray's: a task raised."""

    cause: Exception


class Cluster:
    """In the place of Ray: tasks end at once, with what is asked of them."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, answer: Exception | Any) -> None:
        self.answer = answer
        self.sent: list[tuple[Any, ...]] = []

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        def send(*arguments: Any) -> int:
            self.sent.append(arguments)
            return len(self.sent)

        return lambda function: SimpleNamespace(remote=send)

    def wait(self, references: list[int], **options: Any) -> tuple[list[int], list[int]]:
        return references[:1], references[1:]

    def get(self, reference: int) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Cluster]:
    def made(answer: Any) -> Cluster:
        found = Cluster(answer)
        monkeypatch.setattr(ray_workers, "connect", lambda address, processors: found)
        return found

    return made


def work(folder: Path) -> Work:
    entry = planned(folder)["short"]
    assert entry.experiment is not None
    return Work(entry.name, entry.key, entry.experiment.to_dict(), {}, "", "", 1)


def test_what_was_begun_here_is_sent_along(tmp_path: Path, cluster: Callable[[Any], Cluster]) -> None:
    folder, task = WorkingFolder(tmp_path / "runs"), work(tmp_path)
    folder.make()
    there = cluster((b"", b"", []))
    (folder.run(task.key) / "checkpoints").mkdir(parents=True)
    (folder.run(task.key) / "checkpoints" / "last.ckpt").write_text("weights")
    folder.note("begin", task.key, name=task.name, kept=3.0)
    folder.note("begin", "another", name="another", kept=1.0)
    workers = RayWorkers(folder, "head:1", 1, 1)
    workers.start(task)
    ((sent, members, begun, notes),) = there.sent
    assert (sent, members) == (task, {})
    unpack(begun, tmp_path / "elsewhere")
    run = folder.run(task.key).relative_to(folder.path)
    assert (tmp_path / "elsewhere" / run / "checkpoints" / "last.ckpt").read_text() == "weights"
    assert [(note["key"], note["kept"]) for note in notes] == [(task.key, 3.0)]
    assert workers.ended(1.0) == {task.key: 0}


def test_what_is_done_is_not_sent(tmp_path: Path, cluster: Callable[[Any], Cluster]) -> None:
    folder, task = WorkingFolder(tmp_path / "runs"), work(tmp_path)
    folder.make()
    there = cluster((b"", b"", []))
    workers = RayWorkers(folder, "head:1", 1, 1)
    folder.keep(Record.of({"key": task.key, "status": "failed", "reason": "by another process, a moment ago"}))
    workers.start(task)
    assert there.sent == []
    assert workers.ended(1.0) == {task.key: BUSY}
    with folder.held(task.key) as is_free:
        assert is_free


def test_a_machine_that_cannot_run_it_says_why(tmp_path: Path, cluster: Callable[[Any], Cluster]) -> None:
    folder, task = WorkingFolder(tmp_path / "runs"), work(tmp_path)
    folder.make()
    error = RayTaskError("a long traceback")
    error.cause = ModuleNotFoundError("No module named 'tsattn'")
    cluster(error)
    workers = RayWorkers(folder, "head:1", 1, 1)
    workers.start(task)
    ((key, code),) = workers.ended(1.0).items()
    assert key == task.key
    assert why_ended(code) == "on its machine: ModuleNotFoundError: No module named 'tsattn'"
    cluster(RayError("the node is gone"))
    workers = RayWorkers(folder, "head:1", 1, 1)
    workers.start(task)
    assert "its machine went away" in why_ended(workers.ended(1.0)[key])
