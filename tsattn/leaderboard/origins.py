"""The second way to choose an arm: its error on rolling origins, several blocks of rows before the test part.

One validation part may mislead, as a single year is no sample of years. Here every arm of a suite is fitted anew before
each of several blocks and validated on it (`tsattn.leaderboard.origin_work`); the test part is never read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tsattn.errors import UserError, number_of
from tsattn.leaderboard.attention_share import is_ablation
from tsattn.leaderboard.board import Board
from tsattn.leaderboard.origin_work import OriginScores, OriginWork
from tsattn.leaderboard.plan import Entry
from tsattn.leaderboard.worker_process import BUSY, LocalWorkers, why_ended
from tsattn.saved_folders import write_text

__all__ = ["ORIGINS", "read_origins", "score_on_origins"]

ORIGINS = "origins.json"
_COLUMNS = ["dataset", "horizon", "predictor", "attention", "origins", "error", "key"]
_LABELS = ["dataset", "predictor", "attention"]
_PATIENCE = 60.0  # seconds to wait for another process that writes
_LOOK_EVERY = 2.0  # seconds between looks at what processes do


def score_on_origins(board: Board, folds: int, say: Callable[[str], None]) -> None:
    """Score every arm of a board, with its first seed, at the horizon at which values are chosen, and write `ORIGINS`.

    Args:
        board: whose entries are known.
        folds: rolling origins.
        say: takes a line for each arm, also for one that fails.
    """
    suite, horizon = board.narrowed, _horizon(board)
    entries = _scored(board, horizon)
    scores = OriginScores(board.folder, folds)
    left = [*{entry.key: entry for entry in entries if len(scores.known(entry)) < folds}.values()]
    for number, (entry, said) in enumerate(_computed(board, scores, left), len(entries) - len(left) + 1):
        say(f"origins {number} of {len(entries)}  {entry.name}: {said}")
    rows = [
        {
            **{name: entry.labels[name] for name in _COLUMNS[:4]},
            "origins": found,
            "error": sum(found) / folds,
            "key": entry.key,
        }
        for entry in entries
        if len(found := scores.known(entry)) == folds
    ]
    file = board.output / ORIGINS
    again = {tuple(row[name] for name in _LABELS) for row in rows}
    with board.folder.held(ORIGINS, _PATIENCE) as free:  # a shard beside this one adds its own
        if not free:
            raise UserError(f"another process holds {file}: run this again, and no arm is scored a second time")
        before = json.loads(file.read_text()) if file.exists() else []
        others = [row for row in before if tuple(row[name] for name in _LABELS) not in again]
        # means over other blocks or at another horizon are no rivals, nor are experiments that the suite has no more
        rivals = [
            row
            for row in others
            if len(row["origins"]) == folds and row["horizon"] == horizon and board.is_planned(row.get("key") or "")
        ]
        rows += rivals
        write_text(file, json.dumps(rows, indent=1) + "\n")
    gone = len(others) - len(rivals)
    unknown = sum(len(scores.known(entry)) < folds for entry in entries)
    lost = f"; {unknown} not scored" if unknown else ""
    lost += f"; {number_of(gone, 'earlier score')} of other blocks, horizons or experiments left out" if gone else ""
    say(f"{suite.name}: {number_of(len(rows), 'arm')} scored on {number_of(folds, 'rolling origin')}: {file}{lost}")


def _computed(board: Board, scores: OriginScores, entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
    """Compute what is not there, by processes of this machine, and what came of each arm as it ends."""
    waiting = {entry.key: entry for entry in entries}
    running: dict[str, Entry] = {}
    lacking: dict[str, str] = {}
    workers = LocalWorkers(board.folder, board.options.jobs)
    try:
        while waiting or running:
            for entry in [one for one in waiting.values() if {*one.members} & {*lacking}]:
                del waiting[entry.key]
                yield entry, next(lacking[key] for key in entry.members if key in lacking)
            # a mix takes its members as they were fitted
            ready = [one for one in waiting.values() if not {*one.members} & {*waiting, *running}]
            for entry in ready[: workers.free]:
                work = OriginWork.of(entry, scores.folds, board.options.threads)
                running[entry.key] = waiting.pop(entry.key)
                workers.start(work)
            for key, code in workers.ended(_LOOK_EVERY).items():
                entry = running.pop(OriginWork.of_key(key))
                said = _outcome(scores, entry, code)
                if len(scores.known(entry)) < scores.folds:
                    lacking[entry.key] = f"left out, as of its member {entry.predictor}: {said}"
                yield entry, said
    finally:
        workers.stop()


def _outcome(scores: OriginScores, entry: Entry, code: int) -> str:
    """What came of an arm, whatever it is: the others go on."""
    if len(known := scores.known(entry)) == scores.folds:
        return ", ".join(f"{error:.4f}" for error in known)
    if code == BUSY:
        return "another process has it"
    return f"failed: {why_ended(code) if code else scores.failure(entry)}"


def _horizon(board: Board) -> int:
    """The one at which values are chosen."""
    selection = board.narrowed.selection
    return board.narrowed.horizons[0] if selection is None else selection.horizon


def _scored(board: Board, horizon: int) -> list[Entry]:
    """One entry an arm and data set; members come before the mixes of them."""
    first = board.narrowed.first_seed
    entries = [entry for entry in board.mine() if entry.horizon == horizon and entry.seed in (None, first)]
    ablations = {name for name, attention in board.narrowed.attentions.items() if is_ablation(attention.kinds)}
    held = [entry for entry in entries if entry.experiment is not None and entry.attention not in ablations]
    return sorted(held, key=lambda entry: bool(entry.members))


def read_origins(sources: Sequence[str | Path]) -> pd.DataFrame:
    """What was scored on rolling origins, beside some tables of records; a row an arm and data set.

    Returns:
        The columns ``dataset``, ``horizon``, ``predictor``, ``attention``, ``origins`` (the error of each), ``error``
        (their mean, of MSE) and ``key`` (of the experiment, empty in files that do not say it); no rows where nothing
        was scored.

    Raises:
        UserError: for a file that is damaged.
    """
    rows: list[dict[str, Any]] = []
    for source in map(Path, sources):
        file = (source if source.is_dir() else source.parent) / ORIGINS
        if file.exists():
            try:
                read = [{"key": "", **row} for row in json.loads(file.read_text())]
                rows += [{name: row[name] for name in _COLUMNS} for row in read]
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{file} is damaged: delete it, and score the arms anew") from error
    return pd.DataFrame(rows, columns=_COLUMNS)
