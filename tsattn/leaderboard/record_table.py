"""The records of a suite, put together of what was decided, by the names that the suite has for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tsattn.errors import UserError
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.records import LABELS, RECORDS_FILE, Record, Records
from tsattn.leaderboard.working_folder import WorkingFolder

__all__ = ["add_records", "record_table"]

_ADDED = "added"


def record_table(
    suite: str, entries: Iterable[Entry], folder: WorkingFolder, failed_studies: Mapping[str, str]
) -> Records:
    """What is known of planned entries, and what was added of others.

    Args:
        suite: its name.
        entries: planned.
        folder: with what was decided.
        failed_studies: by name, why a study has chosen nothing.
    """
    found: dict[tuple[object, ...], Record] = {}
    for entry in entries:
        record = _decided(entry, folder, failed_studies)
        labels = {"suite": suite, **entry.labels}
        planned = tuple(entry.labels.values())
        if record is not None:
            found[planned] = Record({**record.row, **labels}, record.windows)
    names = {tuple(entry.labels.values()) for entry in entries}
    for path in sorted((folder.path / _ADDED).glob("*.parquet")):
        record = Record.read(path)
        labels_of = tuple(record.row[name] for name in LABELS)
        if labels_of not in names:
            found.setdefault(labels_of, Record({**record.row, "suite": suite}, record.windows))
    return Records.of(found.values())


def _decided(entry: Entry, folder: WorkingFolder, failed_studies: Mapping[str, str]) -> Record | None:
    if entry.reason:
        return Record.of({"status": "does not apply", "reason": entry.reason, "key": ""})
    reasons = [failed_studies[name] for name in entry.studies if name in failed_studies]
    if entry.waits:
        return Record.of({"status": "failed", "reason": reasons[0], "key": ""}) if reasons else None
    return folder.record(entry.key)


def add_records(folder: WorkingFolder, output: Path, sources: Iterable[str], *, in_memory: bool = False) -> int:
    """Take what is done in records, so that it is not run again; how many entries are new.

    Args:
        folder: takes them.
        output: the folder of the suite's own records, which are taken if there are some.
        sources: folders or files of others' records; what the suite has no place for is kept beside its own.
        in_memory: whether no file is to be changed.

    Raises:
        UserError: if one is not there, or two have different results for one key.
    """
    own = [str(output)] if (output / RECORDS_FILE).exists() else []
    new = 0
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
                raise UserError(
                    f"two results of one experiment differ: mse {known.row['mse']:.9g} in {folder.path}, "
                    f"{record.row['mse']:.9g} in {source}, key {key}; keep one of them"
                )
            if source not in own and not in_memory:
                name = "_".join(str(record.row[label]) for label in LABELS).replace("/", "_")
                record.write(folder.path / _ADDED / f"{name}_{key[:12]}.parquet")
    return new
