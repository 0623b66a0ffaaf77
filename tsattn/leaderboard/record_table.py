"""The records of a suite, put together of what was decided, by the names that the suite has for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tsattn.errors import UserError
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.records import LABELS, RECORDS_FILE, Record, Records, called_twice, shown_number
from tsattn.leaderboard.suite_facts import SuiteFacts
from tsattn.leaderboard.working_folder import WorkingFolder

__all__ = ["add_records", "keep_beside", "record_table"]

_ADDED = "added"


def record_table(
    suite: str, entries: Iterable[Entry], folder: WorkingFolder, failed_studies: Mapping[str, str], facts: SuiteFacts
) -> Records:
    """What is known of planned entries, and what was added of others.

    Args:
        suite: its name.
        entries: planned.
        folder: with what was decided.
        failed_studies: by name, why a study has chosen nothing.
        facts: what else there is to know of the suite.

    Raises:
        UserError: if two different experiments that were added are called the same, as none says which is meant.
    """
    entries = list(entries)
    found: dict[tuple[object, ...], Record] = {}
    for entry in entries:
        record = _decided(entry, folder, failed_studies)
        labels = {"suite": suite, **entry.labels}
        planned = tuple(entry.labels.values())
        if record is not None:
            found[planned] = Record({**record.row, **labels}, record.windows)
    beside = _beside(folder, entries)
    others = (Record({**one.row, "suite": suite}, one.windows) for one in beside)
    return Records.of([*found.values(), *others], {suite: facts})


def _decided(entry: Entry, folder: WorkingFolder, failed_studies: Mapping[str, str]) -> Record | None:
    if entry.reason:
        return Record.of({"status": "does not apply", "reason": entry.reason, "key": ""})
    reasons = [failed_studies[name] for name in entry.studies if name in failed_studies]
    if entry.waits:
        return Record.of({"status": "failed", "reason": reasons[0], "key": ""}) if reasons else None
    return folder.record(entry.key)


def add_records(
    folder: WorkingFolder, output: Path, sources: Iterable[str], *, in_memory: bool = False
) -> tuple[int, list[Record]]:
    """Take what is done in records, so that it is not run again.

    Args:
        folder: takes them.
        output: the folder of the suite's own records, which are taken if there are some.
        sources: folders or files of others' records.
        in_memory: whether no file is to be changed.

    Returns:
        How many entries are new; and what is done in the records of others.

    Raises:
        UserError: if one is not there, or two have different results for one key.
    """
    own = [str(output)] if (output / RECORDS_FILE).exists() else []
    new = 0
    others = []
    for source in [*own, *sources]:
        for record in Records.read(source).each():
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
            if source not in own:
                others.append(record)
    return new, others


def keep_beside(
    folder: WorkingFolder, entries: Iterable[Entry], others: Iterable[Record], *, in_memory: bool = False
) -> None:
    """Keep records of others, of which those that the suite has no place for stand beside its own.

    Args:
        folder: takes them.
        entries: planned.
        others: from `add_records`.
        in_memory: whether no file is to be changed.

    Raises:
        UserError: if two different experiments that the suite has no place for are called the same; then none is kept.
    """
    others = list(others)
    _beside(folder, entries, others)
    if in_memory:
        return
    for record in others:
        name = "_".join(str(record.row[label]) for label in LABELS).replace("/", "_")
        record.write(folder.path / _ADDED / f"{name}_{record.row['key'][:12]}.parquet")


def _beside(folder: WorkingFolder, entries: Iterable[Entry], others: Iterable[Record] = ()) -> list[Record]:
    """The records that were added to a folder, and others, of what is not planned, each once."""
    names = {tuple(entry.labels.values()) for entry in entries}
    added = (Record.read(path) for path in sorted((folder.path / _ADDED).glob("*.parquet")))
    found: dict[tuple[object, ...], Record] = {}
    for record in (*added, *others):
        labels = tuple(record.row[name] for name in LABELS)
        if labels not in names and found.setdefault(labels, record).row["key"] != record.row["key"]:
            raise called_twice(record.row)
    return list(found.values())
