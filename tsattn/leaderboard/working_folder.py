"""The folder that a benchmark works in: what is done, and what is under way, whenever it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tsattn.errors import UserError
from tsattn.leaderboard.run_record import Record
from tsattn.saved_folders import write_whole

__all__ = ["WorkingFolder"]


class WorkingFolder:
    """Names of the files in it.

    Args:
        path: the folder.

    Attributes:
        entries: a record for each key that was decided, in files of their own.
        runs: a run folder for each key.
        studies: a folder for each study.
        journal: a line of JSON for whatever begins or ends.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.entries = self.path / "entries"
        self.runs = self.path / "runs"
        self.studies = self.path / "studies"
        self.journal = self.path / "journal.jsonl"
        self._locks = self.path / "locks"
        self._known: dict[str, Record] = {}
        self._remembered: dict[str, Record] = {}

    def make(self) -> None:
        """Make it.

        Raises:
            UserError: if it cannot be made.
        """
        try:
            for folder in (self.entries, self.runs, self.studies, self._locks):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"the folder {self.path} cannot be made: {error.strerror}") from error

    def record(self, key: str) -> Record | None:
        """What came of a key; None as long as that is not decided."""
        known = self._known.get(key)
        if known is None or known.row["status"] != "done":  # another process may run what failed once more
            file = self._entry(key)
            if not file.exists():
                self._known.pop(key, None)
                return self._remembered.get(key)
            self._known[key] = Record.read(file)
        return self._known[key]

    def is_done(self, key: str) -> bool:
        """Whether there is a result of a key."""
        record = self.record(key)
        return record is not None and record.row["status"] == "done"

    def keep(self, record: Record) -> None:
        """Write down what came of a key."""
        record.write(self._entry(record.row["key"]))

    def remember(self, record: Record) -> None:
        """Know what came of a key, without writing it down."""
        self._remembered[record.row["key"]] = record

    def forget(self, key: str) -> None:
        """Let a key be run once more, afresh."""
        self._remembered.pop(key, None)
        self._entry(key).unlink(missing_ok=True)

    def run(self, key: str) -> Path:
        """The run folder of a key."""
        return self.runs / key[:24]

    def study(self, name: str) -> Path:
        """The folder of a study."""
        return self.studies / name

    def selected(self, name: str) -> dict[str, Any] | None:
        """What a study has chosen; None as long as it has not."""
        file = self.study(name) / "selected.json"
        if not file.exists():
            return None
        content: dict[str, Any] = json.loads(file.read_text())
        return content

    def keep_selected(self, name: str, content: Mapping[str, Any]) -> None:
        """Write down what a study has chosen."""
        text = json.dumps(content, indent=2) + "\n"
        write_whole(self.study(name) / "selected.json", lambda file: file.write(text.encode()))

    @contextlib.contextmanager
    def held(self, name: str, seconds: float = 0.0) -> Iterator[bool]:
        """Keep other processes from the same entry, study or file; whether that was possible.

        Args:
            name: of it.
            seconds: to wait for it.
        """
        lock = FileLock(self._locks / f"{name[:80]}.lock")
        try:
            lock.acquire(timeout=seconds)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def is_held(self, name: str) -> bool:
        """Whether another process has it now."""
        with self.held(name) as free:
            return not free

    def note(self, event: str, key: str, **facts: Any) -> None:
        """Add a line to the journal, whole, whoever else does."""
        line = json.dumps({"time": time.time(), "pid": os.getpid(), "event": event, "key": key, **facts}) + "\n"
        handle = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def notes(self) -> list[dict[str, Any]]:
        """The lines of the journal; one that a crash of the machine has cut off is left out."""
        found = []
        for line in self.journal.read_text().splitlines() if self.journal.exists() else []:
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def _entry(self, key: str) -> Path:
        return self.entries / f"{key}.parquet"
