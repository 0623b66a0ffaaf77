"""The records of a suite, put together of what was decided, by the names that the suite has for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tsattn.errors import UserError
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.records import RECORDS_FILE, Records, merged_records
from tsattn.leaderboard.run_record import LABELS, Record, called_twice, shown_number
from tsattn.leaderboard.suite_facts import SuiteFacts, merged_facts
from tsattn.leaderboard.working_folder import WorkingFolder
from tsattn.saved_folders import write_text

__all__ = ["TakenRecords", "keep_beside", "keep_failures", "left_out", "record_table", "take_records"]

_ADDED = "added"
_FACTS = "suites.json"


@dataclass(frozen=True)
class TakenRecords:
    """What there was in tables of records when they were taken.

    Attributes:
        new: how many finished runs the working folder did not have.
        own: the records of the suite's own table, the earliest of all.
        others: those of the tables of others.
        facts: what all of these tables say of suites, by name; of two that say something of one the later is in force.
    """

    new: int = 0
    own: tuple[Record, ...] = ()
    others: tuple[Record, ...] = ()
    facts: Mapping[str, SuiteFacts] = field(default_factory=dict)


def record_table(
    suite: str,
    entries: Iterable[Entry],
    folder: WorkingFolder,
    failed_studies: Mapping[str, str],
    facts: SuiteFacts,
    before: TakenRecords = TakenRecords(),
) -> Records:
    """What is known of planned entries, and what was added of others.

    Args:
        suite: its name.
        entries: planned.
        folder: with what was decided.
        failed_studies: by name, why a study has chosen nothing.
        facts: what else there is to know of the suite.
        before: what was taken; a study that failed there, and that nothing is known of here, has failed.

    Raises:
        UserError: if two different experiments that were added are called the same, as none says which is meant.
    """
    entries = list(entries)
    failed_before = {_labels(one): one for one in _of_suite(suite, before) if one.row["status"] == "failed"}
    found: list[Record] = []
    for entry in entries:
        record = _decided(entry, folder, failed_studies)
        if record is None and entry.waits:
            record = failed_before.get(tuple(entry.labels.values()))
        if record is not None:
            found.append(Record({**record.row, "suite": suite, **entry.labels}, record.windows))
    beside = _beside(entries, _kept(folder))
    known = {name: one for name, one in _kept_facts(folder).items() if name in {one.row["suite"] for one in beside}}
    return Records.of([*found, *beside], {**known, suite: facts})


def _decided(entry: Entry, folder: WorkingFolder, failed_studies: Mapping[str, str]) -> Record | None:
    if entry.reason:
        return Record.of({"status": "does not apply", "reason": entry.reason, "key": ""})
    reasons = [failed_studies[name] for name in entry.studies if name in failed_studies]
    if entry.waits:
        return Record.of({"status": "failed", "reason": reasons[0], "key": ""}) if reasons else None
    return folder.record(entry.key)


def take_records(
    folder: WorkingFolder, output: Path, sources: Iterable[str], *, in_memory: bool = False
) -> TakenRecords:
    """Take what is done in records, so that it is not run again.

    Args:
        folder: takes them.
        output: the folder of the suite's own records, which are taken if there are some.
        sources: folders or files of others' records.
        in_memory: whether no file is to be changed.

    Raises:
        UserError: if one is not there, or two have different results for one key.
    """
    own = [str(output)] if (output / RECORDS_FILE).exists() else []
    tables = {source: Records.read(source) for source in (*own, *sources)}
    new = 0
    for source, table in tables.items():
        for record in table.each():
            key = record.row["key"]
            if record.row["status"] != "done":
                continue
            known = folder.record(key)
            if known is None or known.row["status"] != "done":
                (folder.remember if in_memory else folder.keep)(record)
                new += 1
            elif (known.row["mse"], known.row["mae"]) != (record.row["mse"], record.row["mae"]):
                first, second = (shown_number(one.row["mse"]) for one in (known, record))
                raise UserError(
                    f"two results of one experiment differ: mse {first} in {folder.path}, {second} in {source}, key "
                    f"{key}; keep one of them"
                )
    return TakenRecords(
        new,
        tuple(record for source in own for record in tables[source].each()),
        tuple(record for source, table in tables.items() if source not in own for record in table.each()),
        merged_facts(table.suites for table in tables.values()),
    )


def keep_failures(
    folder: WorkingFolder, entries: Iterable[Entry], taken: TakenRecords, *, in_memory: bool = False
) -> None:
    """Keep what failed in records, of what is planned and neither decided nor begun here: it is not run again unasked.

    Args:
        folder: takes it.
        entries: planned.
        taken: from `take_records`.
        in_memory: whether no file is to be changed.
    """
    planned = {entry.key for entry in entries if entry.key}
    for record in (*taken.own, *taken.others):
        key = record.row["key"]
        is_one = record.row["status"] == "failed" and key in planned
        if is_one and folder.record(key) is None and not folder.run(key).exists():
            (folder.remember if in_memory else folder.keep)(record)


def keep_beside(
    folder: WorkingFolder, suite: str, entries: Iterable[Entry], taken: TakenRecords, *, in_memory: bool = False
) -> list[Record]:
    """Keep records of others, of which those that the suite has no place for stand beside its own, under the name of
    their own suite.

    Args:
        folder: takes them.
        suite: its name.
        entries: planned.
        taken: from `take_records`.
        in_memory: whether no file is to be changed.

    Returns:
        Those that are left out, as the suite plans another experiment by their name.

    Raises:
        UserError: if two different experiments that the suite has no place for are called the same; then none is kept.
    """
    entries = list(entries)
    # its own table may hold what was added where it was written
    others = [*taken.others, *(record for record in taken.own if record.row["suite"] != suite)]
    kept = merged_records([*_kept(folder), *others])
    _beside(entries, kept)
    if not in_memory and others:
        place = folder.path / _ADDED
        for record in kept:
            words = (record.row["suite"], *(record.row[label] for label in LABELS), record.row["key"][:12])
            record.write(place / f"{'_'.join(map(str, words)).replace('/', '_')}.parquet")
        facts = merged_facts([_kept_facts(folder), taken.facts])
        write_text(place / _FACTS, json.dumps({name: one.to_dict() for name, one in facts.items()}) + "\n")
    planned = {tuple(entry.labels.values()): entry for entry in entries}
    return [
        record
        for record in kept
        if record.row["key"]
        and (entry := planned.get(_labels(record))) is not None
        and not entry.waits
        and entry.key != record.row["key"]
    ]


def left_out(suite: str, entries: Iterable[Entry], folder: WorkingFolder, taken: TakenRecords) -> list[Record]:
    """The records of a suite's own table that have no place in the next one, as the suite plans them no more.

    Args:
        suite: its name.
        entries: planned.
        folder: that works on it.
        taken: from `take_records`.
    """
    entries = list(entries)
    planned = {(*entry.labels.values(), entry.key) for entry in entries}
    waiting = {tuple(entry.labels.values()) for entry in entries if entry.waits}
    beside = {(*_labels(record), record.row["key"]) for record in _beside(entries, _kept(folder))}
    return [
        record
        for record in _of_suite(suite, TakenRecords(own=taken.own))
        if record.row["key"]
        and (*_labels(record), record.row["key"]) not in planned | beside
        and _labels(record) not in waiting
    ]


def _of_suite(suite: str, taken: TakenRecords) -> list[Record]:
    return [record for record in (*taken.own, *taken.others) if record.row["suite"] == suite]


def _labels(record: Record) -> tuple[object, ...]:
    return tuple(record.row[name] for name in LABELS)


def _kept(folder: WorkingFolder) -> list[Record]:
    """The records of others that `keep_beside` has kept."""
    return [Record.read(path) for path in sorted((folder.path / _ADDED).glob("*.parquet"))]


def _kept_facts(folder: WorkingFolder) -> dict[str, SuiteFacts]:
    file = folder.path / _ADDED / _FACTS
    content = json.loads(file.read_text()) if file.exists() else {}
    return {name: SuiteFacts.of(facts) for name, facts in content.items()}


def _beside(entries: Iterable[Entry], others: Iterable[Record]) -> list[Record]:
    """Those of what is not planned."""
    names = {tuple(entry.labels.values()) for entry in entries}
    arms = {labels[:-1] for labels in names}
    found = []
    keys: dict[tuple[object, ...], str] = {}
    for record in others:
        labels = _labels(record)
        is_refused = not record.row["key"] and labels[-1] is None  # all seeds of an arm at once
        if labels in names or (is_refused and labels[:-1] in arms):
            continue
        if record.row["status"] == "done" and keys.setdefault(labels, record.row["key"]) != record.row["key"]:
            raise called_twice(record.row)
        found.append(record)
    return found
