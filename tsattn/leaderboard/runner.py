"""Run the remaining entries of a suite with workers, and write its table of records meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tsattn.errors import UserError, duration, number_of
from tsattn.leaderboard.digest import conflicts
from tsattn.leaderboard.entry_run import Work, WorkingFolder, git_state, held
from tsattn.leaderboard.plan import Entry, Planner
from tsattn.leaderboard.records import FILE, LABELS, Records
from tsattn.leaderboard.suite import read_suite
from tsattn.leaderboard.workers import BUSY, LocalWorkers, RayWorkers

_WRITE_EVERY = 60.0  # seconds between two writes of the table of records
_LOOK_EVERY = 2.0  # seconds between two checks of other processes
_LOCK_PATIENCE = 120.0
_OVERHEAD = 1.5  # assumed ratio of a run's time to its fit's, until a run has ended
_ALIKE = (("dataset", "horizon", "predictor"), ("dataset", "predictor"), ("predictor",), ())  # most similar first


@dataclass(frozen=True)
class Options:
    """How to run a suite: runs at once, threads of each, whether to retry failed runs, and the command that asked."""

    jobs: int = 1
    threads: int = 1
    retry_failed: bool = False
    command: str = ""


class Runner:
    """Runs the entries of a suite in a folder; a `UserError` for a table of records that cannot be used."""

    def __init__(
        self,
        name: str,
        text: str,
        whole: Sequence[Entry],
        entries: Sequence[Entry],
        folder: WorkingFolder,
        output: Path | None,
        options: Options,
        say: Callable[[str], None],
    ) -> None:
        self.name, self.text, self.entries = name, text, entries
        self.folder, self.output, self.options, self.say = folder, output, options, say
        self._whole = whole
        self._unique = [*{entry.key: entry for entry in entries if entry.key}.values()]  # each experiment once
        before = self._written_rows()
        self._recorded = {row["key"]: row for row in before if row["status"] == "done"}
        planned = {entry.key for entry in self._whole}
        unplanned = {_model(entry.labels) for entry in self._whole if entry.reason}  # as without its data set
        others = [row for row in before if row["key"] not in planned]
        self._kept = [row for row in others if _model(row) in unplanned]
        self._gone = len(others) - len(self._kept)
        self._seconds = np.zeros(2)  # of runs that this process has started, and of their fits
        self._written = time.monotonic()

    @classmethod
    def of_suite(
        cls,
        file: Path,
        limits: Mapping[str, Any],
        folder: str | Path | None,
        output: str | Path | None,
        options: Options,
        say: Callable[[str], None],
    ) -> Self:
        """Plan the part of a suite within `limits`, see `Suite.narrowed`; the suite names the folders by default."""
        suite, planner = read_suite(file), Planner()
        part, whole = suite.narrowed(**limits), planner.plan(suite)
        entries = whole if part == suite else planner.plan(part)
        place = WorkingFolder(folder or Path("runs", "leaderboard", suite.name))
        records = Path(output or Path("benchmarks", "results", suite.name))
        return cls(suite.name, suite.text, whole, entries, place, records, options, say)

    def state(self, entry: Entry) -> str:
        """``does not apply``, ``done``, ``failed`` or ``left``."""
        if entry.reason:
            return "does not apply"
        row = self.row(entry)
        return "left" if row is None else str(row["status"])

    def row(self, entry: Entry) -> dict[str, Any] | None:
        """The record of an entry; None if there is none yet."""
        own = self.folder.record(entry.key)
        known = self._recorded.get(entry.key)
        if own is None or (own["status"] != "done" and known is not None):
            return known
        return own

    def left(self) -> list[Entry]:
        """The entries still to run, each experiment once."""
        return [entry for entry in self._unique if self.state(entry) == "left"]

    def run(self, workers: LocalWorkers | RayWorkers) -> None:
        """Run the remaining entries, and write the records even after an interrupt."""
        if self.options.retry_failed:
            for entry in self._unique:
                if self.state(entry) == "failed":
                    self.folder.forget(entry.key)
        if self._gone:
            self.say(f"{number_of(self._gone, 'record')} of an earlier version of the suite left out")
        git = git_state()
        if git.endswith("+changes"):
            self.say("warning: the code differs from its commit; commit it before runs that you publish")
        running: dict[str, tuple[Entry, float]] = {}
        elsewhere: set[str] = set()
        try:
            while left := self.left():
                if self._fail_with_members(left):
                    continue
                to_come = {entry.key for entry in left}
                ready = [one for one in left if one.key not in running and not to_come & set(one.members)]
                elsewhere = {key for key in elsewhere if self._is_held(key)}
                for entry in [entry for entry in ready if entry.key not in elsewhere][: workers.free]:
                    running[entry.key] = entry, time.monotonic()
                    workers.start(self._work(entry, git))
                for key, outcome in workers.ended(_LOOK_EVERY).items():
                    entry, started = running.pop(key)
                    if outcome == BUSY:
                        elsewhere.add(key)
                    else:
                        self._end(entry, outcome, time.monotonic() - started)
                if time.monotonic() - self._written > _WRITE_EVERY:
                    self.write()
        finally:
            workers.stop()
            self.write()

    def write(self) -> None:
        """Write the table of records of the whole suite."""
        if self.output is None:
            return
        self.output.mkdir(parents=True, exist_ok=True)
        with held(self.output / ".records.lock", _LOCK_PATIENCE) as is_free:
            if not is_free:
                raise UserError(f"another process holds the records in {self.output}; wait, then repeat the command")
            for left in self.output.glob(f"{FILE}.*.partial"):  # a killed process has left it
                left.unlink(missing_ok=True)
            for row in self._written_rows():  # another process may have added some
                if row["status"] == "done":
                    self._recorded.setdefault(row["key"], row)
            known = ((entry, self.row(entry)) for entry in self._whole)
            rows = [{**row, "suite": self.name, **entry.labels} for entry, row in known if row]
            Records.of([*rows, *self._kept], {self.name: self.text}).write(self.output)
        self._written = time.monotonic()

    def _written_rows(self) -> list[dict[str, Any]]:
        if self.output is None or not (self.output / FILE).exists():
            return []
        rows: list[dict[str, Any]] = Records.read(self.output).table.to_pylist()
        return rows

    def run_all(self, ray: str | None, resume: str, *, lists: bool = False) -> bool:
        """Print the plan, and run it here or on the Ray cluster at the address `ray`.

        With `lists`, only list it and return False. At the end name failed runs; after an interrupt, how to `resume`.
        """
        self.say_plan(lists=lists)
        if lists:
            return False
        jobs, threads = self.options.jobs, self.options.threads
        workers = LocalWorkers(self.folder, jobs) if ray is None else RayWorkers(self.folder, ray, jobs, threads)
        try:
            self.run(workers)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"resume with `{resume}`") from stop
        failed = [entry for entry in self.entries if self.state(entry) == "failed"]
        for entry in failed:
            self.say(f"failed: {entry}: {(self.row(entry) or {}).get('reason')}")
        if failed:
            self.say(f"run failed ones again with --retry-failed; their output is in {self.folder.path / 'logs'}")
        rows = [{**row, **entry.labels} for entry in self._whole if (row := self.row(entry))]
        for sentence in conflicts(Records.of(rows).done):
            self.say(f"warning: {sentence}")
        return True

    def say_plan(self, *, lists: bool) -> None:
        """Say how many runs there are and how long they take; a `UserError` if none can be made."""
        for entry in self.entries if lists else ():
            state = self.state(entry)
            if state != "done":
                self.say(f"{state:<14}  {entry}{f': {entry.reason}' if entry.reason else ''}")
        states = Counter(map(self.state, self.entries))
        if set(states) == {"does not apply"}:
            reason, count = Counter(entry.reason for entry in self.entries).most_common(1)[0]
            raise UserError(f"no run can be made; {count} of {len(self.entries)}: {reason}")
        counted = ", ".join(f"{n} {'to be run' if state == 'left' else state}" for state, n in sorted(states.items()))
        self.say(f"{self.name}: {number_of(len(self.entries), 'run')}: {counted}")
        for reason, count in Counter(entry.reason for entry in self.entries if entry.reason and not lists).items():
            self.say(f"{number_of(count, 'run')} left out: {reason}")
        if seconds := self.seconds_left():
            self.say(f"about {duration(seconds)} left, {self.options.jobs} at once")

    def seconds_left(self) -> float | None:
        """Estimate the seconds of the remaining runs; None without a finished run."""
        known: dict[tuple[Any, ...], list[float]] = {}
        for entry in self._whole:
            row = self.row(entry)
            if row is not None and row["seconds"] is not None:
                for key in _alike(entry):
                    known.setdefault(key, []).append(row["seconds"])
        if not known:
            return None
        walls, fits = self._seconds
        total = sum(np.mean(next(known[key] for key in _alike(entry) if key in known)) for entry in self.left())
        return float(total * (walls / fits if fits else _OVERHEAD) / self.options.jobs)

    def _fail_with_members(self, left: Sequence[Entry]) -> bool:
        """Record entries with a failed member as failed; return whether there were any."""
        failed = {one.key: self.row(one) or {} for one in self._unique if self.state(one) == "failed"}
        lost = [(entry, key) for entry in left for key in entry.members if key in failed]
        for entry, key in lost:
            self._fail(entry, f"a member failed: {failed[key].get('reason')}")
        return bool(lost)

    def _fail(self, entry: Entry, reason: str) -> None:
        labels = {"suite": self.name, **entry.labels, "key": entry.key}
        self.folder.keep({**labels, "status": "failed", "reason": reason})

    def _is_held(self, key: str) -> bool:
        with self.folder.held(key) as is_free:
            return not is_free

    def _work(self, entry: Entry, git: str) -> Work:
        if entry.experiment is None:
            raise ValueError(f"{entry} does not apply")
        labels = {"suite": self.name, **entry.labels}
        experiment = entry.experiment.to_dict()
        own = (entry.members, git, self.options.command, self.options.threads)
        return Work(str(entry), entry.key, experiment, labels, *own)

    def _end(self, entry: Entry, outcome: str, wall: float) -> None:
        if outcome:
            self._fail(entry, outcome)
        row = self.row(entry)
        if row is None:
            return  # it was interrupted
        if row["seconds"]:
            self._seconds += wall, row["seconds"]
        said = f"MSE {row['mse']:.4f}, MAE {row['mae']:.4f}" if row["status"] == "done" else f"failed: {row['reason']}"
        ended = len(self._unique) - len(self.left())
        seconds = self.seconds_left()
        left = f"; {duration(seconds)} left" if seconds else ""
        self.say(f"{ended} of {len(self._unique)}  {entry}: {said}{left}")


def _alike(entry: Entry) -> list[tuple[Any, ...]]:
    """Names of ever larger groups of similar runs that an entry belongs to."""
    return [tuple(getattr(entry, name) for name in names) for names in _ALIKE]


def _model(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in LABELS if name != "seed")
