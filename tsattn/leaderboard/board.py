"""Running a suite: what is left of its plan, by workers, until nothing is; its records are written on the way."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tsattn.errors import number_of
from tsattn.leaderboard.chosen_values import ChosenValues
from tsattn.leaderboard.entry_run import Work, provenance
from tsattn.leaderboard.estimates import Estimates, duration
from tsattn.leaderboard.plan import Entry, Plan, StudyEntry
from tsattn.leaderboard.planned_facts import planned_facts
from tsattn.leaderboard.planner import Planner
from tsattn.leaderboard.provenance import git_state
from tsattn.leaderboard.record_table import (
    TakenRecords,
    keep_beside,
    keep_failures,
    left_out,
    record_table,
    take_records,
)
from tsattn.leaderboard.run_record import Record
from tsattn.leaderboard.shards import Shard
from tsattn.leaderboard.study_work import StudyWork
from tsattn.leaderboard.suite import Suite
from tsattn.leaderboard.suite_facts import SuiteFacts
from tsattn.leaderboard.worker_process import BUSY, why_ended
from tsattn.leaderboard.working_folder import WorkingFolder

__all__ = ["Board", "Options", "Workers"]

_WRITE_EVERY = 60.0  # seconds between the tables of records on the way
_LOOK_EVERY = 2.0  # seconds between looks at what other processes do
_LOCK_PATIENCE = 120.0


class Workers(Protocol):
    """What runs entries and studies: processes of this machine, or of many."""

    @property
    def free(self) -> int:
        """How many more can be started now."""

    def start(self, task: Work | StudyWork) -> None:
        """Begin with an entry or a study."""

    def ended(self, seconds: float) -> Mapping[str, int | str]:
        """By key, the exit codes of those that have ended, or why, after waiting so long for the first."""

    def stop(self) -> None:
        """End all, which keep what they have done."""


@dataclass(frozen=True)
class Options:
    """How a suite is run.

    Attributes:
        threads: of torch, in each worker.
        jobs: how many workers there are, for estimates.
        shard: the part of the entries that is run here.
        retries_failed: whether what failed before is run once more.
        added: folders or files of others' records.
        command: that asked for it.
    """

    threads: int = 1
    jobs: int = 1
    shard: Shard = field(default_factory=Shard)
    retries_failed: bool = False
    added: tuple[str, ...] = ()
    command: str = ""


class Board:
    """A suite that is run.

    Args:
        suite: all of it, for the table of records.
        narrowed: the part of it that is run here.
        folder: to work in.
        output: the folder of the table of records.
        options: how.
        say: takes lines of progress.
    """

    def __init__(
        self,
        suite: Suite,
        narrowed: Suite,
        folder: WorkingFolder,
        output: Path,
        options: Options,
        say: Callable[[str], None],
    ) -> None:
        self.suite = suite
        self.narrowed = narrowed
        self.folder = folder
        self.output = output
        self.options = options
        self.say = say
        self._values = ChosenValues(folder, output)
        self._planner = Planner(self._values.chosen, folder.is_done)
        self._plan = Plan((), ())
        self._whole = Plan((), ())
        self._written = time.monotonic()
        self._elsewhere: set[str] = set()
        self._taken = TakenRecords()
        self._git = ""
        self._jobs = options.jobs

    def prepare(self, *, dry: bool = False) -> None:
        """Read what is there, and make the plan.

        Args:
            dry: whether no file is to be changed.

        Raises:
            UserError: for a suite or records that cannot be used.
        """
        if not dry:
            self.folder.make()
        self._values.read()
        self._taken = take_records(self.folder, self.output, self.options.added, in_memory=dry)
        self._make_plan()
        self._take_chosen()
        self._keep_others(dry)
        if self.options.retries_failed and not dry:
            self._retry()

    def _keep_others(self, dry: bool) -> None:
        """Keep what failed, and what is not of this suite, of the records that were taken; say what is left out."""
        name, entries, taken = self.suite.name, self._all_entries(), self._taken
        keep_failures(self.folder, entries, taken, in_memory=dry)
        replaced = keep_beside(self.folder, name, entries, taken, in_memory=dry)
        gone = left_out(name, entries, self.folder, taken)
        if taken.new:
            self.say(f"{number_of(taken.new, 'finished run')} taken from records")
        if replaced:
            self.say(
                f"{number_of(len(replaced), 'record')} of others left out, as the suite {name} has another experiment "
                f"of the same name: {_example(replaced)}"
            )
        if gone:
            self.say(
                f"{number_of(len(gone), 'record')} of an earlier version of the suite {name} left out, as it plans "
                f"them no more: {_example(gone)}"
            )

    @property
    def plan(self) -> Plan:
        """The plan of what is run here."""
        return self._plan

    def is_planned(self, key: str) -> bool:
        """Whether the whole suite, as it is now, has an entry."""
        return bool(key) and any(entry.key == key for entry in self._whole.entries)

    def state(self, entry: Entry) -> str:
        """``does not apply``, ``done``, ``failed``, ``waits`` for a study, or ``left``."""
        if entry.reason:
            return "does not apply"
        if entry.waits:
            return "failed" if any(name in self._values.failed for name in entry.studies) else "waits"
        record = self.folder.record(entry.key)
        return "left" if record is None else str(record.row["status"])

    def reason(self, entry: Entry) -> str:
        """Why an entry failed or does not apply; empty for any other."""
        if entry.reason or entry.waits:
            return entry.reason or next((self._values.failed.get(name, "") for name in entry.studies), "")
        record = self.folder.record(entry.key)
        return "" if record is None else str(record.row["reason"])

    def open_studies(self) -> list[StudyEntry]:
        """The studies that have chosen nothing yet, nor failed."""
        names = {name for entry in self.mine() for name in entry.studies}
        return [study for study in self._plan.studies if study.name in names and not self._values.ended(study.name)]

    def run(self, workers: Workers) -> None:
        """Run what is left, and write the records.

        Raises:
            KeyboardInterrupt: if it was interrupted; what is done is written.
        """
        self._git = git_state()
        running: dict[str, Entry | StudyEntry] = {}
        try:
            while True:
                ready, is_over = self._ready(running)
                free = workers.free
                self._jobs = max(1, free + len(running))  # machines may have gone
                for task in ready[:free]:
                    running[_key(task)] = task
                    workers.start(self._work(task))
                if is_over and not running:
                    break
                for key, code in workers.ended(_LOOK_EVERY).items():
                    self._end(running.pop(key), code)
                if time.monotonic() - self._written > _WRITE_EVERY:
                    self.write()
        finally:
            workers.stop()
            self.write()

    def write(self) -> None:
        """Write the table of records, and what studies have chosen, of all that is known."""
        with self.folder.held("records", _LOCK_PATIENCE):
            for left in self.output.glob("*.partial"):  # by a process that was killed over it
                if re.fullmatch(r"(records|windows|suites|selected|origins)\.\w+\.\d+\.partial", left.name):
                    left.unlink(missing_ok=True)
            table = record_table(
                self.suite.name, self._all_entries(), self.folder, self._values.failed, self._facts(), self._taken
            )
            table.write(self.output)
            self._values.write(study.name for study in self._all_studies())
        self._written = time.monotonic()

    def _facts(self) -> SuiteFacts:
        before = self._taken.facts.get(self.suite.name, SuiteFacts())
        return planned_facts(self.suite, self.narrowed, self._all_entries(), self._plan.entries, before)

    def estimates(self) -> Estimates:
        """How long entries take."""
        entries = (*self._whole.entries, *self._plan.entries)
        studies = [(study, self._values.known(study.name)) for study in self._all_studies()]
        return Estimates(self.folder, entries, [(study, done) for study, done in studies if done is not None])

    def left(self) -> list[Entry]:
        """The entries that are to be run here."""
        return [entry for entry in self._unique() if self.state(entry) in ("left", "waits")]

    def seconds_left(self) -> float | None:
        """How long what is left will take; None where that cannot be known."""
        return self._seconds(self.left(), self.open_studies())

    def seconds_in_all(self) -> float | None:
        """How long all takes that is planned here, done or left; None where that cannot be known."""
        applies = (entry for entry in self._unique() if self.state(entry) != "does not apply")
        return self._seconds(applies, self._plan.studies)

    def _seconds(self, entries: Iterable[Entry], studies: Iterable[StudyEntry]) -> float | None:
        selection = self.narrowed.selection
        horizon = self.narrowed.horizons[0] if selection is None else selection.horizon
        seconds = self.estimates().of_all(entries, studies, horizon)
        return None if seconds is None else seconds / self._jobs

    def _make_plan(self) -> None:
        self._whole = self._planner.plan(self.suite)
        self._plan = self._whole if self.narrowed == self.suite else self._planner.plan(self.narrowed)

    def _all_entries(self) -> list[Entry]:
        """Those of the whole suite, and those that are run here beside it."""
        entries = {tuple(entry.labels.values()): entry for entry in (*self._whole.entries, *self._plan.entries)}
        return list(entries.values())

    def _all_studies(self) -> list[StudyEntry]:
        """Those of the whole suite, and those that are run here beside it."""
        return [*self._whole.studies, *self._plan.studies]

    def mine(self) -> list[Entry]:
        """The entries of this shard, in order."""
        return self.options.shard.of(self._plan.entries)

    def _unique(self) -> list[Entry]:
        """The same without those that are the experiment of another entry under another name."""
        seen: set[str] = set()
        found = []
        for entry in self.mine():
            if not entry.key or entry.key not in seen:
                found.append(entry)
            seen.add(entry.key)
        return found

    def _ready(self, running: Mapping[str, object]) -> tuple[list[Entry | StudyEntry], bool]:
        """What can be started now, in order, and whether nothing at all is left."""
        self._take_chosen()
        planned = {entry.key for entry in self.mine() if entry.key}
        studies = {study.name: study for study in self.open_studies()}
        ready: list[Entry | StudyEntry] = []
        is_over = True
        for entry in self._unique():
            state = self.state(entry)
            if state not in ("left", "waits"):
                continue
            is_over = False
            if state == "waits":
                ready += [studies.pop(name) for name in entry.studies if name in studies]
                continue
            members = [(key, self.folder.record(key)) for key in entry.members if key in planned]
            failed = [record for _, record in members if record is not None and record.row["status"] != "done"]
            if failed:
                self._fail(entry, f"what it is made of failed: {failed[0].row['reason']}")
            elif all(record is not None for _, record in members):
                ready.append(entry)
        return [task for task in ready if _key(task) not in running and not self._is_elsewhere(task)], is_over

    def _is_elsewhere(self, task: Entry | StudyEntry) -> bool:
        """Whether another process has it, as one of ours has found."""
        key = _key(task)
        if key in self._elsewhere and not self.folder.is_held(key):
            self._elsewhere.discard(key)  # it is done, or its process was killed
        return key in self._elsewhere

    def _work(self, task: Entry | StudyEntry) -> Work | StudyWork:
        if isinstance(task, Entry):
            return self._entry_work(task)
        assert self.narrowed.selection is not None
        self.say(f"study of {task.title}: begins, {number_of(task.trials, 'trial')}")
        return StudyWork.of(task, self.narrowed.selection.search, self.options.threads)

    def _entry_work(self, task: Entry) -> Work:
        assert task.experiment is not None
        folders = {key: self.folder.run(key) for key in task.members}
        return Work(
            name=task.name,
            key=task.key,
            experiment=task.experiment.to_dict(),
            members={key: str(path) for key, path in folders.items() if (path / "metrics.json").exists()},
            git=self._git,
            command=self.options.command,
            threads=self.options.threads,
        )

    def _end(self, task: Entry | StudyEntry, code: int | str) -> None:
        """Say what came of a worker."""
        if code == BUSY:
            self._elsewhere.add(_key(task))
            return
        if isinstance(task, StudyEntry):
            self._end_study(task, code)
            return
        record = self.folder.record(task.key)
        if record is None:
            if code == 130:
                return
            self._fail(task, why_ended(code))
            record = self.folder.record(task.key)
            assert record is not None
        row = record.row
        said = f"MSE {row['mse']:.4f}, MAE {row['mae']:.4f}" if row["status"] == "done" else f"failed: {row['reason']}"
        states = [self.state(entry) for entry in self._unique()]
        decided = sum(state in ("done", "failed") for state in states)
        total = sum(state != "does not apply" for state in states)
        seconds = self.seconds_left()
        left = "" if seconds is None else f"; {duration(seconds)} left"
        self.say(f"{decided} of {total}  {task.name}: {said}{left}")

    def _end_study(self, study: StudyEntry, code: int | str) -> None:
        selected = self.folder.selected(study.name)
        if selected is None:
            if code == 130:
                return
            selected = {"status": "failed", "reason": why_ended(code), "title": study.title}
            self.folder.keep_selected(study.name, selected)
        if selected["status"] == "done":
            values = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in selected["values"].items())
            self.say(f"study of {study.title}: validation {selected['error']:.4f} with {values}")
        else:
            self.say(f"study of {study.title}: failed: {selected['reason']}")

    def _fail(self, entry: Entry, reason: str) -> None:
        work = self._entry_work(entry)
        self.folder.keep(Record.of({**provenance(work), "status": "failed", "reason": reason}))
        self.folder.note("failed", entry.key, name=entry.name)

    def _take_chosen(self) -> None:
        """Plan anew once a study has chosen, here or in another process."""
        if self._values.take(study.name for study in self._all_studies()):
            self._make_plan()
            self._take_chosen()

    def _retry(self) -> None:
        """Forget what failed."""
        for entry in self._unique():
            if entry.key and self.state(entry) == "failed":
                with self.folder.held(entry.key) as free:
                    if free:
                        shutil.rmtree(self.folder.run(entry.key), ignore_errors=True)
                        self.folder.forget(entry.key)
        self._values.retry()


def _example(records: Sequence[Record]) -> str:
    """The name of the first, and that there are more."""
    row = records[0].row
    seed = "" if row["seed"] is None else f", seed {row['seed']}"
    name = f"{row['dataset']} {row['horizon']}: {' '.join(filter(None, (row['predictor'], row['attention'])))}{seed}"
    return f"{name}{' and others' if len(records) > 1 else ''}"


def _key(task: Entry | StudyEntry) -> str:
    return task.name if isinstance(task, StudyEntry) else task.key
